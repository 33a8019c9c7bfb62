"""Runs the code of pages and examples, and compares its output with the output that the page shows."""

import contextlib
import functools
import io
import math
import re
import runpy
import shlex
import sys
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

from neuralcde.cli import main

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ROUNDING = 1e-12
NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*\.?\d*(?:e[+-]?\d+)?(?![\w.])")


@functools.cache
def example_output(file: Path) -> str:
    """The output of an example that is run as the main program."""
    printed = io.StringIO()
    with mock.patch.object(sys, "argv", [str(file)]), contextlib.redirect_stdout(printed):
        runpy.run_path(str(file), run_name="__main__")
    return printed.getvalue()


def command_output(arguments: list[str]) -> str:
    """The output of a `neuralcde` command, run in this process, where torch is already imported."""
    printed, complaints = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complaints), warnings.catch_warnings():
        warnings.simplefilter("default")  # printed, not raised
        try:
            main(arguments)
        except SystemExit as end:
            assert not end.code, f"{arguments}\n{complaints.getvalue()}"
    return printed.getvalue()


def run_page(file: Path, *, numbers: bool = True) -> tuple[int, dict[str, Any]]:
    """Run the Python blocks and the commands of a page in order, in one namespace.

    Of an `sh` block, the lines that call an example run. In the quickstart, which creates the tables that commands
    need, the lines that call `neuralcde` run too. A `text` block must show lines that the previous block printed, in
    the same order; more may have been printed. If `numbers` is true, the numbers in these lines must be close as well.

    Returns the number of blocks that ran, and the namespace.
    """
    text, namespace = file.read_text(), {"__name__": "page"}
    printed, ran = "", 0
    for match in BLOCK.finditer(text):
        kind, block = match.groups()
        if kind == "python":
            output = io.StringIO()
            lines = "\n" * text.count("\n", 0, match.start(2))  # so that a traceback names the line of the page
            with contextlib.redirect_stdout(output):
                exec(compile(lines + block, str(file), "exec"), namespace)
            printed, ran = output.getvalue(), ran + 1
        elif kind == "sh":
            outputs = [run_line(line, file) for line in block.replace("\\\n", " ").splitlines()]
            printed, ran = "".join(filter(None, outputs)), ran + any(outputs)
        elif kind == "text":
            compare(block, printed, f"{file.name}:{text.count(chr(10), 0, match.start()) + 1}", numbers=numbers)
    return ran, namespace


def run_line(line: str, page: Path) -> str | None:
    """The output of a command; None for a line that is not run."""
    words = shlex.split(line, comments=True)
    if words[:1] == ["neuralcde"] and page.name == "quickstart.md":
        return command_output(words[1:])
    if words[:1] == ["python"] and words[1].startswith("examples/"):
        return example_output(ROOT / words[1])
    return None


def compare(shown: str, printed: str, where: str, *, numbers: bool) -> None:
    """Assert that every line shown by a page was printed, in the same order."""
    rest = iter(printed.splitlines())
    for line in shown.splitlines():
        if not any(same_line(line, other, numbers=numbers) for other in rest):
            raise AssertionError(f"{where} shows a line that was not printed: {line!r}\nprinted:\n{printed}")


def same_line(shown: str, printed: str, *, numbers: bool) -> bool:
    """Whether the words are equal and, if `numbers` is true, the numbers are close."""
    if NUMBER.sub("#", shown).split() != NUMBER.sub("#", printed).split():
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True)
    return not numbers or all(close(a, b) for a, b in pairs)


def close(shown: str, printed: str) -> bool:
    """Whether two numbers agree to 5 % or 0.05; numbers such as 6e-05 to a factor of 5, unless both are rounding."""
    a, b = (float(number.replace(",", "")) for number in (shown, printed))
    if "e" in shown:
        return b / 5 < a < b * 5 or max(a, b) < ROUNDING
    return math.isclose(a, b, rel_tol=0.05, abs_tol=0.05)
