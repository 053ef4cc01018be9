"""
Rows as a table that fits the terminal, as lines of JSON, or as CSV.
"""

import argparse
import csv
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import pairwise
from shutil import get_terminal_size
from typing import Any

import msgspec

from ..errors import TableOrmError, counted
from ..explorer.picture import draw_bars, pad, width_of
from ..protocol.redaction import escape_unprintable
from ..stores.intervals import common_prefix
from .output import report, show, to_json

Values = Mapping[str, Any]

_TOGETHER = 100  # rows whose columns are laid out together
_GAP = "  "
_NARROWEST = 6  # a column that is cut shows so much
_WIDEST_KEY = 24  # and one of keys so much where they are alike, or half of a wide terminal
NAMES = {"bold": r"^\S+"}
"""The style of a line of `list_values`."""
TITLES = {"bold": r"^( *[A-Za-z -]+|\w+)(:|$)", "green": "█+$"}
"""The styles of a text with titles, and bars beside shares."""


async def print_rows(
    args: argparse.Namespace, rows: AsyncIterator[Values], columns: Sequence[str], keys: Sequence[str] = ()
) -> None:
    """
    Print rows as they arrive, in the form that the arguments name.

    Args:
        args: The arguments.
        rows: Their values as JSON has them, by name.
        columns: What a CSV file without rows has in its header.
        keys: The columns whose values stay distinct where a table is cut.

    Raises:
        TableOrmError: A row does not fit the columns of a CSV file, of which the first rows had others.
    """
    count, batch, shown = 0, list[Values](), list[str]()
    async for row in rows:
        count += 1
        if args.json:
            print(to_json(row))
            continue
        batch.append(row)
        if len(batch) == _TOGETHER:
            shown = _print_batch(args, batch, shown, keys)
            batch = []
    if batch:
        _print_batch(args, batch, shown, keys)
    elif columns and not count and args.csv:
        print(",".join(columns))
    sys.stdout.flush()  # a full disk must not be told after a success
    report(counted(count, "row"), "dim")


def _print_batch(args: argparse.Namespace, rows: Sequence[Values], before: list[str], keys: Sequence[str]) -> list[str]:
    """Print some rows, with a header if the columns have changed; return the columns."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not args.csv:
        return names if print_table(rows, names, keys, header=names != before) else []
    if before and (more := [name for name in names if name not in before]):
        raise TableOrmError(f"a row has {more[0]!r}, which is no column; name the columns with --only, or use --json")
    names = before or names
    # A file gets what there is, and a terminal nothing that it would obey.
    printable = escape_unprintable if sys.stdout.isatty() else str
    lines = csv.writer(sys.stdout, lineterminator="\n")
    lines.writerows([] if before else [map(printable, names)])
    lines.writerows([printable(as_text(row.get(name))) for name in names] for row in rows)
    return names


def print_table(rows: Sequence[Values], names: Sequence[str], keys: Sequence[str] = (), *, header: bool = True) -> bool:
    """
    Print a table that fits the terminal, with distinct keys if these are not very long. Where it does not fit, print a
    line for each value, and return False.
    """
    cells = [[escape_unprintable(as_text(row.get(name))) for name in names] for row in rows]
    right = [all(isinstance(row.get(name), (int, float, type(None))) for row in rows) for name in names]
    names = [*map(escape_unprintable, names)]
    # What is no terminal has room for all.
    room = get_terminal_size((sys.maxsize, 0)).columns
    most_of_key = max(_WIDEST_KEY, room // 2)  # two long keys that are alike do not keep all rows out of a table
    bounds = [
        (max(map(width_of, column)), min(most_of_key, _keep_distinct(column)) if column[0] in keys else 0)
        for column in zip(names, *cells, strict=True)
    ]
    for most in range(room, _NARROWEST - 1, -1):
        widths = [min(widest, max(most, least)) for widest, least in bounds]
        if sum(widths) + len(_GAP) * (len(widths) - 1) <= room:
            break
    else:
        for line in cells:
            for text in [*list_values(names, line), ""]:
                show(text, NAMES, wrap=True)
        return False
    if header:
        show(_GAP.join(map(pad, names, widths)).rstrip(), {"bold": ".+"})
    for line in cells:
        print(_GAP.join(map(pad, line, widths, right)).rstrip())
    return True


def list_values(names: Sequence[str], values: Iterable[Any]) -> Iterable[str]:
    """Yield a line for each value, behind its name."""
    width = max(map(width_of, names))
    for name, value in zip(names, values, strict=True):
        yield f"{pad(name, width)}{_GAP}{as_text(value)}".rstrip()


def add_bars(lines: Iterable[str]) -> Iterable[str]:
    """Return the lines of a text; those for a terminal have bars beside shares, and fit it."""
    return draw_bars(lines, get_terminal_size().columns) if sys.stdout.isatty() else lines


def _keep_distinct(texts: Iterable[str]) -> int:
    """Return a width to which texts can be cut without becoming equal."""
    # Texts with the longest common prefix are neighbors. Behind it are a character of one or two columns, and the mark.
    pairs = pairwise(sorted({*texts}))
    return max((width_of(common_prefix(*pair)) + 3 for pair in pairs), default=0)


def as_text(value: Any) -> str:
    """Return a JSON value as a text without quotes around it."""
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()
