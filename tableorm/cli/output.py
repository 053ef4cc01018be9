"""
What all commands print: lines of text or of JSON, in colours on a terminal unless `NO_COLOR` is set.
"""

import argparse
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping
from shutil import get_terminal_size
from typing import Any, Literal, TextIO

import msgspec

from ..protocol.redaction import escape_unprintable

Style = Literal["bold", "dim", "red", "green"]

_CODES: dict[Style, int] = {"bold": 1, "dim": 2, "red": 31, "green": 32}
_shown: list[str] = []  # the lines of progress on the terminal


def prepare_streams() -> None:
    """Let stdout take all characters, in UTF-8 if it is no terminal; a stream that the caller has closed is ignored."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - for the process
    if reconfigure := getattr(sys.stdout, "reconfigure", None):  # a stream in memory has none
        reconfigure(encoding=None if sys.stdout.isatty() else "utf-8", errors="backslashreplace")


def paint(text: str, style: Style, file: TextIO) -> str:
    """Return a text in a colour, if what it is written to shows colours."""
    return text if os.environ.get("NO_COLOR") or not _has_escapes(file) else f"\x1b[{_CODES[style]}m{text}\x1b[0m"


def _has_escapes(file: TextIO) -> bool:
    return file.isatty() and os.environ.get("TERM") != "dumb"


def fit(line: str) -> str:
    """Return a line for stdout without what a terminal would obey; a narrow terminal gets several, with an indent."""
    line = escape_unprintable(line)
    if not sys.stdout.isatty():
        return line
    return textwrap.fill(line, get_terminal_size().columns, subsequent_indent=" " * 6, break_on_hyphens=False)


def report(message: str, style: Style = "red") -> None:
    """Print a message as a line on stderr."""
    clear_progress()
    print(paint("tableorm:", style, sys.stderr), escape_unprintable(" ".join(message.split())), file=sys.stderr)


def to_json(values: Any) -> str:
    """Return values as a line of JSON, with nothing that a terminal would obey."""
    return escape_unprintable(msgspec.json.encode(values).decode())


def show_progress(line: str, *more: str) -> None:
    """Show on stderr how far something is: a terminal gets lines in place of those before, a file the first alone."""
    if not _has_escapes(sys.stderr):
        print(escape_unprintable(line), file=sys.stderr, flush=True)
        return
    clear_progress()
    size = get_terminal_size()
    lines = (line, *more)[: max(1, size.lines - 1)]
    # A terminal shows ^C after it, which must not begin a line that would not be removed.
    _shown.extend(escape_unprintable(each)[: size.columns - 3] for each in lines)
    text = re.sub("#+", lambda done: paint(done[0], "green", sys.stderr), "\n".join(_shown))
    print(text, end="", file=sys.stderr, flush=True)


def clear_progress() -> None:
    """Remove the lines of progress that are shown in a terminal."""
    if _shown:
        up = f"\x1b[{len(_shown) - 1}A" if len(_shown) > 1 else ""
        print(f"{up}\r\x1b[J", end="", file=sys.stderr, flush=True)
        _shown.clear()


def emit(
    args: argparse.Namespace,
    values: Mapping[str, Any],
    *lines: str,
    painted: Iterable[str] = (),
    file: TextIO | None = None,
) -> None:
    """Print an outcome on stdout or elsewhere: its lines, and those with colours; after `--json` its values."""
    clear_progress()
    for line in [to_json(values)] if args.json else [*map(escape_unprintable, lines), *painted]:
        print(line, file=file, flush=True)
