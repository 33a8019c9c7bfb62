"""Runs a piece of code in a new Python: what it does to its process, or a crash of it, stays there."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path


def fresh_python(code, *, timeout=300, **environment):
    """The finished process. Modules of tests/ can be imported in it, and warnings are errors there too."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent), **environment},
    )
