"""Ctrl-C before a command runs, and after it; it imports nothing that takes time."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType


def leave(number: int, frame: FrameType | None) -> None:
    """End the process at once: no command runs yet.

    A KeyboardInterrupt would be raised somewhere in the imports, where native code may drop it or call it an ImportError.
    """
    with contextlib.suppress(OSError):  # nobody may be listening
        os.write(2, b"neuralcde: Interrupted. Nothing was written.\n")
    os._exit(1)


@contextlib.contextmanager
def ctrl_c_leaves(*, for_good: bool) -> Iterator[None]:
    """Ctrl-C ends the process at once until a command runs; `for_good` if the process has nothing else to do afterwards."""
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
    """Ctrl-C is a KeyboardInterrupt while a command runs, and does nothing afterwards: all is said by then."""
    ours = signal.getsignal(signal.SIGINT) is leave
    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
