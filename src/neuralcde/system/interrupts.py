"""Ctrl-C during training, without losing it."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType


class Interrupts:
    """A context in which Ctrl-C sets `asked`, which the training loop reads between batches.

    A KeyboardInterrupt raised at once can be lost, in native code that calls Python and drops its errors. The
    second Ctrl-C is raised at once, unless it is held back. Signals are left alone outside of the main thread, and
    where another handler is installed.
    """

    def __init__(self) -> None:
        self.asked = False
        self._held_back = False

    @contextlib.contextmanager
    def held_back(self) -> Iterator[None]:
        """Raise no Ctrl-C within this context, not even the second one, so that files are written completely."""
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
