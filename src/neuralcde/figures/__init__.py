"""SVG figures, and numbers formatted as text. Used by the tasks and by the report."""

from .drawing import COLOURS as COLOURS
from .drawing import DARK as DARK
from .drawing import DASHED as DASHED
from .drawing import DOTS as DOTS
from .drawing import GREY as GREY
from .drawing import HEIGHT as HEIGHT
from .drawing import LINE as LINE
from .drawing import WIDTH as WIDTH
from .drawing import Drawing as Drawing
from .drawing import Table as Table
from .drawing import draw as draw
from .panels import panels_of as panels_of
from .sliding_table import Column as Column
from .sliding_table import SlidingTable as SlidingTable
from .sparkline import sparkline as sparkline
from .wording import duration as duration
from .wording import number as number
from .wording import percent as percent
from .wording import score as score
from .wording import short as short
from .wording import with_minus as with_minus
