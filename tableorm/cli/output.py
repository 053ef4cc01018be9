"""
What all commands print: lines of text or of JSON, in colours on a terminal unless `NO_COLOR` is set.
"""

import argparse
import os
import sys
from collections.abc import Mapping
from shutil import get_terminal_size
from typing import Any, Literal, TextIO

import msgspec

from ..protocol.redaction import escape_unprintable

Style = Literal["bold", "dim", "red", "green"]

_CLEAR = "\r\x1b[K"
_CODES: dict[Style, int] = {"bold": 1, "dim": 2, "red": 31, "green": 32}


def paint(text: str, style: Style, file: TextIO) -> str:
    """Return a text in a colour, if what it is written to shows colours."""
    if not file.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


def report(message: str, style: Style = "red") -> None:
    """Print a message as a line on stderr."""
    clear_progress()
    print(paint("tableorm:", style, sys.stderr), escape_unprintable(" ".join(message.split())), file=sys.stderr)


def to_json(values: Any) -> str:
    """Return values as a line of JSON, with nothing that a terminal would obey."""
    return escape_unprintable(msgspec.json.encode(values).decode())


def show_progress(line: str) -> None:
    """Show on stderr how far something is: in a terminal in place of the line before."""
    line = escape_unprintable(line)
    if not sys.stderr.isatty():
        print(line, file=sys.stderr, flush=True)
        return
    line = line[: get_terminal_size().columns - 1]
    done = line.rfind("#") + 1
    print(f"{_CLEAR}{paint(line[:done], 'green', sys.stderr)}{line[done:]}", end="", file=sys.stderr, flush=True)


def clear_progress() -> None:
    """Write over the line of progress that is shown in a terminal."""
    if sys.stderr.isatty():
        print(_CLEAR, end="", file=sys.stderr, flush=True)


def emit(args: argparse.Namespace, values: Mapping[str, Any], *lines: str, file: TextIO | None = None) -> None:
    """Print an outcome on stdout or elsewhere: its lines, or after `--json` its values."""
    clear_progress()
    for line in [to_json(values)] if args.json else map(escape_unprintable, lines):
        print(line, file=file, flush=True)
