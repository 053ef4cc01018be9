"""
Kinds and versions: which model a stored row is of, and how an old one becomes current.
"""

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, cast

import attrs

from ..errors import ModelError
from ..keys.overlap import may_meet
from ..keys.ranges import EVERYTHING, hull
from ..protocol.edm import Edm
from ..protocol.filters import And, Compare, Constant, Filter, Op, Or
from ..queries.planning.recipe_cache import Kept
from ..stores import Bounds, Row
from .derivation import RowsOf
from .entity import schema_of
from .property_bag import PropertyBag
from .reserved import ENTITY_TYPE, ENTITY_VERSION
from .schema import MISFITS, Schema, concrete
from .upgrades import parse_version, upgrade_row

if TYPE_CHECKING:
    from ..queries.planning.planner import PreparedPlan
    from .entity import Entity

__all__ = ["KindSet", "describe_kind"]

# How much of the planner's recipes is kept, about a kilobyte each: one for each alternative and each of its terms.
_RECIPES = 4_000


@attrs.frozen(eq=False)
class KindSet:
    """
    The kinds that a query or a point read asks for.

    Args:
        schemas: The concrete models.
        table: Their table.
        bags: Whether rows of any other kind come too, as property bags.
        own_fields: Of a single kind, its fields by the identity of the expressions that stand for them on the class:
            what the planner knows without asking.
        point_shape: The key fields among them.
        recipes: What the planner knows of the queries of a shape.
        rows: The RowKeys that rows of these kinds can have.
        filter: The condition that a row of these kinds satisfies, as far as properties tell; None if they do not.
    """

    schemas: tuple[Schema, ...]
    table: str
    bags: bool
    _current: dict[str, Schema] = attrs.field(init=False)
    _decoders: "dict[str, Callable[[Row], Entity]]" = attrs.field(init=False)
    _by_kind: dict[str, Schema] = attrs.field(init=False)
    _parts: "dict[tuple[Schema | None, ...], KindSet]" = attrs.field(init=False)
    filter: Filter | None = attrs.field(init=False)
    rows: Bounds = attrs.field(init=False)
    own_fields: dict[int, str] = attrs.field(init=False)
    point_shape: dict[int, str] = attrs.field(init=False)
    recipes: "Kept[PreparedPlan]" = attrs.field(init=False, factory=lambda: Kept(_RECIPES))

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "filter", self._filter())
        object.__setattr__(self, "_parts", {})
        rows = [EVERYTHING if s.row is None else s.row.bounds([]).bounds or EVERYTHING for s in self.schemas]
        object.__setattr__(self, "rows", EVERYTHING if self.bags or not rows else hull(rows))
        one = self.schemas[0] if len(self.schemas) == 1 and not self.bags else None
        own = {} if one is None or one.abstract else {id(getattr(one.model, name)): name for name in one.fields}
        keys = () if one is None else one.key_names
        object.__setattr__(self, "own_fields", own)
        object.__setattr__(self, "point_shape", {number: name for number, name in own.items() if name in keys})
        by_property = [s for s in self.schemas if s.discriminator == "property" and s.kind is not None]
        object.__setattr__(self, "_current", {s.kind_properties[ENTITY_TYPE]: s for s in by_property})
        object.__setattr__(self, "_decoders", {s.kind_properties[ENTITY_TYPE]: s.decode_current for s in by_property})
        object.__setattr__(self, "_by_kind", {str(s.kind): s for s in by_property})

    @classmethod
    def of(cls, models: "Sequence[type[Any] | RowsOf[Any]]", table: str | None = None) -> "KindSet":
        """
        The kinds of these classes; an abstract base stands for all of its kinds. Of an index they are those of its
        copies.

        Raises:
            ModelError: They live in different tables, or share a kind.
        """
        schemas: list[Schema] = []
        bags = False
        for model in models:
            if model is PropertyBag:
                bags = True
                continue
            found: Sequence[Schema] = model.schemas if isinstance(model, RowsOf) else concrete(schema_of(model))
            if not found:
                raise ModelError(
                    f"{model.__name__} is abstract and has no concrete classes yet; import or declare them"
                )
            schemas += [schema for schema in found if schema not in schemas]
        tables: set[str] = {schema.table_name() for schema in schemas}
        if table:
            tables.add(table)
        if not tables:
            raise ModelError(
                "a PropertyBag alone names no table; give a model of the table beside it: db.select(Model, PropertyBag)"
            )
        if len(tables) != 1:
            names = ", ".join(f"{s.name} in {s.table}" for s in schemas)
            raise ModelError(f"one query reads one table, these are in {len(tables)}: {names}")
        _refuse_overlaps(schemas)
        kinds = [s.kind for s in schemas]
        same = next((kind for kind in kinds if kinds.count(kind) > 1), 0)
        if same != 0 and any(s.kind == same and s.discriminator == "property" for s in schemas):
            raise ModelError(f"{', '.join(s.name for s in schemas if s.kind == same)} all have the kind {same!r}")
        return cls(tuple(schemas), tables.pop(), bags)

    @property
    def follows(self) -> bool:
        """Whether rows are copies that only tell where their primaries are."""
        return any(schema.follows for schema in self.schemas)

    def copies_in(self, index: Schema) -> "KindSet":
        """The copies in an index of these kinds."""
        key = (index,)
        part = self._parts.get(key)
        if part is None:
            part = self._parts[key] = KindSet(key, self.table, bags=False)
        return part

    @property
    def primaries(self) -> "KindSet | None":
        """Of copies the kinds that they are copies of; None if they are no copies."""
        copied = tuple(schema.primary for schema in self.schemas if schema.primary is not None)
        return KindSet(copied, self.table, bags=False) if copied else None

    def only(self, schemas: "Sequence[Schema | None]") -> "KindSet":
        """Some of the kinds; None among them stands for rows of any other."""
        wanted = tuple(schemas)
        if len(wanted) == len(self.schemas) + self.bags:
            return self
        part = self._parts.get(wanted)
        if part is None:
            part = KindSet(tuple(schema for schema in wanted if schema is not None), self.table, None in wanted)
            self._parts[wanted] = part
        return part

    def _filter(self) -> Filter | None:
        """The condition that a row of these kinds satisfies, as far as properties tell; None if they do not."""
        if (
            self.bags
            or not self.schemas
            or not all(s.discriminator == "property" and s.kind is not None for s in self.schemas)
        ):
            return None
        terms = [_kind_filter(str(schema.kind)) for schema in self.schemas]
        return terms[0] if len(terms) == 1 else Or(tuple(terms))

    def load_all(self, rows: Sequence[Row]) -> "list[Entity | PropertyBag]":
        """
        The entities of rows, in order, without rows of other kinds. Raises as `load`.
        """
        decoders, slow = self._decoders, self.load
        entities: list[Entity | PropertyBag] = []
        add = entities.append
        for row in rows:
            decode = decoders.get(row.get(ENTITY_TYPE, ""))
            if decode is not None:
                try:
                    add(decode(row))
                    continue
                except MISFITS:
                    pass  # once more, to say what is wrong
            entity = slow(row)
            if entity is not None:
                add(entity)
        return entities

    def load(self, row: Row) -> "Entity | PropertyBag | None":
        """
        The entity of a row, upgraded if it is old; None if it is of another kind.

        Raises:
            DecodeError: The row is of one of the kinds and does not fit its model.
        """
        schema = self._current.get(row.get(ENTITY_TYPE, ""))
        if schema is not None:
            return cast("Entity", schema.decode(row))
        found = self._resolve(row)
        if found is None:
            return PropertyBag.of_row(self.table, row) if self.bags else None
        schema, version = found
        if version >= schema.version:
            return cast("Entity", schema.decode(row))
        if schema.primary is not None:
            return cast("Entity", row)  # an upgrade may need the keys, and any property
        return cast("Entity", upgrade_row(schema, version, self.table, row))

    def derives(self, row: Row) -> bool:
        """Whether a row is derived from entities of these kinds: a copy in an index, or a row of an index list."""
        kind, mark, _ = str(row.get(ENTITY_TYPE, "")).partition("#")
        return bool(mark) and any(schema.kind == kind for schema in self.schemas)

    def schema_of_row(self, row: Row) -> Schema | None:
        """The model of a row; None if it is of another kind."""
        found = self.resolve(row)
        return None if found is None else found[0]

    def resolve(self, row: Row) -> tuple[Schema, int] | None:
        """
        The model and the version of a row; None if it is of another kind.

        Raises:
            DecodeError: What the row says of its version is no version.
        """
        found = self._current.get(row.get(ENTITY_TYPE) or "")
        return self._resolve(row) if found is None else (found, found.version)

    def _resolve(self, row: Row) -> tuple[Schema, int] | None:
        stored = row.get(ENTITY_TYPE)
        if isinstance(stored, str) and self._by_kind:
            kind, colon, number = stored.partition(":")
            schema = self._by_kind.get(kind)
            if schema is not None:
                return schema, parse_version(schema, row, number) if colon else 1
        for schema in self.schemas:
            if schema.kind is None or schema.discriminator == "property":
                continue
            if callable(schema.discriminator):
                try:
                    found = schema.discriminator(PropertyBag.of_row(self.table, row))
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
        return None if anything is None else (anything, anything.version)


def _refuse_overlaps(schemas: Sequence[Schema]) -> None:
    """Where keys tell kinds, no key may be of two of the models that are asked for together."""
    for which in ("row", "partition"):
        told = [s for s in schemas if s.discriminator == f"{which}_key" and s.kind is not None]
        for one, two in combinations(told, 2):
            mine, theirs = getattr(one, which), getattr(two, which)
            if mine is not None and theirs is not None and may_meet(mine, theirs):
                raise ModelError(
                    f"{one.name} and {two.name} cannot be told apart by {which}_key: a key can be of {mine.text!r} and "
                    f"of {theirs.text!r}; query them one by one, or give them other heads"
                )


def _kind_filter(kind: str) -> Filter:
    """`EntityType` is the kind, or the kind with any version: between `Employee:` and `Employee;`."""

    def compare(op: Op, text: str) -> Compare:
        return Compare(ENTITY_TYPE, op, Constant(Edm.STRING, text))

    versions = And((compare(Op.GE, kind + ":"), compare(Op.LT, kind + ";")))
    return Or((compare(Op.EQ, kind), versions))


def describe_kind(row: Row) -> str:
    """What a row says of its kind, for messages."""
    stored = row.get(ENTITY_TYPE)
    return f"kind {stored!r}" if stored is not None else "no kind"
