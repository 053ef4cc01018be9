"""
What keys prove of the fields that they are made of: for scopes, which must know whose a row or a range of rows is.

The rows of a table are known by the models that the program declares. Each of them has rows of its own, and rows that
its patterns derive from its entities, such as index entries.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import takewhile
from typing import Any
from weakref import WeakKeyDictionary

import attrs

from ..errors import TemplateError
from ..keys.bounds import Condition, Part
from ..keys.format import Format
from ..keys.formats import make_format
from ..keys.overlap import may_meet, may_share
from ..keys.ranges import KeyRegion
from ..keys.template import Template, parse_pair
from ..models.entity import Entity
from ..models.placement import PlacedRows, rows_of
from ..models.schema import Schema, descendants
from ..protocol.filters import Op
from ..stores import Bounds
from ..stores.intervals import meet


@attrs.frozen
class KnownRows:
    """
    The rows of a model, or those that one of its patterns derives.

    Args:
        label: The model, or model and pattern: "Employee.by_email".
        partition: The template of their PartitionKeys.
        row: The template of their RowKeys.
        fields: The fields of the model.
        kind: The kind that a property of theirs tells; None if there is no such property.
        own: Whether they are the entities of the model, and no rows that are derived from these.
        tracked: Whether they are entities which other rows are derived from.
    """

    label: str
    partition: Template
    row: Template
    fields: frozenset[str]
    kind: str | None
    own: bool = True
    tracked: bool = False

    def parse(self, partition_key: str, row_key: str) -> dict[str, Any] | None:
        """Return the fields that these keys hold in full; None if such rows cannot have the keys."""
        try:
            return parse_pair(self.partition, self.row, partition_key, row_key)
        except ValueError:
            return None

    def prove(self, region: KeyRegion, values: Mapping[str, Any]) -> set[str] | None:
        """
        Return which fields have the given values in each of these rows that is in a region; None if none can be there.

        Args:
            region: The region.
            values: The values that the fields may have, as in `prove_fields`.
        """
        proven: set[str] = set()
        for template, keys in ((self.partition, region.partition), (self.row, region.row)):
            if keys.point and keys.lower is not None:
                try:
                    held = template.parse(keys.lower)
                except ValueError:
                    return None
                proven |= {name for name, value in held.items() if name in values and values[name] == value}
            elif _may_begin_within(template, keys):
                proven |= prove_fields(template, keys, values)
            else:
                return None
        return proven


# What was found out of all models, with `Schema.declared` at that time. Nothing here keeps a class alive.
_ALIKE: WeakKeyDictionary[Schema, tuple[int, tuple[KnownRows, ...]]] = WeakKeyDictionary()


def known_rows(table: str) -> tuple[KnownRows, ...]:
    """Return what rows a table can have by all models that this program declares, derived rows included."""
    return _find_rows(table.lower(), Schema.declared)


@lru_cache(1_000)
def _find_rows(table: str, declared: int) -> tuple[KnownRows, ...]:
    del declared  # more models may have more rows
    models = {(s.model.__module__, s.model.__qualname__): s for s in descendants(Entity)}
    return tuple(_known(rows) for schema in models.values() for rows in rows_of(schema) if rows.may_be_in(table))


def rows_alike(schema: Schema) -> tuple[KnownRows, ...]:
    """Return the rows of other models and patterns in the table of a model that may have the keys of its entities."""
    declared = Schema.declared
    found = _ALIKE.get(schema)
    if found is None or found[0] != declared:
        partition, row = schema.templates()
        found = _ALIKE[schema] = (
            declared,
            tuple(
                rows
                for rows in known_rows(schema.table_text())
                if (rows.partition is not partition or rows.row is not row)
                and may_share(partition, rows.partition)
                and may_share(row, rows.row)
            ),
        )
    return found[1]


def find_other_owner(table: str, partition: Bounds, values: Mapping[str, Any]) -> KnownRows | None:
    """
    Return the entities of a model whose PartitionKeys tell fields, some of them within an interval with other values:
    then all rows of such a partition are of others, whatever RowKeys they have. Return None if there is no such model.

    Args:
        table: Name of the table.
        partition: The interval of PartitionKeys.
        values: The fields, and the values that are not those of others.
    """
    for rows in known_rows(table):
        told = values.keys() & rows.partition.full_fields
        proven = rows.prove(KeyRegion(partition), values) if rows.own and told else None
        if proven is not None and not told <= proven:
            return rows
    return None


def derived_rows(schema: Schema, table: str) -> Iterator[KnownRows]:
    """Yield the rows of their own that the patterns of a model have in a table."""
    for rows in rows_of(schema):
        if rows.name is not None and rows.may_be_in(table):
            yield _known(rows)


def _known(rows: PlacedRows) -> KnownRows:
    schema, own = rows.schema, rows.name is None
    told = schema.kind if schema.discriminator == "property" else None
    kind = told if own else f"{schema.kind}#{rows.name}"
    tracked = own and schema.tracked
    return KnownRows(rows.label, rows.partition, rows.row, frozenset(schema.fields), kind, own, tracked)


def bounds_of(template: Template, values: Mapping[str, Any]) -> tuple[Bounds | None, set[str]]:
    """
    Return the interval of the keys of a template in which fields have the given values.

    Args:
        template: The template.
        values: The values; fields that the template does not have are left out.

    Returns:
        The interval, None if there is no such key; and the fields that have their value in each key inside.

    Raises:
        TemplateError: A value is not of the type of its field.
    """
    conditions = [Condition(name, Op.EQ, value) for name, value in values.items() if name in template.fields]
    found = template.bounds(conditions)
    return found.bounds, {conditions[number].field for number in found.exact}


def prove_fields(template: Template, keys: Bounds, values: Mapping[str, Any]) -> set[str]:
    """
    Return which fields have the given values in each key of a template that is within an interval.

    Args:
        template: The template.
        keys: The interval.
        values: The values that the fields may have. All of them together must be what the interval says: a value that
            it does not say proves nothing.
    """
    try:
        outer, proven = bounds_of(template, values)
    except TemplateError:
        return set()
    return proven if outer is not None and meet(keys, outer) == keys else set()


def _may_begin_within(template: Template, keys: Bounds) -> bool:
    """Return whether some key of a template may be within an interval: False only if none can, True in doubt."""
    rest = make_format(str, "")
    assert isinstance(rest, Format)
    ends = zip(keys.lower or "", keys.upper or "", strict=False)
    prefix = "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], ends))
    return may_meet(template, attrs.evolve(template, parts=(Part(prefix), Part("", "rest", rest))))
