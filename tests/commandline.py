"""
The command `tableorm` within the process of the tests, which is much faster than a process of its own.
"""

import asyncio
import contextlib
import functools
import io
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import pytest

from tableorm import Database, Entity, connect
from tableorm.cli import main

COMMAND = str(Path(sys.executable).with_name("tableorm"))
"""The command as a program."""

posix_only = pytest.mark.skipif(
    sys.platform == "win32", reason="capability: Windows has other pipes, signals and terminals"
)
"""Of tests of what Windows has otherwise."""

T = TypeVar("T")


@functools.cache
def _installed(path: tuple[str, ...], group: str) -> EntryPoints:
    return entry_points(group=group)


def _find_once(group: str) -> EntryPoints:
    """Look through the installed distributions once, which takes as long as many a command."""
    return _installed(tuple(sys.path), group)


def run_command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the command, and return its status and what it printed."""
    output, errors = io.BytesIO(), io.StringIO()
    status: int | str | None
    with io.TextIOWrapper(output, encoding="utf-8") as text:
        with (
            contextlib.redirect_stdout(text),
            contextlib.redirect_stderr(errors),
            mock.patch("tableorm.cli.command_line.entry_points", _find_once),
            mock.patch("tableorm.cli.parser.entry_points", _find_once),
        ):
            try:
                status = main(arguments)
            except SystemExit as end:
                status = end.code
        text.flush()
        printed = output.getvalue().decode()
    assert isinstance(status, int)
    return subprocess.CompletedProcess(arguments, status, printed, errors.getvalue())


def show_on_terminal(columns: int, *arguments: str, status: int = 0, **environment: str) -> str:
    """Return what the command shows on a terminal of so many columns, as a process of its own with this exit status."""
    import pty

    main, side = pty.openpty()
    inherited = {name: text for name, text in os.environ.items() if name != "NO_COLOR"}
    environment = {**inherited, "TERM": "xterm", "COLUMNS": str(columns), **environment}
    command = [COMMAND, *arguments]
    done = subprocess.run(command, stdout=side, stderr=subprocess.DEVNULL, env=environment, check=False)
    os.close(side)
    assert done.returncode == status
    return read_terminal(main)


def read_terminal(main: int) -> str:
    """Return all that was written to a pseudo-terminal, whose other side is closed, and close it."""
    shown = b""
    with contextlib.suppress(OSError):  # which Linux raises at the end
        while more := os.read(main, 10_000):
            shown += more
    os.close(main)
    return shown.decode()


def in_database(url: str, act: Callable[[Database], Awaitable[T]], **options: Any) -> T:
    """Open a database, do something in it, and close it."""

    async def do() -> T:
        async with connect(url, **options) as db:
            return await act(db)

    return asyncio.run(do())


def insert_all(url: str, *things: Entity | type[Entity] | str, **options: Any) -> None:
    """Insert entities into a database, one that is opened with these options; make their tables, and those named."""

    async def insert(db: Database) -> None:
        await db.create_tables(*{type(each) if isinstance(each, Entity) else each for each in things})
        for each in things:
            if isinstance(each, Entity):
                await db.insert(each)

    in_database(url, insert, **options)


def write_module(folder: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a module into a folder, in which the command runs until the end of the test."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, name, raising=False)
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
