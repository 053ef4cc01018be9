"""
Rows as values: what of a row is its content, what a merge makes of it, and what differs between two.
"""

from ..models.property_types import PropertyType
from ..models.reserved import NOT_PROPERTIES, WRITE_TOKENS
from ..models.schema import MISFITS, FieldInfo, Schema
from ..protocol.edm import ANNOTATION, INT32_MAX, INT32_MIN, Edm
from ..stores import Row, unstamped

NOT_CONTENT = NOT_PROPERTIES - {"PartitionKey", "RowKey"}
"""Members of a row that no entity has: what the store and earlier writes have made."""


def content(row: Row) -> Row:
    """Return a row without what a write makes: ETag, Timestamp, write tokens and manifest."""
    members = {name: value for name, value in row.items() if name not in NOT_CONTENT}
    annotation = members.pop(WRITE_TOKENS + ANNOTATION, None)
    if annotation is not None and WRITE_TOKENS in row:  # bytes or a number, which another program has written
        members |= {WRITE_TOKENS: row[WRITE_TOKENS], WRITE_TOKENS + ANNOTATION: annotation}
    return members


def overlaid(row: Row, members: Row) -> Row:
    """Return a row after a merge of some members: without ETag, Timestamp, and types of values that were replaced."""
    result = unstamped(row)
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
    in an int field, JSON text with other spacing. Only a changed value takes the spelling of the declaration. A whole
    number stays an Int32 as long as it fits.

    Returns:
        The members, and whether the row has now any that the encoder did not make.
    """
    changed: Row = {}
    respelled = False
    old = before.get
    # All that may differ, found without a call for each: most values are the very objects that were read.
    names = [
        name
        for name, value in row.items()
        if value is not (was := old(name))
        and (value != was or type(value) is not type(was) or (type(value) is float and not value))
    ]
    names += [name for name in before if name not in row and ANNOTATION in name]
    if not names:
        return changed, respelled
    differing = {name.removesuffix(ANNOTATION) for name in names}
    for name in [name for name in row if name in differing]:
        if name in NOT_PROPERTIES:
            continue
        value, annotation = row[name], row.get(name + ANNOTATION)
        was, annotated = old(name), old(name + ANNOTATION)
        if annotation == annotated and same_value(was, value):
            continue
        member = None if schema is None else schema.by_property.get(name)
        if member is not None and was is not None and value is not None:
            if _means_the_same(member.type, value, annotation, was, annotated):
                respelled = True
                row[name] = was
                if annotated is None:
                    row.pop(name + ANNOTATION, None)
                else:
                    row[name + ANNOTATION] = annotated
                continue
            if annotation == Edm.INT64 and is_int32(was, annotated) and INT32_MIN <= int(value) <= INT32_MAX:
                respelled = True
                changed[name] = row[name] = int(value)
                del row[name + ANNOTATION]
                continue
        changed[name] = value
        if annotation is not None:
            changed[name + ANNOTATION] = annotation
    return changed, respelled


def is_int32(value: object, annotation: str | None) -> bool:
    """Return whether a stored value is an Int32."""
    return type(value) is int and annotation in (None, Edm.INT32)


def is_absent_value(schema: Schema, info: FieldInfo, members: Row) -> bool:
    """Return whether a field with these members has the value that is read where the row lacks its property."""
    value = info.absent()
    return value is not None and not changes(schema.encode_some({info.name: value}, (info,)), members)


def _means_the_same(
    kind: PropertyType, new: object, annotation: str | None, old: object, old_annotation: str | None
) -> bool:
    """Return whether two stored values are the same value of a type, in two spellings."""
    plain = kind.inline and kind.edm in (Edm.STRING, Edm.INT64)  # each of their values has one spelling
    if plain and annotation == old_annotation and type(new) is type(old) is str:
        return new == old
    if kind.edm is Edm.BINARY and isinstance(new, str) and isinstance(old, str) and new[:-4] != old[:-4]:
        return False  # only the last four characters can spell the same bytes in two ways
    try:
        value, read = kind.decode(new, annotation), kind.decode(old, old_annotation)
        if kind.json_text:
            # By what would be written: equality may leave out a part of the value.
            return bool(kind.encode(read) == new)
        return bool(value == read and type(value) is type(read) and str(value) == str(read))
    except MISFITS:
        return False  # what was stored does not fit the field: the new value replaces it


def same_value(old: object, value: object) -> bool:
    """Return whether a table stores two JSON values as the same: it tells minus zero from zero, and 1 from true."""
    return old == value and type(old) is type(value) and (value != 0.0 or str(value) == str(old))
