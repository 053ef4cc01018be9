"""
Bars beside the shares in a text, such as the statistics of a table, and lines that fit a terminal.
"""

import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator

from ..protocol.redaction import escape_unprintable

_LONGEST_BAR = 24
_SHARE = re.compile(r"( +.*?) *(  [\d,]+  +(\d{1,3})%.*)")  # a name, and figures of which one is a share


def draw_bars(lines: Iterable[str], room: int) -> Iterator[tuple[str, str]]:
    """Yield each line of a text, and the bar beside it if it has a share; the names of shares are cut to fit."""
    for line in map(escape_unprintable, lines):
        row = _SHARE.fullmatch(line)
        if row is None:
            yield line, ""
            continue
        name, figures, share = row.groups()
        width = min(room, width_of(line))
        bar = "█" * (int(share) * min(_LONGEST_BAR, room - width - 2) // 100)
        yield pad(name, width - len(figures)) + figures, bar


def width_of(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else not unicodedata.combining(char) for char in text)


def pad(text: str, width: int, right: bool = False) -> str:  # noqa: FBT001, FBT002 - for map()
    """Return a text of a width: cut, or with spaces."""
    if width_of(text) > width:
        ends = itertools.accumulate(map(width_of, text))
        text = text[: next(at for at, end in enumerate(ends) if end > width - 1)] + "…"
    space = " " * (width - width_of(text))
    return space + text if right else text + space
