"""The system around a run: atomic file writes, folder locks, processes, Ctrl-C. It imports no other folder."""

from .atomic_io import staged as staged
from .atomic_io import that_counts as that_counts
from .atomic_io import write_atomically as write_atomically
from .atomic_io import write_durably as write_durably
from .folder_lock import folder_lock as folder_lock
from .interrupts import Interrupts as Interrupts
from .interrupts import interrupted_by as interrupted_by
from .processes import Processes as Processes
