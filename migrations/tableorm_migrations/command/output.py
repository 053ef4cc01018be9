"""
What the actions print while they work: on a terminal lines that are written again, otherwise ever more lines.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from shutil import get_terminal_size
from types import TracebackType
from typing import Any, Self

import msgspec

from tableorm.protocol.redaction import escape_unprintable

_SECONDS = 1.0  # between two lines of progress


class Output:
    """
    What an action prints; a context that leaves a terminal at the beginning of a line.

    Args:
        as_json: Whether everything is printed as lines of JSON.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._as_json, self._terminal = as_json, sys.stderr.isatty() and not as_json
        self._shown, self._at = list[str](), time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rewrite([])

    def progress(self, text: str, values: Mapping[str, Any], bars: Sequence[str] = ()) -> None:
        """Show how far something is, if a second has passed since it was last shown; on a terminal with some bars."""
        if time.monotonic() - self._at < _SECONDS:
            return
        self._at = time.monotonic()
        if self._as_json:
            self.print(text, values)
        elif self._terminal:
            size = get_terminal_size()
            lines = [text, *bars][: max(1, size.lines - 1)]
            self._rewrite([escape_unprintable(line)[: size.columns - 1] for line in lines])
        else:
            print(escape_unprintable(text), file=sys.stderr, flush=True)

    def print(self, text: str, values: Mapping[str, Any]) -> None:
        """Print an outcome: its text, or as JSON its values."""
        self._rewrite([])
        if self._as_json:
            text = msgspec.json.encode(values).decode()
        print("\n".join(escape_unprintable(line) for line in text.split("\n")), flush=True)

    def _rewrite(self, lines: list[str]) -> None:
        """Write some lines over those that are shown."""
        if self._shown or lines:
            pairs = zip_longest(lines, self._shown, fillvalue="")
            text = "\n".join(f"\r{line.ljust(len(before))}" for line, before in pairs)
            below = len(self._shown) - max(1, len(lines))
            sys.stderr.write(f"{_up(len(self._shown) - 1)}{text}{_up(below)}{'' if lines else chr(13)}")
            sys.stderr.flush()
        self._shown = lines


def _up(lines: int) -> str:
    """Return what moves the cursor of a terminal up by some lines."""
    return f"\x1b[{lines}A" if lines > 0 else ""
