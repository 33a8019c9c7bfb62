"""`neuralcde report`: one page about a run."""

from __future__ import annotations

from pathlib import Path

from .errors import WrongUseError, report_errors


@report_errors
def report(folder: Path, *, debug: bool = False) -> None:
    """Write report.html into a folder that `neuralcde fit` wrote: the data, the learning, the test, three examples, the cost.

    Parameters
    ----------
    folder
        The model's folder.
    debug
        Show where an error happened.
    """
    from ..report.page import write_page  # here, so that --help does not wait for torch
    from ..report.run import read_run
    from ..solve import SolveError

    try:
        run = read_run(folder)
    except (FileNotFoundError, ValueError) as reason:
        raise WrongUseError(str(reason)) from reason
    try:
        page = write_page(run, folder / "report.html")
    except (SolveError, ValueError) as reason:  # the model has no outputs for its own examples
        raise WrongUseError(f"{folder} cannot be reported: {reason}") from reason
    print(f"report: {page}")
