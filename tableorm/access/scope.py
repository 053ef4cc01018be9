"""
Scopes: key fields that have one value, say the tenant.

`ScopeRules` fills these fields in keys, queries and new entities, and refuses what has another value. That is a guard
against mistakes of a program which has all rights; against others there are tokens (`grant`), and both work together.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NoReturn

from ..connection.boundary import Boundary, Fields, Subject
from ..errors import AccessDenied, ModelError
from ..expressions import Comparison, Expression, PropertyComparison, conjuncts
from ..keys.ranges import EVERYTHING, KeyRegion
from ..models.entity import Entity, schema_of
from ..models.key import Key
from ..models.kinds import KindSet
from ..models.property_bag import PropertyBag
from ..models.schema import Schema, concrete
from ..models.state import state_of
from ..protocol.filters import Compare, Op
from ..protocol.key_range import KeyRange
from ..stores import Bounds
from .known_rows import bounds_of, derived_rows, known_rows, may_begin_within, prove_fields

__all__ = ["ScopeRules"]


class ScopeRules(Boundary):
    """
    The boundary of a scope.

    Args:
        models: Models whose keys tell which rows of their tables are in the scope, where rows have no model.
        fields: The key fields that have one value, and these values.

    Raises:
        ModelError: No field is given, a value is None, or the keys of a model do not tell which rows are in the scope.
    """

    narrows = True

    def __init__(self, models: Sequence[type[Entity]], fields: Mapping[str, Any]) -> None:
        if not fields:
            raise ModelError("scope() is refused: give the key fields and their values, as in scope(tenant='acme')")
        for name, value in fields.items():
            if value is None:
                raise ModelError(f"scope({name}=None) is refused: a key field has a value; give that of {name!r}")
        self._models, self._fields = tuple(models), dict(fields)
        self._regions: dict[str, KeyRegion] = {}
        for model in self._models:
            for schema in concrete(schema_of(model)) or [schema_of(model)]:
                self._add_region(schema)

    def __str__(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self._fields.items())

    def narrowed(self, models: Sequence[type[Entity]], fields: Mapping[str, Any]) -> "ScopeRules":
        """
        Return the rules of a scope within this one, which fixes more fields.

        Raises:
            AccessDenied: A field has another value here.
        """
        for name, value in fields.items():
            if name in self._fields and self._fields[name] != value:
                raise AccessDenied(f"scope({name}={value!r}): this scope is of {self}")
        return ScopeRules((*self._models, *models), {**self._fields, **fields})

    # Rows

    def fill(self, subject: Subject) -> None:
        """
        Give the scope's values to those fields of a new entity that are None.

        Raises:
            ModelError: The model does not have these key fields.
        """
        if isinstance(subject, Entity):
            self._require_fields(schema_of(type(subject)))
            for name, value in self._fields.items():
                if subject.__dict__.get(name) is None:
                    setattr(subject, name, value)

    def fill_key(self, schema: Schema, fields: Fields, names: AbstractSet[str] | None = None) -> dict[str, Any]:
        """
        Return key fields of a model, completed by those of the scope's values that the key has.

        Raises:
            AccessDenied: A field has another value.
            ModelError: The model does not have these key fields.
        """
        self._require_fields(schema)
        own = {name: value for name, value in self._fields.items() if names is None or name in names}
        for name, value in own.items():
            if name in fields and fields[name] != value:
                self._deny_value(schema.name, name, fields[name])
        return {**fields, **own}

    def check(self, subject: Subject | Key[Any]) -> None:
        """
        Refuse an entity, bag or key that is not in the scope.

        Raises:
            AccessDenied: It has another value of a field.
            ModelError: Its model does not have these key fields, or it has no model and the scope knows none.
        """
        if isinstance(subject, PropertyBag):
            self.check_row(None, subject.table, subject.partition_key, subject.row_key)
            return
        if isinstance(subject, Key):
            schema = None if subject.model is PropertyBag else schema_of(subject.model)
            self.check_row(schema, subject.table, subject.partition_key, subject.row_key)
            return
        schema, own = schema_of(type(subject)), subject.__dict__
        self._require_fields(schema)
        for name, value in self._fields.items():
            if name in own and own[name] != value:
                self._deny_value(schema.name, name, own[name])
        stored = state_of(subject).keys
        if stored is not None:
            self.check_row(schema, schema.table_name(), *stored)

    def check_row(self, schema: Schema | None, table: str, partition_key: str, row_key: str) -> None:
        """
        Refuse a row whose keys are not in the scope. Raises as `check`.
        """
        if schema is None:
            keys = partition_key, row_key
            if not self._region_of_table(table).holds(keys):
                raise AccessDenied(f"the row {keys} of table {table} is not of the scope {self}")
            return
        self._require_fields(schema)
        for name, value in self._fields.items():
            holder = schema.key_holders.get(name)
            if holder is None:  # of an abstract model, whose kinds may hold it
                raise ModelError(f"the key ({partition_key!r}, {row_key!r}) of {schema.name} does not tell {name!r}")
            template, member = holder
            try:
                held = template.parse(partition_key if member == "PartitionKey" else row_key)[name]
            except ValueError as error:
                raise AccessDenied(f"{schema.name} in the scope of {self}: {error}") from None
            if held != value:
                self._deny_value(schema.name, name, held)

    def holds_row(self, schema: Schema | None, table: str, partition_key: str, row_key: str) -> bool:
        """
        Return whether a row is in the scope. Raises ModelError as `check`.
        """
        try:
            self.check_row(schema, table, partition_key, row_key)
        except AccessDenied:
            return False
        return True

    def check_derived_row(self, schema: Schema | None, table: str, partition_key: str, row_key: str) -> None:
        """
        Refuse a row that a write changes besides its own, such as the entity that holds a count.

        A row in a partition that the scope has to itself is not asked for. Elsewhere the key must tell that the row is
        of the scope; but the model's own index entries and lists need not, since they are of the entity written.

        Args:
            schema: The schema of the entity that is written; None for a bag.
            table: Name of the table.
            partition_key: The PartitionKey of both.
            row_key: RowKey of the other row.

        Raises:
            AccessDenied: It is of another scope.
            ModelError: Its key does not tell.
        """
        partition = None if schema is None else schema.partition
        if partition is not None and self._fields.keys() <= partition.full_fields:
            return
        region = self._regions.get(table.lower())
        if region is not None and region.holds((partition_key, row_key)):
            return
        own = (
            []
            if schema is None
            else [each for each in derived_rows(schema) if each.parse(partition_key, row_key) is not None]
        )
        told = False
        for rows in own or known_rows(table):
            values = rows.parse(partition_key, row_key) or {}
            for name in self._fields.keys() & values.keys():
                if values[name] != self._fields[name]:
                    self._deny_value(rows.label, name, values[name])
            told = told or self._fields.keys() <= values.keys()
        if not (told or own):
            raise ModelError(
                f"the row ({partition_key!r}, {row_key!r}) of table {table}, which the write would change too, cannot "
                f"be told to be of the scope {self} by its key; write through the database itself"
            )

    def check_move(self, subject: Subject, fields: Fields) -> None:
        """
        Refuse to move an entity or bag that is not in the scope, or out of it. Raises as `check`.
        """
        self.check(subject)
        if isinstance(subject, Entity):
            self.fill_key(schema_of(type(subject)), fields)
        elif not self._region_of_table(subject.table).holds(
            (fields.get("partition_key", subject.partition_key), fields.get("row_key", subject.row_key))
        ):
            raise AccessDenied(f"move of {subject!r} to {fields} leaves the scope {self}")

    # Queries

    def narrow(self, kinds: KindSet, where: Sequence[Expression]) -> tuple[Expression, ...]:
        """
        Return the conditions that keep a query in the scope: its fields, or the keys that hold them.

        Raises:
            AccessDenied: The query asks for another value of a field.
            ModelError: A model does not have these key fields, or the models' keys hold them in different ways.
        """
        for schema in kinds.schemas:
            self._require_fields(schema)
        for term in (each for expression in where for each in conjuncts(expression)):
            if isinstance(term, Comparison) and term.op is Op.EQ:
                name = term.field.name
                if name in self._fields and self._fields[name] != term.value:
                    self._deny_value(term.field.model.__name__, name, term.value)
        base = None if kinds.bags else _common_base([schema.model for schema in kinds.schemas], self._fields)
        if base is not None:
            return tuple(getattr(base, name) == value for name, value in self._fields.items())
        regions = {region for schema in kinds.schemas if (region := self._region_of_model(schema)) is not None}
        if kinds.bags:
            regions.add(self._region_of_table(kinds.table))
        if len(regions) != 1 or not all(self._region_of_model(schema) for schema in kinds.schemas):
            names = ", ".join(schema.name for schema in kinds.schemas)
            raise ModelError(f"the keys of {names} hold {', '.join(self._fields)} in different ways; query them apart")
        (region,) = regions
        conditions = [*region.partition.conditions("PartitionKey"), *region.row.conditions("RowKey")]
        return tuple(PropertyComparison(c.property, c.op, c.constant) for c in conditions if isinstance(c, Compare))

    # Tables

    def check_whole_table(self, action: str) -> NoReturn:
        """
        Refuse an action that concerns a whole table, which may have rows of other scopes.

        Raises:
            AccessDenied: Always.
        """
        raise AccessDenied(f"{action} concerns a whole table, and this scope is of {self}; use the database itself")

    def check_range(self, what: str, schema: Schema | None, start: Fields, end: Fields, keys: KeyRange) -> None:
        """
        Refuse a range of keys that may hold rows of others: each key in it must tell that it is of the scope, by its
        partition, or, within one partition, by its RowKey.

        Raises:
            ModelError: There is not a model, some keys do not tell, or some may be those of other rows.
        """
        if schema is None:
            raise ModelError(f"{what} is refused in the scope of {self}: give a model of the table")
        assert schema.partition is not None
        assert schema.row is not None
        given = {name: value for name, value in start.items() if name in end and end[name] == value}
        partition, row = Bounds(keys.start_partition, keys.end_partition), Bounds(keys.start_row, keys.end_row)
        missing = self._fields.keys() - prove_fields(schema.partition, partition, given)
        if not missing:
            return
        refusal = f"{what} is refused in the scope of {self}: {keys} "
        if not partition.point:
            raise ModelError(
                f"{refusal}is of several partitions, whose rows may be of others; give the same "
                f"{' and '.join(map(repr, schema.partition.fields))} in start and end"
            )
        if missing - prove_fields(schema.row, row, given):
            raise ModelError(
                f"{refusal}may hold rows of others, since not all keys between two keys of the scope are of the scope; "
                f"give in start and end the same values to the fields that stand before {', '.join(missing)} in "
                f"{schema.row.text!r}"
            )
        self._refuse_other_rows(refusal, schema, row, given)

    # Refusals

    def _deny_value(self, model: str, name: str, value: object) -> NoReturn:
        raise AccessDenied(
            f"{model}.{name} is {value!r}, and this scope is of {self}; use the database itself, or the scope of "
            f"{name}={value!r}"
        )

    def _require_fields(self, schema: Schema) -> None:
        if schema.abstract:
            return  # its kinds are asked
        for name in self._fields:
            if name in schema.key_holders:
                continue
            what = "not a field of it" if name not in schema.fields else "not a key field of it"
            if name in schema.key_names:
                what = "not held by its keys in full, so that another value may have the same keys"
            raise ModelError(
                f"{schema.name} cannot be used in the scope of {self}: {name!r} is {what}; its key templates are "
                f"{schema.partition and schema.partition.text!r} and {schema.row and schema.row.text!r}"
            )

    def _refuse_other_rows(self, refusal: str, schema: Schema, row: Bounds, values: Fields) -> None:
        """
        Refuse an interval of RowKeys if it may hold rows of other models that do not tell the scope.

        Args:
            refusal: The start of the message.
            schema: A model of the table.
            row: The interval.
            values: The fields that are the same in all keys of the model there.
        """
        for rows in known_rows(schema.table_name()):
            own = rows.partition.full_fields | prove_fields(rows.row, row, values)
            if may_begin_within(rows.row, row) and not self._fields.keys() <= own:
                raise ModelError(
                    f"{refusal}may hold rows of {rows.label}, whose keys {rows.row.text!r} do not tell whose they are; "
                    "use the database itself for what concerns them"
                )

    # Rows without a model

    def _add_region(self, schema: Schema) -> None:
        self._require_fields(schema)
        region, table = self._region_of_model(schema), schema.table_name().lower()
        if region is None or self._regions.setdefault(table, region) != region:
            raise ModelError(
                f"scope({schema.name}, {self}): no range of keys in table {schema.table_name()} is just the rows of "
                "the scope, so they cannot be read without their models; leave the model out"
            )
        if region.row != EVERYTHING:
            self._refuse_other_rows(
                f"scope({schema.name}, {self}): the range of its keys ", schema, region.row, self._fields
            )

    def _region_of_model(self, schema: Schema) -> KeyRegion | None:
        """Return the range of keys that holds just the rows of a model in this scope; None if there is none."""
        if schema.partition is None or schema.row is None:
            return None
        partition, in_partition = bounds_of(schema.partition, self._fields)
        row, in_row = bounds_of(schema.row, self._fields)
        if partition is None or row is None or not self._fields.keys() <= in_partition | in_row:
            return None
        # What RowKeys begin with tells kinds apart, not scopes.
        return KeyRegion(partition, EVERYTHING if self._fields.keys() <= in_partition else row)

    def _region_of_table(self, table: str) -> KeyRegion:
        region = self._regions.get(table.lower())
        if region is None:
            raise ModelError(
                f"rows of table {table} without a model cannot be told apart in the scope of {self}; give it a model "
                f"of the table: db.scope(Model, {self})"
            )
        return region


def _common_base(models: Sequence[type[Any]], fields: Iterable[str]) -> type[Any] | None:
    """Return the class whose fields stand for those of all the models; None if there is none."""
    for base in models[0].__mro__ if models else ():
        schema = base.__dict__.get("__schema__")
        if isinstance(schema, Schema) and all(issubclass(model, base) for model in models):
            return base if all(name in schema.fields for name in fields) else None
    return None
