"""
Ranges of keys that are given as key fields, for grants.

Pure functions over `Schema`. A bound is a whole key, or its first fields, for all keys that begin with them.
"""

from collections.abc import Mapping
from typing import Any

import attrs

from ..errors import ModelError
from ..keys.bounds import Condition, Part
from ..keys.format import Order
from ..keys.template import Template
from ..models.schema import Schema
from ..protocol.edm import utf16_key
from ..protocol.filters import Op
from ..protocol.key_range import KeyRange


def raw_keys_between(what: str, start: Mapping[str, Any], end: Mapping[str, Any]) -> KeyRange:
    """
    Return the range from one PartitionKey, or PartitionKey and RowKey, to another.

    Args:
        what: What the range is for, for messages.
        start: The first key; empty for no bound.
        end: The last key; empty for no bound.

    Raises:
        ModelError: A name is neither PartitionKey nor RowKey, a key is not a text, or the range is empty.
    """
    for side in (start, end):
        odd = [name for name in side if name not in ("PartitionKey", "RowKey")]
        if odd:
            raise ModelError(f"{what}: {odd[0]!r} is rejected; with the name of a table give PartitionKey and RowKey")
        for name, key in side.items():
            # None would mean no bound: a token for the whole table, where a key was missing by mistake.
            if not isinstance(key, str):
                raise ModelError(f"{what}: {name}={key!r} is rejected; give the text of a key, or leave it out")
    try:
        keys = KeyRange(
            start_partition=start.get("PartitionKey"),
            start_row=start.get("RowKey"),
            end_partition=end.get("PartitionKey"),
            end_row=end.get("RowKey"),
        )
    except ValueError as error:
        raise ModelError(f"{what} is rejected: {error}") from None
    _require_rows(what, keys)
    return keys


def _require_rows(what: str, keys: KeyRange) -> None:
    if keys.empty:
        raise ModelError(
            f"{what} is rejected: {keys} holds no row, since the end comes before the start in the order of keys; "
            "formats such as ticks_desc reverse that order"
        )


def keys_between(schema: Schema, start: Mapping[str, Any], end: Mapping[str, Any]) -> KeyRange:
    """
    Return the range of keys from some key fields to others.

    Args:
        schema: The schema of the model.
        start: The first key: all key fields, or the first ones for all keys that begin with them; empty for no bound.
        end: The last key, given as `start` is.

    Raises:
        ModelError: A field is not a key field, or one before it is missing; or keys do not sort as its values do.
        TemplateError: A value does not fit its key.
    """
    what = f"grant({schema.name})"
    if not start and not end:
        return KeyRange()
    partition, row = schema.partition, schema.row
    if partition is None or row is None:
        raise ModelError(f"{what}: the model is abstract and has no keys of its own; give one of its concrete classes")
    for name, side in (("start", start), ("end", end)):
        _check_leading(f"{what}: {name}", schema, side)
    _check_order(what, schema, start, end)
    first, last = _edge(partition, row, start, last=False), _edge(partition, row, end, last=True)
    keys = KeyRange(start_partition=first[0], start_row=first[1], end_partition=last[0], end_row=last[1])
    of_kind = "{kind}" in partition.text or ("{kind}" in row.text and (first[1] is not None or last[1] is not None))
    if schema.abstract and of_kind:
        raise ModelError(f"{what}: the kinds of the model have keys of their own; give one of its concrete classes")
    _require_rows(what, keys)
    return keys


def table_between(schema: Schema, start: Mapping[str, Any], end: Mapping[str, Any]) -> str:
    """
    Return the name of the table that the keys from some key fields to others are in.

    Args:
        schema: The schema of the model.
        start: The first key, which fits the model.
        end: The last key, given as `start` is.

    Raises:
        ModelError: The model has a table for each period, and the keys are not those of one.
    """
    periods = schema.periods
    if periods is None:
        return schema.table_name()
    names = {periods.name_of(side[periods.field]) for side in (start, end) if periods.field in side}
    if len(names) != 1:
        raise ModelError(
            f"grant({schema.name}) is rejected: a token opens one table, and each period has its own; give the "
            f"{periods.field!r} of one period in start and end, or the name of a table"
        )
    return names.pop()


def _check_leading(what: str, schema: Schema, side: Mapping[str, Any]) -> None:
    names = schema.key_fields
    for name in side:
        if name not in names:
            raise ModelError(f"{what} has {name!r}, which is not a key field; key fields are {', '.join(names)}")
    missing = [name for name in names if name not in side]
    later = [name for name in side if missing and names.index(name) > names.index(missing[0])]
    if later:
        raise ModelError(
            f"{what} has {later[0]!r} without {missing[0]!r}, which stands before it in the key; key fields are "
            f"{', '.join(names)}, in that order"
        )


def _check_order(what: str, schema: Schema, start: Mapping[str, Any], end: Mapping[str, Any]) -> None:
    """Refuse a bound on a field whose keys do not sort as its values do, unless it is equal in both bounds."""
    equal = True
    for name, part in _fields(schema):
        equal = equal and name in start and name in end and start[name] == end[name]
        if (name in start or name in end) and not equal and part.format.order is Order.NONE:
            raise ModelError(
                f"{what}: keys do not sort as values of {name!r} do in its format {part.format.text!r}, so there is no "
                f"range of them; give the same {name!r} in start and end"
            )


def _fields(schema: Schema) -> list[tuple[str, Part]]:
    """Return the fields of the keys and their parts, in order; a field that stands there twice comes twice."""
    templates = [template for template in (schema.partition, schema.row) if template is not None]
    return [(part.field, part) for template in templates for part in template.parts if part.field is not None]


def _edge(
    partition: Template, row: Template, fields: Mapping[str, Any], *, last: bool
) -> tuple[str | None, str | None]:
    """Return the first or the last key of all that have these fields; a RowKey of None is the whole partition."""
    if not fields:
        return None, None
    if any(name not in fields for name in partition.fields):
        return _edge_of_prefix(partition, fields, last=last), None
    partition_key = partition.format(fields)
    if all(name in fields for name in row.fields):
        return partition_key, row.format(fields)
    return partition_key, (_edge_of_prefix(row, fields, last=last) if next(iter(row.fields)) in fields else None)


def _edge_of_prefix(template: Template, fields: Mapping[str, Any], *, last: bool) -> str:
    """Return the first or the last of the keys that begin with these fields."""
    count = next(n for n, part in enumerate(template.parts) if part.field is not None and part.field not in fields)
    given = {part.field: fields[part.field] for part in template.parts[:count] if part.field is not None}
    conditions = [Condition(name, Op.EQ, value) for name, value in given.items()]
    exact = template.bounds(conditions).exact
    inexact = [
        condition.field
        for n, condition in enumerate(conditions)
        if n not in exact and (form := template.full_format(condition.field)) is not None and form.full
    ]
    if inexact:
        raise ModelError(
            f"grant({template.model}): keys of the template {template.text!r} that begin with {inexact[0]!r}="
            f"{given[inexact[0]]!r} may be those of a longer value too; give the fields after it as well"
        )
    prefix = attrs.evolve(template, parts=template.parts[:count]).format(given)
    return prefix + "".join(_last_rest(template, count)) if last else prefix


def _last_rest(template: Template, count: int) -> list[str]:
    """Return the last text, in parts, that the rest of a template can make."""
    texts: list[str] = []
    for part in template.parts[count:]:
        if part.format.atoms is None:
            # Its length varies; only texts that begin with this character sort after it.
            return [*texts, "\uffff"]
        texts += [max(characters, key=utf16_key) for characters in part.format.atoms]
    return texts
