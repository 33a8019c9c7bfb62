"""Runs code in a new Python process, so that side effects and crashes stay there."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path


def fresh_python(code, *, timeout=300, **environment):
    """Run the code and return the finished process; it can import modules of tests/, and warnings are errors."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent), **environment},
    )
