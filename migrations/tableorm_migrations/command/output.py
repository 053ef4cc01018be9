"""
What the actions print while they work: on a terminal one line that is written again and again, otherwise lines.
"""

import sys
import time
from collections.abc import Mapping
from shutil import get_terminal_size
from types import TracebackType
from typing import Any, Self

import msgspec

from tableorm.protocol.redaction import escape_unprintable

__all__ = ["Output"]

_SECONDS = 1.0  # between two lines of progress


class Output:
    """
    What an action prints; a context that leaves a terminal at the beginning of a line.

    Args:
        as_json: Whether everything is printed as lines of JSON.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._as_json, self._terminal = as_json, sys.stderr.isatty() and not as_json
        self._shown, self._at = "", time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rewrite_line("")

    def progress(self, text: str, values: Mapping[str, Any]) -> None:
        """Show how far something is, if a second has passed since it was last shown."""
        if time.monotonic() - self._at < _SECONDS:
            return
        self._at = time.monotonic()
        if self._as_json:
            self.print(text, values)
        elif self._terminal:
            self._rewrite_line(escape_unprintable(text)[: get_terminal_size().columns - 1])
        else:
            print(escape_unprintable(text), file=sys.stderr, flush=True)

    def print(self, text: str, values: Mapping[str, Any]) -> None:
        """Print an outcome: its text, or as JSON its values."""
        self._rewrite_line("")
        if self._as_json:
            text = msgspec.json.encode(values).decode()
        print("\n".join(escape_unprintable(line) for line in text.split("\n")), flush=True)

    def _rewrite_line(self, text: str) -> None:
        if self._shown or text:
            sys.stderr.write(f"\r{text.ljust(len(self._shown))}{'' if text else chr(13)}")
            sys.stderr.flush()
        self._shown = text
