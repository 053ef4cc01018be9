"""
Placement: which rows a model and its declarations have, in which tables and under which keys.

Rows of eventual declarations may be in any table, beside those of models that know nothing of them; so they are
compared with the rows of all models that the program declares.
"""

from collections.abc import Iterator, Sequence
from weakref import WeakValueDictionary

import attrs

from ..errors import ModelError
from ..keys.overlap import may_meet, may_share, refuse_meeting
from ..keys.template import Template
from .periods import forget_periods, tables_may_meet
from .schema import DerivedSchema, Schema

# By module and name, so that a class that is declared again, in a notebook or by a reload, replaces the one before.
_declared = WeakValueDictionary[tuple[str, str], Schema]()
_staged: dict[str, tuple[Schema, ...]] = {}  # what `staged_models` has found since a model was declared


@attrs.frozen(kw_only=True)
class PlacedRows:
    """
    The rows of a model, or those that one of its declarations has.

    Args:
        label: The model, or model and declaration: "Employee.by_email".
        schema: The schema of the model.
        table: Name of their table.
        partition: The template of their PartitionKeys.
        row: The template of their RowKeys.
        name: Name of the declaration; None for the entities themselves.
        deferred: Whether they are written after their entities.
        shared: Whether a row may be that of an entity of several classes, which have the key and the declaration.
        common: Whether a row may be that of different entities of several classes, by turns.
    """

    label: str
    schema: Schema
    table: str
    partition: Template
    row: Template
    name: str | None = None
    deferred: bool = False
    shared: bool = False
    common: bool = False

    def may_be_in(self, table: str) -> bool:
        """Return whether rows may be in a table; those of a model with a table for each period are in its tables."""
        return self.table.lower() == table.lower() or (self.schema.periods is not None and self.schema.may_be_in(table))

    def may_share(self, other: "PlacedRows") -> bool:
        """Return whether a row could be one of both, or be taken for it: False only if none can, True in doubt."""
        if self.table.lower() != other.table.lower():
            return False
        told = {each.schema.discriminator for each in (self, other) if each.name is None}
        if "row_key" in told:  # of entities whose kind a key tells, by its beginning
            return may_meet(self.row, other.row)
        if "partition_key" in told:
            return may_meet(self.partition, other.partition)
        return may_share(self.partition, other.partition) and may_share(self.row, other.row)

    def is_of_same_entities(self, other: "PlacedRows") -> bool:
        """
        Return whether a row of both is that of one entity, of whichever of the two models it is.

        Classes that inherit their keys and a declaration have such rows. The row that reserves a unique value is that
        of one entity too, whatever the keys of their classes are.
        """
        mine, its = (
            [t.text for t in (*(() if rows.common else rows.schema.templates()), rows.partition, rows.row)]
            for rows in (self, other)
        )
        same = self.name == other.name and self.schema.table == other.schema.table and mine == its
        return self.shared and same and not any("{kind}" in text for text in mine)


def rows_of(schema: Schema) -> Sequence[PlacedRows]:
    """Return the rows of a concrete model, and those of its declarations."""
    return schema.placed or tuple(_rows_of(schema))


def _rows_of(schema: Schema) -> Iterator[PlacedRows]:
    partition, row = schema.templates()
    yield PlacedRows(label=schema.name, schema=schema, table=schema.table_text(), partition=partition, row=row)
    for name, derived in schema.derived.items():
        for row in derived.row_templates():
            if derived.partition is not None and derived.table is not None:
                yield PlacedRows(
                    label=derived.label,
                    schema=schema,
                    table=derived.table,
                    partition=derived.partition,
                    row=row,
                    name=name,
                    deferred=derived.deferred,
                    shared=derived.shares_rows(keys_apart=False),
                    common=derived.shares_rows(keys_apart=True),
                )


def may_share_partition(one: DerivedSchema, two: DerivedSchema) -> bool:
    """Return whether rows of two declarations could be in one partition: False only if none can, True in doubt."""
    if str(one.table).lower() != str(two.table).lower():
        return False
    return one.partition is None or two.partition is None or may_share(one.partition, two.partition)


def note_model(schema: Schema) -> None:
    """Note that the program declares a concrete model."""
    schema.placed = rows_of(schema)
    _declared[_name_of(schema)] = schema
    _staged.clear()


def forget_models(module: str) -> None:
    """Forget the models of a module that was executed to look at them, so that they hinder no others."""
    gone = [_declared.pop(name) for name in [*_declared] if name[0] == module]
    forget_periods({each.periods for each in gone} - {each.periods for each in [*_declared.values()]})
    _staged.clear()


def staged_models(names: str) -> tuple[Schema, ...]:
    """
    Return the models whose rows have to be prepared or joined where they are read.

    Args:
        names: Names of models, of their bases or of their declarations, with ", " between.
    """
    found = _staged.get(names)
    if found is None:
        wanted = {name.partition(".")[0] for name in names.split(", ")}
        staged = [schema for schema in _declared.values() if schema.staged]
        found = tuple([each for each in staged if any(base.__name__ in wanted for base in each.model.__mro__)])
        _staged[names] = found
    return found


def declared_models(schema: Schema) -> list[Schema]:
    """Return all concrete models that the program declares, with a new one among them."""
    found = dict(_declared.items())
    found[_name_of(schema)] = schema
    return list(found.values())


def _name_of(schema: Schema) -> tuple[str, str]:
    return schema.model.__module__, schema.model.__qualname__


def refuse_own_keys(label: str, schema: Schema, table: str | None, partition: Template, row: Template) -> None:
    """
    Refuse where a declaration would have its rows if these are those of the model's own entities.

    Args:
        label: The declaration, for messages.
        schema: The model.
        table: The table of the rows.
        partition: The template of their PartitionKeys.
        row: The template of their RowKeys.

    Raises:
        ModelError: They would be in the partitions of their entities, or could have the keys of entities.
    """
    own_partition, own_row = schema.templates()
    if str(table).lower() != schema.table_text().lower():
        return
    if partition.text == own_partition.text:
        raise ModelError(
            f"{label}: its rows would be in the partitions of their entities; leave out partition_key, table and "
            "consistency, and they are written in one transaction with them"
        )
    # Where a RowKey tells the kind, it does so in every partition.
    if schema.discriminator == "row_key" or may_share(partition, own_partition):
        refuse_meeting(label, row, f"{schema.name}.row_key", own_row)


def check_placement_of(schema: Schema, models: Sequence[Schema]) -> None:
    """
    Refuse a model if one of its rows could be a row of another model, and one of the two is written afterwards: then
    nobody would notice that they overwrite each other.

    Args:
        schema: The new model.
        models: All models, as `declared_models` returns them.

    Raises:
        ModelError: One could be.
    """
    mine = rows_of(schema)
    defers = any(own.deferred for own in mine)
    for other in models:
        if not defers and not any(each.deferred for each in other.derived.values()):
            continue
        if other.kind == schema.kind and other.table_text() == schema.table_text():
            continue  # itself, or what an older program declares
        for its in rows_of(other):
            for own in mine:
                refused = (own.deferred or its.deferred) and own.may_share(its)
                if refused and not own.is_of_same_entities(its):
                    raise ModelError(
                        f"{own.label}: its rows in table {its.table} could have the keys of {its.label}, "
                        f"{its.partition.text!r} and {its.row.text!r}, so that one would overwrite the other; begin "
                        "its row_key with a distinct literal, put {kind} into it, or give it another table"
                    )


def check_table_of(schema: Schema, models: Sequence[Schema]) -> None:
    """
    Refuse a model if one of its tables could have the name of another model's, and only one of them has a table for
    each period, or both have different ones: then nobody could tell by its name which rows a table has.

    Args:
        schema: The new model.
        models: All models, as `declared_models` returns them.

    Raises:
        ModelError: One could have.
    """
    own = _tables_of(schema)
    for other in models:
        if schema.periods is None and other.periods is None:
            continue
        for its in _tables_of(other):
            met = next((mine for mine in own if mine != its and tables_may_meet(mine, its)), None)
            if met is not None:
                raise ModelError(
                    f"{schema.name}: its table {met!r} could have the name of {its!r}, a table of {other.name}; give "
                    "one of them other letters to begin with"
                )


def _tables_of(schema: Schema) -> set[str]:
    derived = {each.table for each in schema.derived.values() if each.table is not None and not each.in_blobs}
    return {schema.table_text(), *derived}
