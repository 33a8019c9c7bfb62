"""Display of training progress: a bar on a terminal or in a notebook, lines of text elsewhere; none with verbose=0."""

from __future__ import annotations

import html
import math
import sys
import time
from typing import Any

LINE_EVERY = 2.0  # seconds between lines of text


class Progress:
    """Shows each epoch: a bar in a notebook; else on standard error, with a bar if rich is there and it is a terminal.

    Parameters
    ----------
    epochs, done
        Number of epochs in total, and of those already done.
    verbose
        0 to show nothing.
    """

    def __init__(self, epochs: int, done: int, *, verbose: int):
        self.epochs, self.done, self.verbose = epochs, done, verbose
        self._bar: Any = None
        self._cell: Any = None
        self._shown, self._pending, self._begun = 0.0, "", time.monotonic()

    def __enter__(self) -> Progress:
        if self.verbose and in_notebook():
            from IPython.display import HTML, display

            self._cell = display(HTML(bar_html(self.done, self.epochs, "")), display_id=True)
        elif self.verbose and sys.stderr.isatty():
            try:
                from rich.console import Console
                from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
                from rich.progress import Progress as Bar
            except ImportError:
                return self
            columns = BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}")
            self._bar = Bar(*columns, console=Console(stderr=True))
            self._bar.start()
            self._bar.add_task("", total=self.epochs, completed=self.done)
        return self

    def epoch(self, row: dict[str, Any], metric: str) -> None:
        """Show an epoch that has ended; `row` is its entry in the history."""
        if not self.verbose:
            return
        text = f"loss {row['loss']:.4f}"
        if f"validation_{metric}" in row:
            text += f"  validation {metric} {row[f'validation_{metric}']:.4f}"
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=row["epoch"], description=text)
            return
        self._pending = f"epoch {row['epoch']}/{self.epochs}  {text}{self._left(row['epoch'])}"
        if self._cell is not None:
            self._show(row["epoch"])
        elif time.monotonic() - self._shown >= LINE_EVERY:
            self._print()

    def batch(self, epoch: int, done: int, batches: int) -> None:
        """Show how far an epoch is, if nothing was shown for a while; `done` of its `batches` have ended."""
        now = time.monotonic()
        if not self.verbose or now - max(self._shown, self._begun) < LINE_EVERY:
            return
        text = f"batch {done}/{batches}"
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=epoch - 1 + done / batches, description=text)
            self._shown = now
            return
        self._pending = f"epoch {epoch}/{self.epochs}  {text}{self._left(epoch - 1 + done / batches)}"
        if self._cell is not None:
            self._show(epoch - 1 + done / batches)
        else:
            self._print()

    def _left(self, done: float) -> str:
        """The time that the remaining epochs will take at the speed so far; patience may end the training sooner."""
        if not self.done < done < self.epochs:
            return ""
        return time_left((time.monotonic() - self._begun) / (done - self.done) * (self.epochs - done))

    def _show(self, done: float) -> None:
        """Move the bar in the notebook."""
        from IPython.display import HTML

        self._cell.update(HTML(bar_html(done, self.epochs, self._pending)))
        self._shown, self._pending = time.monotonic(), ""

    def _print(self) -> None:
        print(self._pending, file=sys.stderr, flush=True)
        self._shown, self._pending = time.monotonic(), ""

    def __exit__(self, *error: object) -> None:
        if self._pending:  # always show the last epoch
            self._print()
        if self._bar is not None:
            self._bar.stop()


def in_notebook() -> bool:
    """Whether this runs in the kernel of a notebook; nothing is imported to find out."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


def bar_html(done: float, epochs: int, text: str) -> str:
    """A progress bar with a line of text beside it."""
    return f'<progress value="{done:g}" max="{epochs}"></progress> <code>{html.escape(text)}</code>'


def time_left(seconds: float) -> str:
    """The end of a progress line: about how much time is left."""
    for limit, size, unit in ((100, 1, "s"), (6000, 60, "min")):
        if seconds < limit:
            return f"  about {math.ceil(seconds / size)} {unit} left"
    return f"  about {seconds / 3600:.1f} h left"
