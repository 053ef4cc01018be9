"""
Scopes: key fields that have one value, say the tenant.

`ScopeRules` fills these fields in keys, queries and new entities, and refuses what has another value. That is a guard
against mistakes of a program which has all rights; against others there are tokens (`grant`), and both work together.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NoReturn

from ..connection.boundary import Boundary, Fields, Subject
from ..errors import AccessDenied, ModelError
from ..expressions import Comparison, Expression, PropertyComparison, conjuncts
from ..keys.ranges import EVERYTHING, KeyRegion
from ..keys.template import Template
from ..models.entity import Entity, schema_of
from ..models.inheritance import common_base
from ..models.key import Key
from ..models.kinds import KindSet, entity_kind_of
from ..models.marker_rows import MARKER_HEADS, is_marker
from ..models.property_bag import PropertyBag
from ..models.reserved import MANIFEST, MOVE
from ..models.schema import Schema, concrete
from ..models.state import state_of
from ..protocol.filters import Compare, Op
from ..protocol.key_range import KeyRange
from ..stores import Bounds, RowAddress
from .known_rows import KnownRows, bounds_of, derived_rows, find_other_owner, known_rows, prove_fields, rows_alike


class ScopeRules(Boundary):
    """
    The boundary of a scope.

    Args:
        models: Models whose keys determine which rows of their tables are in the scope, where rows have no model.
        fields: The key fields that have one value, and these values.

    Raises:
        ModelError: No field is given, a value is None, or the keys of a model do not tell which rows are in the scope.
    """

    narrows = True

    def __init__(self, models: Sequence[type[Entity]], fields: Mapping[str, Any]) -> None:
        if not fields:
            raise ModelError("scope() is rejected: give the key fields and their values, as in scope(tenant='acme')")
        for name, value in fields.items():
            if value is None:
                raise ModelError(f"scope({name}=None) is rejected: a key field has a value; give that of {name!r}")
        self._models, self._fields = tuple(models), dict(fields)
        self._declared, self._regions = Schema.declared, self._find_regions()

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
            self.check_row(None, RowAddress.of(subject))
            return
        if isinstance(subject, Key):
            schema = None if subject.model is PropertyBag else schema_of(subject.model)
            self.check_row(schema, RowAddress.of(subject))
            return
        schema, own = schema_of(type(subject)), subject.__dict__
        self._require_fields(schema)
        for name, value in self._fields.items():
            if name in own and own[name] != value:
                self._deny_value(schema.name, name, own[name])
        stored = state_of(subject).keys
        if stored is not None:
            self.check_row(schema, RowAddress(schema.table_of(*stored), *stored))

    def check_bag(self, bag: PropertyBag, *, merged: bool) -> None:
        """
        Refuse to write a bag of a model that rows are derived from: nothing checks whose rows the bag refers to, and an
        audit would derive them. Refuse one that says the kind of a model and has keys that the model cannot have:
        whoever reads entities of the model may meet it, by one of its keys, in the partitions of another tenant.

        Args:
            bag: The bag.
            merged: Whether but some of its properties are sent.

        Raises:
            ModelError: It has the kind of such a model, or of rows that are derived from it; or it has the key of one,
                and does not tell a kind; or it has the kind of another model, and not its keys; or it is a marker row,
                which tells others what to do.
        """
        if is_marker(bag.row) or bag.row_key.startswith(tuple(MARKER_HEADS)):
            raise ModelError(
                f"{bag!r} is rejected in the scope of {self}: it is a marker row, which keeps the state of a "
                "change of several partitions, or a change feed; write the entity itself"
            )
        bound = next((name for name in (MANIFEST, MOVE) if name in bag.row), None)
        if bound is not None:
            raise ModelError(
                f"{bag!r} is rejected in the scope of {self}: its property {bound!r} says what is derived from "
                "the row, which may be rows of others; write it through its model"
            )
        kind = entity_kind_of(bag.row)
        for rows in known_rows(bag.table):
            if not rows.own:
                continue
            of_kind = bool(kind) and kind == rows.kind
            has_keys = rows.parse(bag.partition_key, bag.row_key) is not None
            by_key = merged or not kind or rows.kind is None
            if rows.tracked and (of_kind or (by_key and has_keys)):
                raise ModelError(
                    f"{bag!r} is rejected in the scope of {self}: rows are derived from {rows.label}, which a "
                    "bag cannot keep right, and which may be those of others; write it through its model"
                )
            if of_kind and not has_keys:
                raise ModelError(
                    f"{bag!r} is rejected in the scope of {self}: it says to be of {rows.label}, whose keys are "
                    f"{rows.partition.text!r} and {rows.row.text!r}, and has other keys; write it through its model, "
                    "or give it another kind"
                )

    def check_row(self, schema: Schema | None, address: RowAddress) -> None:
        """
        Refuse a row whose keys are not in the scope. Raises as `check`.
        """
        keys = address.partition_key, address.row_key
        if schema is None:
            if not self._region_of_table(address.table).holds(keys):
                raise AccessDenied(f"the row {address} is not of the scope {self}")
            return
        self._require_fields(schema)
        if not schema.may_be_in(address.table):
            raise AccessDenied(
                f"the row {address} cannot be shown to belong to the scope {self}: {schema.name} is in table "
                f"{schema.table}"
            )
        for name in self._fields.keys() - schema.key_holders.keys():  # of an abstract model, whose kinds may hold it
            raise ModelError(f"the key {keys} of {schema.name} does not tell {name!r}")
        # Both keys must be of the model: with a RowKey of another model the partition may be that of another scope.
        for template, key in zip(schema.templates(), keys, strict=True):
            try:
                held = template.parse(key)
            except ValueError as error:
                raise AccessDenied(f"{schema.name} in the scope of {self}: {error}") from None
            for name, value in self._fields.items():
                if held.get(name, value) != value:
                    self._deny_value(schema.name, name, held[name])
        for rows in rows_alike(schema):
            self._refuse_rows_of_others(rows, keys)

    def holds_row(self, schema: Schema | None, address: RowAddress) -> bool:
        """
        Return whether a row is in the scope. Raises ModelError as `check`.
        """
        try:
            self.check_row(schema, address)
        except AccessDenied:
            return False
        return True

    def holds_partition(self, schema: Schema, partition_key: str) -> bool:
        """Return whether a partition of a model is the scope's own."""
        return self._is_of_own_partition(schema.partition, partition_key)

    def check_derived_row(self, schema: Schema | None, address: RowAddress) -> bool:
        """
        Refuse a row that a write changes besides its own, such as the entity that holds a count.

        No model may say that the row is of others. Where the scope does not have the partition to itself, the key must
        tell that the row is of the scope; but the model's own index entries and lists need not, since they are of the
        entity written.

        Args:
            schema: The schema of the entity that is written; None for a bag.
            address: Where the other row is, in the partition of the entity or another one.

        Returns:
            Whether the key tells that the row is of the scope.

        Raises:
            AccessDenied: It is of another scope.
            ModelError: Its key does not tell.
        """
        table, keys = address.table, (address.partition_key, address.row_key)
        region = self._find_region(table)
        if region is not None and region.holds(keys):
            return True
        derived = () if schema is None else derived_rows(schema, table)
        own = [rows.label for rows in derived if rows.parse(*keys) is not None]
        partition = None if schema is None or not schema.may_be_in(table) else schema.partition
        told = alone = self._is_of_own_partition(partition, address.partition_key)
        for rows in known_rows(table):
            if not (alone and self._holds_alike(partition, rows)):
                told = self._refuse_rows_of_others(rows, keys, own=rows.label in own) or told
        if not (told or own):
            raise ModelError(
                f"the row {address}, which the write would change too, cannot be shown to belong to the scope {self} "
                "by its key; write through the database itself"
            )
        return told

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
            self._refuse_rows_without_kind(schema)
        for term in conjuncts(where):
            if isinstance(term, Comparison) and term.op is Op.EQ:
                name = term.field.name
                if name in self._fields and self._fields[name] != term.value:
                    self._deny_value(term.field.model.__name__, name, term.value)
        base = None if kinds.bags else common_base([schema.model for schema in kinds.schemas], self._fields)
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
            raise ModelError(f"{what} is rejected in the scope of {self}: give a model of the table")
        own_partition, own_row = schema.templates()
        given = {name: value for name, value in start.items() if name in end and end[name] == value}
        partition, row = Bounds(keys.start_partition, keys.end_partition), Bounds(keys.start_row, keys.end_row)
        missing = self._fields.keys() - prove_fields(own_partition, partition, given)
        refusal = f"{what} is rejected in the scope of {self}: {keys} "
        region = KeyRegion(partition, row if partition.point else EVERYTHING)
        if not missing:
            self._refuse_other_rows(refusal, schema, region, given, fields_only=True)
            return
        if not partition.point:
            raise ModelError(
                f"{refusal}is of several partitions, whose rows may be of others; give the same "
                f"{' and '.join(map(repr, own_partition.fields))} in start and end"
            )
        if missing - prove_fields(own_row, row, given):
            raise ModelError(
                f"{refusal}may hold rows of others, since not all keys between two keys of the scope are of the scope; "
                f"give in start and end the same values to the fields that stand before {', '.join(missing)} in "
                f"{own_row.text!r}"
            )
        self._refuse_other_rows(refusal, schema, region, given)

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

    def _is_held_by(self, partition: Template | None) -> bool:
        """Return whether PartitionKeys tell all fields of the scope, so that it has partitions to itself."""
        return partition is not None and self._fields.keys() <= partition.full_fields

    def _is_of_own_partition(self, partition: Template | None, partition_key: str) -> bool:
        """Return whether a PartitionKey is of a template which tells all fields of the scope, and tells its values."""
        if partition is None or not self._is_held_by(partition):
            return False
        try:
            return self._fields.items() <= partition.parse(partition_key).items()
        except ValueError:
            return False

    def _holds_alike(self, partition: Template | None, rows: KnownRows) -> bool:
        """Return whether rows in a partition of the scope's own are the scope's too, by the same template."""
        return partition is not None and rows.partition.text == partition.text and self._is_held_by(partition)

    def _refuse_rows_of_others(self, rows: KnownRows, keys: tuple[str, str], *, own: bool = False) -> bool:
        """
        Refuse keys if a model or pattern says that they are those of a row of others.

        Args:
            rows: The rows of the model or pattern.
            keys: The PartitionKey and RowKey.
            own: Whether its keys need not tell, since the row is derived from an entity of the scope.

        Returns:
            Whether it says that they are those of a row of the scope.

        Raises:
            AccessDenied: It says that a field of the scope has another value.
            ModelError: It has a field of the scope, and its keys do not tell the value.
        """
        names = self._fields.keys() & rows.fields
        values = rows.parse(*keys) if names else None
        if values is None:
            return False
        for name in names:
            if name in values and values[name] != self._fields[name]:
                self._deny_value(rows.label, name, values[name])
            if name not in values and not own:
                raise ModelError(
                    f"the row {keys} is rejected in the scope of {self}: it may be of {rows.label} too, whose keys "
                    f"{rows.partition.text!r} and {rows.row.text!r} do not tell {name!r}; use the database itself"
                )
        return self._fields.keys() <= values.keys()

    def _refuse_rows_without_kind(self, schema: Schema) -> None:
        """Refuse to query a model where rows of others may be taken for its entities, since no property tells kinds."""
        told = schema.discriminator == "property" and schema.kind is not None
        alike = [rows for rows in rows_alike(schema) if not told or rows.kind in (None, schema.kind)]
        if alike:
            region = self._region_of_model(schema) or KeyRegion()
            refusal = f"select({schema.name}) is rejected in the scope of {self}: the range of its keys "
            self._refuse_other_rows(refusal, schema, region, self._fields, fields_only=True, among=alike)

    def _refuse_other_rows(
        self,
        refusal: str,
        schema: Schema,
        region: KeyRegion,
        values: Fields,
        *,
        fields_only: bool = False,
        among: Iterable[KnownRows] | None = None,
    ) -> None:
        """
        Refuse a region of a table if it may hold rows of other models that do not tell the scope, or another one.

        Args:
            refusal: The start of the message.
            schema: A model of the table.
            region: The region.
            values: The fields that are the same in all keys of the model there.
            fields_only: Whether rows of models that do not have the scope's fields may be there, as in a partition of
                its own.
            among: The rows that count; None for all of the table.
        """
        for rows in known_rows(schema.table_text()) if among is None else among:
            if fields_only and self._holds_alike(schema.partition, rows):
                continue
            needed = self._fields.keys() & rows.fields if fields_only else self._fields.keys()
            proven = rows.prove(region, values) if needed else None
            if proven is not None and not needed <= proven:
                raise ModelError(
                    f"{refusal}may hold rows of {rows.label}, whose keys {rows.row.text!r} do not tell whose they are; "
                    "use the database itself for what concerns them"
                )

    # Rows without a model

    def _find_regions(self) -> dict[str, KeyRegion]:
        """Return the ranges of keys, by table or template of names, of just the scope's rows. Raises ModelError."""
        regions: dict[str, KeyRegion] = {}
        for schema in self._schemas():
            self._require_fields(schema)
            region, table = self._region_of_model(schema), schema.table_text().lower()
            if region is None or regions.setdefault(table, region) != region:
                raise ModelError(
                    f"scope({schema.name}, {self}): no range of keys in table {schema.table_text()} is just the "
                    "rows of the scope, so they cannot be read without their models; leave the model out"
                )
            refusal = f"scope({schema.name}, {self}): the range of its keys "
            whole = region.row == EVERYTHING
            self._refuse_other_rows(refusal, schema, region, self._fields, fields_only=whole)
            rows = None if whole else find_other_owner(schema.table_text(), region.partition, self._fields)
            if rows is not None:
                raise ModelError(
                    f"{refusal}may be in partitions {rows.partition.text!r} of {rows.label}, in which all rows are of "
                    "one scope, whatever their RowKeys are; leave the model out"
                )
        return regions

    def _schemas(self) -> Iterator[Schema]:
        """Yield the schemas of the models of the scope, those of the kinds of an abstract one."""
        for model in self._models:
            yield from concrete(schema_of(model)) or [schema_of(model)]

    def _current_regions(self) -> dict[str, KeyRegion]:
        """Return the regions, looked at anew if models were declared since. Raises ModelError."""
        declared = Schema.declared
        if self._declared != declared:
            self._regions = self._find_regions()
            self._declared = declared
        return self._regions

    def _region_of_model(self, schema: Schema) -> KeyRegion | None:
        """Return the range of keys that holds just the rows of a model in this scope; None if there is none."""
        if schema.partition is None or schema.row is None:
            return None
        partition, in_partition = bounds_of(schema.partition, self._fields)
        row, in_row = bounds_of(schema.row, self._fields)
        if partition is None or row is None or not self._fields.keys() <= in_partition | in_row:
            return None
        # A key that tells a field, but not by a range, would let rows in whose keys say different values of it.
        told = schema.partition.full_fields - in_partition | schema.row.full_fields - in_row
        if told & self._fields.keys():
            return None
        # What RowKeys begin with tells kinds apart, not scopes.
        return KeyRegion(partition, EVERYTHING if self._fields.keys() <= in_partition else row)

    def _find_region(self, table: str) -> KeyRegion | None:
        """Return the region of a table, which may be that of a period; None if no model of the scope has the table."""
        regions = self._current_regions()
        found = regions.get(table.lower())
        if found is None:
            schema = next((each for each in self._schemas() if each.may_be_in(table)), None)
            found = None if schema is None else regions[schema.table_text().lower()]
        return found

    def _region_of_table(self, table: str) -> KeyRegion:
        region = self._find_region(table)
        if region is None:
            raise ModelError(
                f"rows of table {table} without a model cannot be told apart in the scope of {self}; give it a model "
                f"of the table: db.scope(Model, {self})"
            )
        return region
