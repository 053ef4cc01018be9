"""
The content of rows: whether two of them say the same, however a store spells it.
"""

from ..protocol.edm import ANNOTATION, Edm, ticks_from_text
from ..stores import Row

_OF_THE_STORE = frozenset({"odata.etag", "Timestamp"})


def plain_row(row: Row) -> Row:
    """Return a row without its ETag and Timestamp, which another store will set anew."""
    return {name: value for name, value in row.items() if name not in _OF_THE_STORE and value is not None}


def differing_properties(first: Row, second: Row) -> list[str]:
    """Return the names of the properties that two rows do not have alike, with type and value."""
    ours, theirs = _content_of(first), _content_of(second)
    return sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))


def _content_of(row: Row) -> dict[str, tuple[object, object]]:
    return {
        name: _spell(value, row.get(name + ANNOTATION))
        for name, value in plain_row(row).items()
        if not name.endswith(ANNOTATION)
    }


def _spell(value: object, annotation: str | None) -> tuple[object, object]:
    """Return type and value in one of the spellings that mean the same; a value that is none of its type as it is."""
    if type(value) is float:
        return Edm.DOUBLE, repr(value)  # so that 0.0 and -0.0 differ
    if annotation == Edm.DATETIME and type(value) is str:
        try:
            return annotation, ticks_from_text(value)
        except ValueError:
            return annotation, value
    if annotation == Edm.GUID and type(value) is str:
        return annotation, value.lower()
    if annotation == Edm.DOUBLE and type(value) is int:
        return annotation, repr(float(value))
    if annotation in (None, Edm.STRING, Edm.BOOLEAN, Edm.INT32):
        return type(value), value
    return annotation, value
