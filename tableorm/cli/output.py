"""
What all commands print: lines of text or of JSON, in colours on a terminal unless `NO_COLOR` is set.
"""

import argparse
import os
import sys
import textwrap
from collections.abc import Mapping
from contextlib import ExitStack
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from ..protocol.redaction import escape_unprintable

if TYPE_CHECKING:
    from rich.console import Console

_shown = ExitStack()  # the lines of progress on the terminal


def prepare_streams() -> None:
    """Let stdout take all characters, in UTF-8 if it is no terminal; a stream that the caller has closed is ignored."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - for the process
    if reconfigure := getattr(sys.stdout, "reconfigure", None):  # a stream in memory has none
        reconfigure(encoding=None if sys.stdout.isatty() else "utf-8", errors="backslashreplace")


@lru_cache(maxsize=2)  # stdout and stderr
def find_terminal(file: TextIO) -> "Console | None":
    """Return the terminal behind a stream; None for a pipe or a file, which gets plain text without rich."""
    if not file.isatty():
        return None
    from rich.console import Console  # noqa: PLC0415

    # Without colours, bold is left out too.
    console = Console(file=file, color_system=None if os.environ.get("NO_COLOR") else "auto")
    if not console.width:  # as COLUMNS=0 says, with which nothing would be shown
        console.width = 80
    return console


def show(line: str, styles: Mapping[str, str] = {}, file: TextIO | None = None, *, wrap: bool = False) -> None:
    """
    Print a line without what a terminal would obey.

    Args:
        line: The line.
        styles: By the name of a style, such as `bold`, a pattern of what a terminal shows in it.
        file: Where to; None for stdout.
        wrap: Whether a narrow terminal gets several lines, with an indent.
    """
    line = escape_unprintable(line)
    terminal = find_terminal(file or sys.stdout)
    if not terminal:
        print(line, file=file, flush=True)
        return
    from rich.text import Text  # noqa: PLC0415

    if wrap:
        line = textwrap.fill(line, terminal.width, subsequent_indent=" " * 6, break_on_hyphens=False)
    text = Text(line)  # of which nothing is markup
    for style, pattern in styles.items():
        text.highlight_regex(pattern, style)
    terminal.print(text, soft_wrap=True)


def report(message: str, style: str = "red") -> None:
    """Print a message as a line on stderr."""
    clear_progress()
    show(f"tableorm: {' '.join(message.split())}", {style: "^tableorm:"}, sys.stderr)


def to_json(values: Any) -> str:
    """Return values as a line of JSON, with nothing that a terminal would obey."""
    return escape_unprintable(msgspec.json.encode(values).decode())


def show_progress(line: str, *more: str) -> None:
    """Show on stderr how far something is: a terminal gets lines in place of those before, a file the first alone."""
    terminal = find_terminal(sys.stderr)
    if not terminal or terminal.is_dumb_terminal:
        show(line, file=sys.stderr)
        return
    from rich.constrain import Constrain  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    clear_progress()
    # Lines that a terminal has no room for would not be removed.
    lines = (line, *more)[: terminal.height - 1]
    text = Text("\n".join(map(escape_unprintable, lines)), no_wrap=True)
    text.highlight_regex("#+", "green")
    # A terminal shows ^C after it, which must not begin a line that would not be removed.
    shown = Constrain(text, terminal.width - 3)
    # What is redirected would be shown on the terminal even if it is for a file.
    # It is removed also if an interrupt comes while it starts.
    _shown.push(
        Live(shown, console=terminal, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False)
    ).start(refresh=True)


def clear_progress() -> None:
    """Remove the lines of progress that are shown in a terminal."""
    _shown.close()


def emit(
    args: argparse.Namespace,
    values: Mapping[str, Any],
    *lines: str,
    file: TextIO | None = None,
    styles: Mapping[str, str] = {},
    wrap: bool = False,
) -> None:
    """Print an outcome on stdout or elsewhere: its lines, as `show` does; after `--json` its values."""
    clear_progress()
    if args.json:
        print(to_json(values), file=file, flush=True)
        return
    for line in lines:
        show(line, styles, file, wrap=wrap)
