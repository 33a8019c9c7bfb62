"""Raw observations to `IrregularSeries`: tables, arrays, channels, scaling."""

from .channels import ChannelScales as ChannelScales
from .far_values import FarValue as FarValue
from .far_values import FarValues as FarValues
from .far_values import FarValueWarning as FarValueWarning
from .irregular_series import IrregularSeries as IrregularSeries
from .scaling import SeriesScaler as SeriesScaler
