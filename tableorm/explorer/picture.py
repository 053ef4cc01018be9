"""
The picture of a table: of which kinds its rows are, and in which partitions.
"""

from collections.abc import Mapping

from ..advice import TableStatistics
from ..protocol.redaction import escape_unprintable

_WIDTH = 32
_EIGHTHS = " ▏▎▍▌▋▊▉"


def draw_picture(measured: TableStatistics) -> str:
    """Return where the rows are, with a bar for the share of each kind, partition and prefix."""
    which = "all" if measured.exact else "a sample of"
    sections = {
        "kinds": {kind or "(no EntityType)": each.rows for kind, each in measured.kinds.items()},
        "largest partitions": measured.largest,
        "hot prefixes of PartitionKeys": {f"{prefix}…": rows for prefix, rows in measured.prefixes.items()},
    }
    head = f"{measured.table}: {which} {measured.rows:,} rows in {measured.partitions:,} partitions, "
    lines = [f"{head}{measured.size:,} bytes, read by {measured.requests} requests"]
    for title, rows in sections.items():
        if rows:
            lines += ["", title, *_draw_bars(rows, max(1, measured.rows))]
    return "\n".join(lines)


def _draw_bars(rows: Mapping[str, int], total: int) -> list[str]:
    names = [escape_unprintable(name)[:40] for name in rows]
    width = max(map(len, names))
    return [
        f"  {name:<{width}}  {_draw_bar(number / total):<{_WIDTH}} {number:>9,}  {number / total:>4.0%}"
        for name, number in zip(names, rows.values(), strict=True)
    ]


def _draw_bar(share: float) -> str:
    whole, rest = divmod(round(share * _WIDTH * 8), 8)
    return "█" * whole + _EIGHTHS[rest].strip()
