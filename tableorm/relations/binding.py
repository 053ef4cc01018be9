"""
A relation, checked against the models that it connects: found out once, when it is first used.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any, Literal, Protocol

import attrs

from ..derived.index.eventual_schema import EventualIndexSchema
from ..errors import DecodeError, ModelError, ScanRefused, WrongKind, near
from ..models.derivation import RowsOf
from ..models.key import Key
from ..models.property_types import FieldInfo
from ..models.schema import DerivedSchema, Schema, concrete
from ..models.visibility import including_expired
from ..protocol.edm import Edm
from ..queries.pages import Page
from ..queries.query import plan_query
from ..queries.select import Select
from ..shapes.link import LinkShape
from .relation import ManyOf, OneOf, Relation, RelationDeclaration

KeyMisfits = (
    Literal["raise", "skip"] | Callable[[DecodeError | WrongKind], object] | dict[Key[Any], DecodeError | WrongKind]
)
"""What becomes of rows that cannot be read, of those whose keys were given: a dict gets the errors by these."""


class Reads(Protocol):
    """What a database offers for reading, as far as relations need it."""

    def select(self, model: Any, /) -> Select[Any]:
        """Make a query for entities of a model, or by an index."""
        ...

    async def get_many(self, keys: Sequence[Key[Any]], *, misfits: KeyMisfits = "raise") -> list[Any]:
        """Read entities by their keys, in this order; None where there is none."""
        ...


@attrs.frozen(eq=False)
class BoundRelation:
    """
    A relation and the model that it leads to.

    Args:
        relation: The relation.
        target: The model.
        key_of: Makes the key of the one entity that belongs to an entity with these values of its fields; None if it
            takes a query to find it.
        index: The index of the model by which entities are found; None for their own keys, and indexes beside them.
    """

    relation: Relation[Any, Any]
    target: type[Any]
    key_of: Callable[[tuple[Any, ...]], Key[Any]] | None
    index: RowsOf[Any] | None = None

    @property
    def to_one(self) -> bool:
        """Whether it leads to one entity at most."""
        return isinstance(self.relation, OneOf)

    def query(self, reads: Reads, source: tuple[Any, ...]) -> Select[Any]:
        """Return the query for what belongs to an entity with these values of its fields."""
        return self.queries(reads, [source])[0]

    def queries(self, reads: Reads, sources: Iterable[tuple[Any, ...]]) -> list[Select[Any]]:
        """Return the queries for what belongs to entities with these values of their fields."""
        relation, query = self.relation, reads.select(self.index or self.target)
        if isinstance(relation, ManyOf):
            query = query.where(*relation.conditions)
            query = query if relation.count is None else query.limit(relation.count)
            query = query if relation.fields is None else query.only(*relation.fields)
        else:
            query = query.limit(2)
        declared: RelationDeclaration = relation.declared
        at = {name: number for number, name in enumerate(declared.sources)}
        fields = [(getattr(self.target, theirs), at[mine]) for theirs, mine in declared.fields.items()]
        texts = [getattr(self.target, theirs) == text for theirs, text in declared.texts.items()]
        return [query.where(*[field == source[number] for field, number in fields], *texts) for source in sources]

    def by_eventual_index(self, reads: Reads, source: tuple[Any, ...]) -> "BoundRelation":
        """
        Return the relation itself; or by an index in other partitions that has all of its entities, if nothing else
        bounds it. Raises what `check` raises.
        """
        try:
            self.check(reads, source)
        except ModelError:
            given = {*self.relation.declared.fields, *self.relation.declared.texts}
            schema: Schema = self.target.__schema__
            for name in schema.derived:
                if not all(_has_all(each.derived[name], given) for each in concrete(schema)):
                    continue
                by_index = attrs.evolve(self, index=getattr(self.target, name))
                with suppress(ModelError):
                    by_index.check(reads, source)
                    return by_index
            raise
        return self

    def check(self, reads: Reads, source: tuple[Any, ...]) -> None:
        """
        Refuse fields that bound neither the keys of the other model nor those of an index of it.

        Raises:
            ModelError: They do not.
        """
        relation = self.relation
        plain = attrs.evolve(self, relation=relation.declared.of(relation.model))
        try:
            plan_query(plain.query(reads, source), assumed=True)
        except ScanRefused as error:
            names = [*relation.declared.fields, *relation.declared.texts]
            raise ModelError(
                f"{relation}: {', '.join(names)} of {self.target.__name__} bound neither its keys nor those of an "
                f"index, so that each load would read many partitions; give the fields that its PartitionKey is made "
                f"of, or declare an index that begins with {names[0]} in {self.target.__name__}"
            ) from error


def _has_all(derived: DerivedSchema, given: AbstractSet[str]) -> bool:
    """Return whether it is an index in other partitions that has all entities with values in these fields."""
    rows = derived.row_schema
    return isinstance(rows, EventualIndexSchema) and rows.where is None and given >= {*rows.needed}


def bind(relation: Relation[Any, Any]) -> BoundRelation:
    """
    Check a relation against its models.

    Raises:
        ModelError: It does not fit them; names the model, the field and what to do.
    """
    declared: RelationDeclaration = relation.declared
    mine: Schema = relation.model.__schema__
    target = declared.resolve(relation)
    theirs: Schema = target.__schema__
    for name in declared.sources:
        if name not in mine.fields:
            problem = f"{relation}: {mine.name} has no field {name!r}"
            raise ModelError(f"{problem}; {near(name, mine.fields, 'field')}")
    if declared.key is not None:
        return BoundRelation(relation, target, _link_of(relation, mine.fields[declared.key], target))
    for name in (*declared.fields, *declared.texts):
        if name not in theirs.fields:
            problem = f"{relation}: {theirs.name} has no field {name!r}"
            raise ModelError(f"{problem}; {near(name, theirs.fields, 'field')}")
        if theirs.fields[name].shape is not None:
            raise ModelError(f"{relation}: {theirs.name}.{name} {theirs.fields[name].many}")
    for name, source in declared.fields.items():
        _check_types(relation, name, mine.fields[source], theirs.fields[name])
    for name, text in declared.texts.items():
        try:
            theirs.fields[name].type.encode(text)
        except ValueError as error:
            raise ModelError(f"{relation}: {name}={text!r} is rejected: it {error}") from None
    whole = isinstance(relation, OneOf) and not theirs.abstract
    whole = whole and theirs.key_names == frozenset((*declared.fields, *declared.texts))
    return BoundRelation(relation, target, _key_maker(relation, theirs) if whole else None)


def _check_types(relation: Relation[Any, Any], name: str, mine: FieldInfo, theirs: FieldInfo) -> None:
    if mine.shape is not None:
        raise ModelError(f"{relation}: {name}='{{{mine.name}}}' is rejected: {mine.name} {mine.many}")
    one, two = mine.member.type, theirs.member.type
    if one.name != two.name and not {one.edm, two.edm} <= {Edm.INT32, Edm.INT64}:
        raise ModelError(
            f"{relation}: {name}='{{{mine.name}}}' is rejected: {mine.name} is {one.name}, and {name} of "
            f"{relation.declared.resolve(relation).__name__} is {two.name}; declare both alike"
        )


def _link_of(relation: Relation[Any, Any], info: FieldInfo, target: type[Any]) -> Callable[[tuple[Any, ...]], Key[Any]]:
    name = f"{relation.model.__name__}.{info.name}"
    if not isinstance(info.shape, LinkShape):
        raise ModelError(
            f"{relation}: {name} is no key; declare {info.name}: Mapped[Key[{target.__name__}] | None], or give fields "
            f"of {target.__name__} in place of key={info.name!r}"
        )
    linked = info.shape.target
    if not (issubclass(linked, target) or issubclass(target, linked)):
        raise ModelError(
            f"{relation}: {name} is a key of {linked.__name__}, and the relation leads to {target.__name__}; declare "
            f"{info.name}: Mapped[Key[{target.__name__}] | None]"
        )

    def key_of(source: tuple[Any, ...]) -> Key[Any]:
        key: Key[Any] = source[0]
        return key if key.model is target else Key(target, key.table, key.partition_key, key.row_key)

    return key_of


def _key_maker(relation: Relation[Any, Any], theirs: Schema) -> Callable[[tuple[Any, ...]], Key[Any]]:
    declared = relation.declared

    def key_of(source: tuple[Any, ...]) -> Key[Any]:
        values: Mapping[str, Any] = dict(zip(declared.sources, source, strict=True))
        return theirs.key({name: values[mine] for name, mine in declared.fields.items()} | declared.texts)

    return key_of


async def pages_with_expired(query: Select[Any]) -> AsyncGenerator[Page[Any]]:
    """Yield the pages of a query, with entities that have expired and whose rows are still there."""
    cursor: str | None = None
    while True:
        # For the request alone: what the caller does with a page must find no expired entities.
        with including_expired():
            page = await query.page(cursor=cursor)
        yield page
        cursor = page.cursor
        if cursor is None:
            return
