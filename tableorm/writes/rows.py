"""
Rows as values: what of a row is its content, and what a merge makes of it.
"""

from ..models.reserved import MANIFEST, WRITE_TOKENS
from ..protocol.edm import ANNOTATION
from ..stores import Row

__all__ = ["content", "overlaid"]

_NOT_CONTENT = frozenset({"odata.etag", "Timestamp", WRITE_TOKENS, MANIFEST})


def content(row: Row) -> Row:
    """Return a row without what a write makes: ETag, Timestamp, write tokens and manifest."""
    return {name: value for name, value in row.items() if name not in _NOT_CONTENT}


def overlaid(row: Row, members: Row) -> Row:
    """Return a row after a merge of some members: without ETag, Timestamp, and types of values that were replaced."""
    result = {name: value for name, value in row.items() if name not in ("odata.etag", "Timestamp")}
    for name in members:
        result.pop(name + ANNOTATION, None)
    result.update(members)
    return result
