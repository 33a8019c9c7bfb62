"""Ctrl-C that is never lost."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType


class Interrupts:
    """Ctrl-C as a note that is read between batches, while the context lasts.

    Raised where it happens, a KeyboardInterrupt is lost now and then, in native code that calls Python and drops its errors.
    The second Ctrl-C is raised at once, unless it is held back. Signals are left alone outside of the main thread, and where
    somebody else handles them.
    """

    def __init__(self) -> None:
        self.asked = False
        self._held_back = False

    @contextlib.contextmanager
    def held_back(self) -> Iterator[None]:
        """No Ctrl-C is raised while the context lasts, the second one included: what is written in it is written as a whole."""
        self._held_back = True
        try:
            yield
        finally:
            self._held_back = False

    def __enter__(self) -> Interrupts:
        self._ours = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        if self._ours:
            signal.signal(signal.SIGINT, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked and not self._held_back:
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
