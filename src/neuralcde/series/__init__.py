"""Raw observations to `IrregularSeries`: tables, arrays, channels, scaling."""

from .channels import ChannelScales as ChannelScales
from .irregular_series import IrregularSeries as IrregularSeries
from .scaling import SeriesScaler as SeriesScaler
