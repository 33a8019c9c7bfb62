"""`neuralcde report`: write an HTML report about a run."""

from __future__ import annotations

from pathlib import Path

from .errors import WrongUseError, report_errors


@report_errors
def report(folder: Path, *, debug: bool = False) -> None:
    """Write report.html into the folder of a run of `neuralcde fit`.

    The report describes the data, the learning curves, the test results, three example series and the cost.

    Parameters
    ----------
    folder
        Folder of the model.
    debug
        Show the traceback of an error.
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
    except (SolveError, ValueError) as reason:  # the model gives no finite outputs for its examples
        raise WrongUseError(f"{folder} cannot be reported: {reason}") from reason
    print(f"report: {page}")
