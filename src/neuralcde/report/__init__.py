"""HTML reports about runs, and plots of control paths."""

from .comparison import write_comparison as write_comparison
from .page import write_report as write_report
from .paths import draw_paths as draw_paths
from .record import record_run as record_run
