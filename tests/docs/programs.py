"""
The programs that pages start, each in a process of its own, which has imported tableorm already.
"""

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_FORKS = "forkserver" in multiprocessing.get_all_start_methods()
"""False on Windows, where each program starts as usual."""
_PROCESSES: Any = multiprocessing.get_context("forkserver" if _FORKS else "spawn")
if _FORKS:
    _PROCESSES.set_forkserver_preload(["tableorm.cli", "tableorm.inspection", "tableorm_local", __name__])
_run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run


def run_program(command: Sequence[str], **options: Any) -> "subprocess.CompletedProcess[str]":
    """Do what `subprocess.run` does, sooner if it is a program of tableorm."""
    if not _FORKS or command[0] != sys.executable or command[1] not in ("-c", "-m") or command[2] == "pytest":
        return _run(command, **options)
    how, *arguments = command[1:]
    with tempfile.TemporaryDirectory() as folder:
        output, errors = Path(folder, "output"), Path(folder, "errors")
        process = _PROCESSES.Process(target=_execute, args=(how, arguments, str(output), str(errors)))
        process.start()
        process.join()
        status = process.exitcode
        process.close()
        assert status is not None
        printed = [path.read_text(encoding="utf-8") for path in (output, errors)]
    done = subprocess.CompletedProcess([*command], status, *printed)
    if options.get("check"):
        done.check_returncode()
    return done


def _execute(how: str, arguments: list[str], *paths: str) -> None:
    """Execute the code or module as Python does that is started with it."""
    for number, path in enumerate(paths, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))  # noqa: SIM115
    sys.path.insert(0, "")
    if how == "-m":
        sys.argv = arguments
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = ["-c", *arguments[1:]]
        module = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(arguments[0], vars(module))
