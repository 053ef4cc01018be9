"""
Rows as values: what of a row is its content, what a merge makes of it, what differs between two, and its write tokens.

Write tokens are how a row says which writes made it, so that a writer whose reply was lost can recognise its own. A
token is 72 random bits, 12 characters of base64url, drawn anew for every logical write. A row that carries them has the
tokens of its last three writes in the property `_w`, newest first, with commas between. A conditional writer puts its
token in front of those that it read; an insert, and a write without condition, begins anew.
"""

import os
from base64 import urlsafe_b64encode
from collections.abc import Sequence

from ..models.reserved import MANIFEST, WRITE_TOKENS
from ..models.schema import MISFITS, FieldInfo, Schema
from ..protocol.edm import ANNOTATION, SYSTEM_MEMBERS, Edm
from ..stores import Row

__all__ = [
    "KEPT",
    "NOT_PROPERTIES",
    "changes",
    "compare",
    "content",
    "new_token",
    "overlaid",
    "rebased",
    "same_value",
    "tokens_of",
    "with_token",
    "with_tokens_of",
]

NOT_PROPERTIES = SYSTEM_MEMBERS | {WRITE_TOKENS, MANIFEST}
"""Members of a row that are no properties of an entity's own."""

_NOT_CONTENT = frozenset({"odata.etag", "Timestamp", WRITE_TOKENS, MANIFEST})


def content(row: Row) -> Row:
    """Return a row without what a write makes: ETag, Timestamp, write tokens and manifest."""
    members = {name: value for name, value in row.items() if name not in _NOT_CONTENT}
    annotation = members.pop(WRITE_TOKENS + ANNOTATION, None)
    if annotation is not None and WRITE_TOKENS in row:  # bytes or a number, which another program has written
        members |= {WRITE_TOKENS: row[WRITE_TOKENS], WRITE_TOKENS + ANNOTATION: annotation}
    return members


def overlaid(row: Row, members: Row) -> Row:
    """Return a row after a merge of some members: without ETag, Timestamp, and types of values that were replaced."""
    result = {name: value for name, value in row.items() if name not in ("odata.etag", "Timestamp")}
    for name in members:
        result.pop(name + ANNOTATION, None)
    result.update(members)
    return result


def rebased(row: Row, old: Row, new: Row) -> Row:
    """
    Apply to a row what was changed in another one.

    Args:
        row: The row.
        old: The other one as it was.
        new: The other one as it is.
    """
    kept = {name: value for name, value in row.items() if name in new or name not in old}
    return overlaid(kept, changes(old, new))


def changes(before: Row, row: Row) -> Row:
    """Return the members of `row` that differ from `before`, each with its annotation."""
    return compare(before, row)[0]


def compare(before: Row, row: Row, schema: Schema | None = None) -> tuple[Row, bool]:
    """
    Find the members of `row` that differ from `before`, each with its annotation.

    With a schema, a value that means what was read is written as it was read: the 100 ns digit of a DateTime, an Int32
    in an int field, JSON text with other spacing. Only a changed value takes the spelling of the declaration.

    Returns:
        The members, and whether the row has now any that the encoder did not make.
    """
    changed: Row = {}
    respelled = False
    old = before.get
    # All that may differ, found without a call for each.
    names = {
        name.removesuffix(ANNOTATION)
        for name, value in row.items()
        if value != (was := old(name)) or type(value) is not type(was) or type(value) is float
    }
    names |= {name.removesuffix(ANNOTATION) for name in before.keys() - row.keys() if ANNOTATION in name}
    for name in [name for name in row if name in names] if names else ():
        if name in NOT_PROPERTIES:
            continue
        value, annotation = row[name], row.get(name + ANNOTATION)
        was, annotated = old(name), old(name + ANNOTATION)
        if was == value and annotation == annotated and same_value(was, value):
            continue
        if schema is not None and was is not None and value is not None:
            info = schema.by_property.get(name)
            if info is not None and _means_the_same(info, value, annotation, was, annotated):
                respelled = True
                row[name] = was
                if annotated is None:
                    row.pop(name + ANNOTATION, None)
                else:
                    row[name + ANNOTATION] = annotated
                continue
        changed[name] = value
        if annotation is not None:
            changed[name + ANNOTATION] = annotation
    return changed, respelled


def _means_the_same(
    info: FieldInfo, new: object, annotation: str | None, old: object, old_annotation: str | None
) -> bool:
    """Return whether two stored values are the same value of a field, in two spellings."""
    if info.type.inline and info.type.edm is Edm.STRING and type(new) is type(old) is str:
        return new == old
    try:
        value, read = info.type.decode(new, annotation), info.type.decode(old, old_annotation)
        if info.type.json_text:
            # By what would be written: equality may leave out a part of the value.
            return bool(info.type.encode(read) == new)
        return bool(value == read and type(value) is type(read) and str(value) == str(read))
    except MISFITS:
        return False  # what was stored does not fit the field: the new value replaces it


def same_value(old: object, value: object) -> bool:
    """Return whether a table stores two JSON values as the same: it tells minus zero from zero, and 1 from true."""
    return old == value and type(old) is type(value) and (value != 0.0 or str(value) == str(old))


KEPT = 3
"""How many tokens a row carries. After as many writes of others, a writer no longer finds its own."""


_BYTES = 9
_DRAWN = 256  # tokens at a time: to ask the system for each would take longer than all else that a token takes
_ready: list[str] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ready.clear)  # parent and child must not draw the same


def new_token() -> str:
    """Return a new write token, at random; no two are alike."""
    try:
        return _ready.pop()  # of several threads each gets another
    except IndexError:
        drawn = os.urandom(_BYTES * _DRAWN)
        tokens = [urlsafe_b64encode(drawn[n : n + _BYTES]).decode() for n in range(0, len(drawn), _BYTES)]
        token = tokens.pop()
        _ready.extend(tokens)
        return token


def tokens_of(row: Row | None) -> tuple[str, ...]:
    """
    Return the tokens on a row, newest first. A property of that name and of another type is another program's, and
    holds none.
    """
    text = None if row is None else row.get(WRITE_TOKENS)
    if row is None or not isinstance(text, str) or not text or WRITE_TOKENS + ANNOTATION in row:
        return ()
    return tuple(text.split(","))


def with_token(tail: Sequence[str], token: str) -> str:
    """Return what a row stores after a write: the token of the write, then those of the writes before it."""
    return ",".join([token, *tail[: KEPT - 1]])


def with_tokens_of(row: Row, source: Row) -> Row:
    """Give a derived row the tokens of the row it is derived from: finding one of them proves the write of both."""
    if WRITE_TOKENS in source:
        row[WRITE_TOKENS] = source[WRITE_TOKENS]
    return row
