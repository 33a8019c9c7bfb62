"""`neuralcde report`: write an HTML report about a run, or a comparison of several."""

from __future__ import annotations

from pathlib import Path

from .errors import WrongUseError, report_errors


@report_errors
def report(*folders: Path, compare: bool = False, out: Path | None = None, debug: bool = False) -> None:
    """Write report.html into the folder of a run of `neuralcde fit`.

    The report describes the test results, alarms at any threshold, the metric over time and in groups, three example
    series, the data and the training.

    Parameters
    ----------
    folders
        Folder of the model; with --compare, folders of several.
    compare
        Compare the runs in one page: report --compare a b.
    out
        The page to write; by default report.html in the folder of the model, or comparison.html here with --compare.
    debug
        Show the traceback of an error.
    """
    from ..report.comparison import write_comparison  # here, so that --help does not wait for torch
    from ..report.page import write_page
    from ..report.run import read_run
    from ..solve import SolveError

    if len(folders) < 1 + compare or (len(folders) > 1 and not compare):
        raise WrongUseError(
            f"report --compare takes two folders or more, got {len(folders)}."
            if compare
            else f"report takes one folder, got {len(folders)}; to compare runs, use report --compare A B."
        )
    if out is not None and out.is_dir():
        raise WrongUseError(f"--out {out} is a folder; name a file.")
    try:
        if compare:
            print(f"comparison: {write_comparison(folders, out or Path('comparison.html'))}")
            return
        run = read_run(folders[0])
    except (FileNotFoundError, ValueError) as reason:
        raise WrongUseError(str(reason)) from reason
    try:
        page = write_page(run, out or folders[0] / "report.html")
    except (SolveError, ValueError) as reason:  # the model gives no finite outputs for its examples
        raise WrongUseError(f"{folders[0]} cannot be reported: {reason}") from reason
    print(f"report: {page}")
