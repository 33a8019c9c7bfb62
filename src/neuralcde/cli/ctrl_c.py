"""Handle Ctrl-C before, during and after a command.

This module imports nothing slow, so that the handler is installed before the slow imports start.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType


def leave(number: int, frame: FrameType | None) -> None:
    """Signal handler that exits the process at once, for the time before a command runs.

    A KeyboardInterrupt would be raised in the middle of the imports, where native code may swallow it or turn it into
    an ImportError.
    """
    with contextlib.suppress(OSError):  # stderr may be closed
        os.write(2, b"neuralcde: Interrupted. Nothing was written.\n")
    os._exit(1)


@contextlib.contextmanager
def ctrl_c_leaves(*, for_good: bool) -> Iterator[None]:
    """Context in which Ctrl-C exits the process at once, until a command runs.

    With `for_good` the previous handler is not restored at the end, because the process is about to exit anyway.
    """
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if ours:
        signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        if ours and not for_good:
            signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def ctrl_c_raises() -> Iterator[None]:
    """Context in which Ctrl-C raises a KeyboardInterrupt. Afterwards it is ignored: the command has finished."""
    ours = signal.getsignal(signal.SIGINT) is leave
    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
