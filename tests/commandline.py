"""
The command `tableorm` within the process of the tests, which is much faster than a process of its own.
"""

import contextlib
import io
import subprocess

from tableorm.cli import main

__all__ = ["run_command"]


def run_command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the command, and return its status and what it printed."""
    output, errors = io.BytesIO(), io.StringIO()
    status: int | str | None
    with io.TextIOWrapper(output, encoding="utf-8") as text:
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(errors):
            try:
                status = main(arguments)
            except SystemExit as end:
                status = end.code
        text.flush()
        printed = output.getvalue().decode()
    assert isinstance(status, int)
    return subprocess.CompletedProcess(arguments, status, printed, errors.getvalue())
