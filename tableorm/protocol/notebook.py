"""
Tables for notebooks, which show what `_repr_html_` of an object returns.
"""

from collections.abc import Iterable, Mapping
from html import escape

_LONGEST = 500
"""Characters of a value that are shown: a browser stalls at a table with megabytes in its cells."""


def html_table(caption: str, rows: Iterable[Mapping[str, object]]) -> str:
    """Return a table of HTML. Its columns are the names in the rows; whatever is in these is escaped."""
    found = list(rows)
    names = list(dict.fromkeys(name for row in found for name in row))
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    lines = ["".join(f"<td>{_cell(row.get(name))}</td>" for name in names) for row in found]
    body = "".join(f"<tr>{line}</tr>" for line in (head, *lines))
    return f"<table><caption>{escape(caption)}</caption>{body}</table>"


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return escape(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")
