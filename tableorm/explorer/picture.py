"""
Bars beside the shares in a text, such as the statistics of a table, and lines that fit a terminal.
"""

import re
from collections.abc import Iterable, Iterator

from ..protocol.redaction import escape_unprintable

_LONGEST_BAR = 24
_SHARE = re.compile(r"( +.*?) *(  [\d,]+\+?  +(\d{1,3})%.*)")  # a name, and figures of which one is a share


def draw_bars(lines: Iterable[str], room: int) -> Iterator[str]:
    """Yield each line of a text, with a bar beside it if it has a share; the names of shares are cut to fit."""
    for line in map(escape_unprintable, lines):
        row = _SHARE.fullmatch(line)
        if row is None:
            yield line
            continue
        name, figures, share = row.groups()
        width = min(room, width_of(line))
        bar = "█" * (int(share) * min(_LONGEST_BAR, room - width - 2) // 100)
        yield f"{pad(name, width - len(figures))}{figures}  {bar}".rstrip()


def width_of(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415

    return cell_len(text)


def pad(text: str, width: int, right: bool = False) -> str:  # noqa: FBT001, FBT002 - for map()
    """Return a text of a width: cut, or with spaces."""
    space = width - width_of(text)
    if space < 0:
        from rich.cells import set_cell_size  # noqa: PLC0415

        text = set_cell_size(text, width - 1) + "…"
    return " " * space + text if right else text + " " * space
