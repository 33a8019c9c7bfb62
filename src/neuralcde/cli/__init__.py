"""The command line: `neuralcde fit | predict | serve | report | info | demo`.

The module of a command is imported only when the command runs, so that `--help` does not wait for torch.
"""

from __future__ import annotations

import importlib
import sys

from .ctrl_c import ctrl_c_leaves

LISTS = frozenset(("--static", "--channels", "--exclude"))  # options that take several names


def main(arguments: list[str] | None = None) -> None:
    """Run the command line with these arguments, by default those of the process (`sys.argv`)."""
    with ctrl_c_leaves(for_good=arguments is None):
        _run(arguments)


def _run(arguments: list[str] | None) -> None:
    try:
        from cyclopts import App, CycloptsError, UnusedCliTokensError
    except ImportError:
        sys.exit("The command line needs more packages: pip install 'neuralcde[cli]'")
    from .. import __version__

    arguments = _import_modules(sys.argv[1:] if arguments is None else arguments)
    app = App(
        name="neuralcde",
        version=__version__,
        help="Neural controlled differential equations for irregular, partially observed time series.\n\n"
        "neuralcde --import MODULE COMMAND ... imports a module first, so that its path schemes, fields, models and "
        "tasks can be chosen by name. MODULE is on Python's path or in the current folder.",
    )
    app.command("neuralcde.cli.fit:fit", name="fit", help="Train a model on a long table of measurements and save it.")
    app.command("neuralcde.cli.predict:predict", name="predict", help="Predict with a saved model.")
    app.command("neuralcde.cli.serve:serve", name="serve", help="Serve a saved model over HTTP.")
    app.command("neuralcde.cli.report:report", name="report", help="Write an HTML report about a saved model.")
    app.command("neuralcde.cli.info:info", name="info", help="Print versions and engine, or describe a model.")
    app.command(
        "neuralcde.cli.demo:demo",
        name="demo",
        help="Generate a table, train on it, write a report, predict, and compare with two baselines.",
    )
    try:
        app(arguments, exit_on_error=False)
    except CycloptsError as reason:  # it is printed already
        if isinstance(reason, UnusedCliTokensError) and not LISTS.isdisjoint(arguments):
            print("Separate names by commas: --channels pulse,lactate.", file=sys.stderr)
        sys.exit(2)


def _import_modules(arguments: list[str]) -> list[str]:
    """Import the modules named by leading `--import` options, and return the remaining arguments."""
    while arguments[:1] == ["--import"]:
        if len(arguments) < 2:
            sys.exit("error: --import needs the name of a module.")
        sys.path.insert(0, "")
        try:
            importlib.import_module(arguments[1])
        except ImportError as reason:
            sys.exit(f"error: --import {arguments[1]}: {reason}.")
        finally:
            sys.path.remove("")
        arguments = arguments[2:]
    return arguments
