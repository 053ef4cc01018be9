"""
Kinds: which model a stored row belongs to, and how its row becomes an entity.
"""

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, cast

from ..errors import ModelError, shown
from ..keys.overlap import may_meet
from ..protocol.edm import Edm
from ..protocol.filters import And, Compare, Constant, Filter, Op, Or
from ..stores import Row, row_keys
from .derivation import IndexOf, row_schemas
from .entity import Entity, schema_of
from .marker_rows import is_marker
from .property_bag import PropertyBag, bag_of_row
from .reserved import ENTITY_TYPE, ENTITY_VERSION
from .schema import MISFITS, Schema, concrete
from .upgrades import parse_version, upgrade_row
from .visibility import live_only


def kind_of(row: Row) -> str:
    """Return the kind that a row says it is of, without the version; "" if it says none."""
    text = row.get(ENTITY_TYPE)
    return text.partition(":")[0] if isinstance(text, str) else ""


def entity_kind_of(row: Row) -> str:
    """Return the kind of the entity that a row is, or is derived from, without the version."""
    return kind_of(row).partition("#")[0]


def entry_name_of(row: Row) -> str:
    """Return the name of the declaration that a row is derived by; "" if it is not derived."""
    return kind_of(row).partition("#")[2]


class KindSet:
    """
    A set of kinds, which tells the model of each row of their table. It never changes.

    Args:
        schemas: The concrete models.
        table: Their table, or the template of the names of their tables.
        bags: Whether rows of any other kind are read too, as property bags.

    Attributes:
        names: Names of the models.
        periods: Their tables, if these are the kinds of a table for each period; None for those of one table.
        filter: The condition that every row of these kinds satisfies; None if properties do not tell the kind.
        hides: Whether entities of some of them may have rows and not count.
        uploads: Whether entities of some of them have fields with bytes in blob storage.
        home: Where entities of one of them may be beside their keys; None if they are nowhere else.
    """

    def __init__(self, schemas: tuple[Schema, ...], table: str, *, bags: bool) -> None:
        self.schemas, self.table, self.bags = schemas, table, bags
        self.names = ", ".join(schema.name for schema in schemas)
        self.hides = any(schema.expiry is not None for schema in schemas)
        self.uploads = any((schema.primary or schema).uploads for schema in schemas)
        self.periods = schemas[0].periods if "{" in table else None
        self.home = next((own for s in schemas if (own := (s.primary or s).home) is not None), None)
        told = [s for s in schemas if s.discriminator == "property" and s.kind is not None]
        self._current = {s.kind_properties[ENTITY_TYPE]: s for s in told}
        self._decoders: dict[Any, Callable[[Row], Entity]] = {
            kind: s.decode_stored if s.stages else s.decode_current for kind, s in self._current.items()
        }
        self._by_kind = {str(s.kind): s for s in told}
        self.filter: Filter | None = None
        if told and not bags and len(told) == len(schemas):
            terms = [_filter_of_kind(str(schema.kind)) for schema in told]
            self.filter = terms[0] if len(terms) == 1 else Or(tuple(terms))

    @classmethod
    def of(cls, models: Sequence[type[Any] | IndexOf[Any]], table: str | None = None) -> "KindSet":
        """
        Return the kinds of some models.

        Args:
            models: The classes; an abstract base stands for all of its kinds, an index for the kinds of its entries.
            table: Their table, where the models do not name it.

        Raises:
            ModelError: The models live in different tables, or share a kind.
        """
        schemas: list[Schema] = []
        bags = False
        for model in models:
            if model is PropertyBag:
                bags = True
                continue
            found: Sequence[Schema] = row_schemas(model) if isinstance(model, IndexOf) else concrete(schema_of(model))
            if not found:
                raise ModelError(
                    f"{model.__name__} is abstract and has no concrete classes yet; import or declare them"
                )
            schemas += [schema for schema in found if schema not in schemas]
        tables = {table if table and schema.may_be_in(table) else schema.table_text() for schema in schemas}
        primaries = {schema.primary.table_text() for schema in schemas if schema.primary is not None}
        if len(primaries) > 1:
            raise ModelError(
                f"the index is of classes in {len(primaries)} tables, {', '.join(sorted(primaries))}: query the "
                "index of each class"
            )
        if table:
            tables.add(table)
        if not tables:
            raise ModelError(
                "a PropertyBag by itself names no table; add a model of the table: db.select(Model, PropertyBag)"
            )
        if len(tables) != 1:
            names = ", ".join(f"{s.name} in {s.table}" for s in schemas)
            raise ModelError(f"one query reads one table, these are in {len(tables)}: {names}")
        _refuse_overlaps(schemas)
        refuse_same_kinds(schemas)
        return cls(tuple(schemas), tables.pop(), bags=bags)

    @classmethod
    def alone(cls, schema: Schema) -> "KindSet":
        """Return the one kind of a model, or of what is derived from its entities."""
        return cls((schema,), schema.table_name(), bags=False)

    def load_all(self, rows: Sequence[Row]) -> list[Entity | PropertyBag]:
        """
        Return the entities of rows, in order, without rows of other kinds, and without entities that do not count.
        Raises what `load` raises.
        """
        decoders, slow = self._decoders, self.load
        entities: list[Entity | PropertyBag] = []
        add = entities.append
        for row in rows:
            try:
                decode = decoders.get(row.get(ENTITY_TYPE, ""))
                if decode is not None:
                    add(decode(row))
                    continue
            except MISFITS:
                pass  # once more, to say what is wrong
            entity = slow(row)
            if entity is not None:
                add(entity)
        return live_only(entities) if self.hides else entities

    def load(self, row: Row) -> Entity | PropertyBag | None:
        """
        Return the entity of a row, upgraded if it is old, and whether it counts or not; None if the row is of
        another kind.

        Raises:
            DecodeError: The row is of one of the kinds and does not fit its model.
        """
        try:
            decode = self._decoders.get(row.get(ENTITY_TYPE, ""))
            if decode is not None:
                return decode(row)
        except MISFITS:
            pass  # once more, to say what is wrong
        found = self.resolve(row)
        if found is None:
            return bag_of_row(self.table, row) if self.bags else None
        schema, version = found
        if version >= schema.version:
            return cast("Entity", schema.decode_stored(row))
        if schema.primary is not None:
            return cast("Entity", row)  # an upgrade may need the keys, and any property
        return cast("Entity", upgrade_row(schema, version, self.table, schema.unseal(row)))

    def derives(self, row: Row) -> bool:
        """
        Return whether a row is a marker row, or is derived from entities of these kinds: an index entry, or a row of an
        index list.
        """
        kind, mark, _ = str(row.get(ENTITY_TYPE, "")).partition("#")
        return bool(mark) and (is_marker(row) or any(schema.kind == kind for schema in self.schemas))

    def schema_of_row(self, row: Row) -> Schema | None:
        """Return the model of a row; None if the row is of another kind."""
        found = self.resolve(row)
        return None if found is None else found[0]

    def resolve(self, row: Row) -> tuple[Schema, int] | None:
        """
        Return the model and the version of a row; None if the row is of another kind.

        Raises:
            DecodeError: What the row says of its version is not a version.
        """
        stored = row.get(ENTITY_TYPE)
        if isinstance(stored, str):
            current = self._current.get(stored)
            if current is not None:
                return current, current.version
            kind, colon, number = stored.partition(":")
            schema = self._by_kind.get(kind)
            if schema is not None:
                return schema, parse_version(schema, row, number) if colon else 1
            if "#" in kind and is_marker(row):
                return None
        for schema in self.schemas:
            if schema.kind is None or schema.discriminator == "property":
                continue
            if callable(schema.discriminator):
                try:
                    found = schema.discriminator(bag_of_row(self.table, row))
                except Exception as error:
                    error.add_note(f"while {schema.name} told the kind of {row['PartitionKey'], row['RowKey']}")
                    raise
                if found is not schema.model:
                    continue
            else:
                template, member = (
                    (schema.row, "RowKey") if schema.discriminator == "row_key" else (schema.partition, "PartitionKey")
                )
                if template is None or not template.leads(row[member]):
                    continue
            stored = row.get(ENTITY_VERSION)
            return schema, 1 if stored is None else parse_version(schema, row, stored)
        anything = next((schema for schema in self.schemas if schema.kind is None), None)
        if anything is None:
            return None
        if self.bags:
            keys = zip(anything.templates(), row_keys(row), strict=True)
            if not all(template.match(key) for template, key in keys):
                return None
        return anything, anything.version


def refuse_same_kinds(schemas: Sequence[Schema]) -> None:
    """
    Refuse models of one table whose rows say that they are of one kind, so that nobody can tell the rows apart.

    Raises:
        ModelError: Two are.
    """
    for one, two in combinations(schemas, 2):
        told = "property" in (one.discriminator, two.discriminator)
        if one.table == two.table and one.kind == two.kind and told:
            raise ModelError(
                f"{one.name} and {two.name} both have the kind {one.kind!r} in table {one.table}, so that their rows "
                f'cannot be told apart; give one of them another: class {two.name}(Entity, kind="...", ...)'
            )


class UsedModels:
    """
    The models that an open database was used with so far. Two of a table may be of one kind only if one row can be of
    both, as where an older program and a newer one declare it.

    Attributes:
        known: Their schemas, those of what is derived from their entities, and None, which stands for no model.
    """

    def __init__(self) -> None:
        self.known: set[Schema | None] = {None}
        self._by_class: dict[tuple[str, str], Schema] = {}

    def add(self, *schemas: Schema | None) -> None:
        """
        Add the models of schemas.

        Raises:
            ModelError: One has the kind of another model in the same table, and keys that the other cannot have; or
                declares a relation that does not fit.
        """
        for schema in schemas:
            if schema is None or schema in self.known:
                continue
            own = schema.primary or schema
            # A class that was declared again, in a notebook or by a reload, replaces the one before.
            name = own.model.__module__, own.model.__qualname__
            for other, known in self._by_class.items():
                pairs = zip(own.templates(), known.templates(), strict=True)
                if own.kind is not None and other != name and not all(may_meet(mine, theirs) for mine, theirs in pairs):
                    refuse_same_kinds([known, own])
            for relation in own.relations:
                relation.check_used(own)
            self._by_class[name] = own
            self.known.add(schema)


def _refuse_overlaps(schemas: Sequence[Schema]) -> None:
    """Refuse models that their keys have to tell apart, if some key could be of two of them."""
    for which in ("row", "partition"):
        told = [s for s in schemas if s.discriminator == f"{which}_key" and s.kind is not None]
        for one, two in combinations(told, 2):
            mine, theirs = getattr(one, which), getattr(two, which)
            if mine is not None and theirs is not None and may_meet(mine, theirs):
                raise ModelError(
                    f"{one.name} and {two.name} cannot be told apart by {which}_key: a key can be of {mine.text!r} and "
                    f"of {theirs.text!r}; query them separately, or begin their keys with different literals"
                )


def _filter_of_kind(kind: str) -> Filter:
    """Return the filter for a kind with any version: `EntityType` is `Employee`, or from `Employee:` to `Employee;`."""
    return Or((_compare(Op.EQ, kind), filter_of_kinds(kind + ":", kind + ";")))


def filter_of_kinds(low: str, high: str) -> Filter:
    """Return the filter for the kinds, with their versions, from a text on, and before another one."""
    return And((_compare(Op.GE, low), _compare(Op.LT, high)))


def _compare(op: Op, kind: str) -> Compare:
    return Compare(ENTITY_TYPE, op, Constant(Edm.STRING, kind))


def describe_kind(row: Row) -> str:
    """Return what a row says of its kind, for messages."""
    stored = row.get(ENTITY_TYPE)
    return f"kind {shown(stored)}" if stored is not None else "no kind"
