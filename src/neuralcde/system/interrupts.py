"""Ctrl-C during training, without losing it."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import FrameType, TracebackType

_ASKED_ELSEWHERE: ContextVar[Callable[[], bool] | None] = ContextVar("asked_elsewhere", default=None)


@contextlib.contextmanager
def interrupted_by(asked: Callable[[], bool]) -> Iterator[None]:
    """A context in which `Interrupts` ends work also when `asked` returns True: Ctrl-C in another process."""
    token = _ASKED_ELSEWHERE.set(asked)
    try:
        yield
    finally:
        _ASKED_ELSEWHERE.reset(token)


class Interrupts:
    """A context in which Ctrl-C sets `asked`, which the training loop reads between batches.

    A KeyboardInterrupt raised at once can be lost, in native code that calls Python and drops its errors. The
    second Ctrl-C is raised at once, unless it is held back. Signals are left alone outside of the main thread, and
    where another handler is installed.

    Parameters
    ----------
    tell
        Function that the first Ctrl-C calls, to pass it on to other processes.
    """

    def __init__(self, tell: Callable[[], object] | None = None) -> None:
        self._noted = False
        self._held_back = False
        self._tell, self._elsewhere = tell, _ASKED_ELSEWHERE.get()

    @property
    def asked(self) -> bool:
        """Whether Ctrl-C was pressed, here or in the process that `interrupted_by` watches."""
        return self._noted or (self._elsewhere is not None and self._elsewhere())

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
        if self._noted and not self._held_back:
            raise KeyboardInterrupt
        if not self._noted and self._tell is not None:
            self._tell()
        self._noted = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
