"""
Relations: on the class a relation says what to load; on an entity it is what was loaded. It never sends a request by
itself. When it is first used, it is bound: checked against the models that it connects.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import aclosing, suppress
from typing import Any, ClassVar, Never, NoReturn, Self, TypeVar

import attrs

from ..connection.connection import Connection
from ..derived.index.eventual import EventualIndexSchema
from ..derived.reference import check_alike, find_target, split_given
from ..errors import ModelError, NotLoaded, ScanRefused, Unavailable, near, shown
from ..expressions import Comparison, Expression, Field, condition_of
from ..models.derivation import IndexOf, RelationRules
from ..models.entity import Entity
from ..models.key import Key
from ..models.loaded import Loaded, loaded_of, set_loaded
from ..models.property_types import FieldInfo
from ..models.schema import DerivedSchema, Schema, concrete
from ..models.visibility import including_expired
from ..protocol.limits import MAX_PAGE
from ..queries.description import Relation
from ..queries.pages import Page
from ..queries.query import plan_query, results_of
from ..queries.select import Select
from ..queries.together import keys_read
from ..shapes.link import LinkShape

P_contra = TypeVar("P_contra", bound=Entity, contravariant=True)
C_co = TypeVar("C_co", bound=Entity, covariant=True)


@attrs.frozen(eq=False, repr=False)
class OneOf(Relation[P_contra, C_co]):
    """A relation to one entity, such as `Order.customer`."""


@attrs.frozen(eq=False, repr=False)
class ManyOf(Relation[P_contra, C_co]):
    """
    A relation to many entities, such as `Team.employees`. It's immutable: each method returns a new relation, which
    loads only the entities it selects.

        await db.load(teams, Team.employees.where(Employee.age > 30).limit(3))

    Args:
        conditions: The conditions on the loaded entities.
        count: The most entities to load for each parent; None for all.
        fields: The fields to load; None for all.
    """

    conditions: tuple[Expression, ...] = ()
    count: int | None = None
    fields: tuple[Field[Any], ...] | None = None

    def where(self, *conditions: Expression) -> Self:
        """
        Load only entities that satisfy all of these conditions, and all earlier ones.

            await db.load(teams, Team.employees.where(Employee.age > 30))
        """
        return attrs.evolve(self, conditions=self.conditions + conditions)

    def limit(self, count: int) -> Self:
        """
        Load at most `count` entities for each parent, the first in key order.

            await db.load(teams, Team.employees.limit(3))

        Raises:
            ModelError: The count isn't an integer, 0 or more.
        """
        if type(count) is not int or count < 0:
            raise ModelError(f"{self}.limit({count!r}) is rejected: give a number of entities from 0 for each parent")
        return attrs.evolve(self, count=count)

    def only(self, *fields: Field[Any]) -> Self:
        """
        Load only these fields and the key fields, like `only` of a query.

            await db.load(teams, Team.employees.only(Employee.name))
        """
        return attrs.evolve(self, fields=(self.fields or ()) + fields)

    async def _read_with(self, db: Connection, query: Any, where: Sequence[Expression]) -> list[Any] | None:
        """See `Relation`. Two queries for all rows of their kinds in one range would each go through both kinds."""
        declared = self.declared
        # With "keep" there may be any number of children without a parent.
        if declared.on_delete == "keep" or declared.texts or self is not declared.of(self.model):
            return None
        target, names = bind(self).target, {mine: name for name, mine in declared.fields.items()}
        if not _is_below(target.__schema__, self.model.__schema__, names):
            return None  # children that come first could be read before their parents are there
        theirs = [
            attrs.evolve(each, field=getattr(target, names[each.field.name]))
            for each in where
            if isinstance(each, Comparison) and each.field.name in names
        ]
        if len(theirs) < len(where) or not declared.fields.keys() <= target.__schema__.key_names:
            return None
        try:
            keys = keys_read(query, self.model)
            if keys is None or keys != keys_read(db.reader.select(target).where(*theirs), target):
                return None
            both: Select[Any] = db.reader.select(self.model, target)
            found: list[Any] | None = await self._read_both(db, target, both.where(condition_of(keys)))
        except Unavailable:
            raise
        except Exception:  # noqa: BLE001 - it may be of a row that is no result; otherwise reading in turn raises it
            return None
        return found

    async def _read_both(self, db: Connection, target: type[Any], query: Select[Any]) -> list[Any] | None:
        """Return parents with their children from one query of both; None if too many children have no parent."""
        declared, orphans = self.declared, 0
        found: dict[tuple[Any, ...], tuple[Any, Any, list[Any]]] = {}
        async with aclosing(await results_of(query)) as parts:
            async for part in parts:
                for each in part:
                    if type(each) is target:
                        own = found.get(tuple([getattr(each, name) for name in declared.fields]))
                        if own is None:
                            orphans += 1
                        else:
                            own[2].append(each)
                    else:
                        source = declared.source_of(each)
                        found[tuple(declared.given(source).values())] = each, source, []
                if orphans > MAX_PAGE:
                    return None
        for parent, source, children in found.values():
            set_loaded(parent, declared.name, Loaded(source, tuple(children)))
            await db.yield_to_loop(1)
        return [parent for parent, *_ in found.values()]

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.model, self.declared.name, self.conditions, self.count, self.fields)


def _is_below(child: Schema, parent: Schema, names: Mapping[str, str]) -> bool:
    """
    Return whether the RowKeys of children begin with those of their parents.

    Args:
        child: The model of the children.
        parent: The model of the parents.
        names: The fields of children that say which parent they belong to, by the fields of parents.
    """
    if parent.row is None or child.row is None:
        return False  # abstract bases whose classes have their own keys
    before, parts = parent.row.parts, child.row.parts
    return len(parts) > len(before) and all(
        part.field == names.get(own.field or "")
        and (part.literal, part.format.text) == (own.literal, own.format.text)
        and (not own.format.free or (part.separator, part.verbatim) == (own.separator, own.verbatim))
        for own, part in zip(before, parts, strict=False)
    )


def _restored(model: type[Any], name: str, *rest: Any) -> ManyOf[Any, Any]:
    return ManyOf(getattr(model, name).declared, model, *rest)


class RelationDeclaration(RelationRules):
    """
    What `many` and `one` declare: the base of both.

    Args:
        target: The class of the entities that it leads to, or a function that returns it.
        fields: Their fields: "{field}" of this model, or text.

    Attributes:
        name: The name under which it is declared.
        sources: The fields of this model by which they are found.
        key: The one of them that is the key of the other entity; None if they are found by fields.
        instead: What to do instead of setting it.
        fset: Whether it can be set: it says how to do otherwise.
    """

    _on_class: ClassVar[type[Relation[Any, Any]]]
    """What stands for it on a class."""
    fset = True
    name: str
    key: str | None = None
    instead: str

    def __init__(self, verb: str, target: Callable[[], type[Any]] | type[Any], fields: Mapping[str, object]) -> None:
        if not callable(target):  # pyright: ignore[reportUnnecessaryComparison]
            raise ModelError(
                f"{verb}({shown(target)}) is rejected: give a function that returns a model: lambda: Order"
            )
        self.target = target
        self.fields, self.texts = split_given(f"{verb}(..., %s)", fields)
        self.sources = tuple(dict.fromkeys(self.fields.values()))
        self._found: dict[type[Any], Relation[Any, Any]] = {}

    def of(self, owner: type[Any]) -> Relation[Any, Any]:
        """Return what stands for it on a class."""
        found = self._found.get(owner)
        if found is None:
            found = self._found[owner] = self._on_class(self, owner)
        return found

    def source_of(self, entity: object) -> tuple[Any, ...]:
        """Return the values by which an entity finds others. Raises NotLoaded if the entity lacks one."""
        own = entity.__dict__
        try:
            return tuple([own[name] for name in self.sources])
        except KeyError:
            return tuple([getattr(entity, name) for name in self.sources])  # which says what is missing

    def given(self, source: tuple[Any, ...]) -> dict[str, Any]:
        """Return the fields of what belongs to an entity with these values."""
        values = dict(zip(self.sources, source, strict=True))
        return {theirs: values[mine] for theirs, mine in self.fields.items()} | self.texts

    def __set_name__(self, owner: type[Any], name: str) -> None:
        if getattr(self, "name", name) != name:
            raise ModelError(f"{owner.__name__}.{name} is the same relation as {self.name!r}; declare another one")
        self.name = name

    def get(self, instance: object | None, owner: type[Any]) -> Any:
        """Return what stands for it on the class, or what was loaded for an entity."""
        if instance is None:
            return self.of(owner)
        loaded = loaded_of(instance).get(self.name)
        if loaded is not None and loaded.source == self.source_of(instance):
            return loaded.value
        label = f"{owner.__name__}.{self.name}"
        why = "was not loaded" if loaded is None else "was loaded for other values of its fields"
        raise NotLoaded(f"{label} {why}; call await db.load(entity, {label}), or query.load({label})")

    def __set__(self, instance: object, value: Never) -> NoReturn:
        raise ModelError(f"{type(instance).__name__}.{self.name} cannot be set: {self.instead}")


@attrs.frozen(eq=False)
class BoundRelation:
    """
    A relation and the model that it leads to.

    Args:
        relation: The relation.
        target: The model.
        key_of: Makes the key of the one entity that belongs to an entity with these values of its fields; None if it
            takes a query to find it.
    """

    relation: Relation[Any, Any]
    target: type[Any]
    key_of: Callable[[tuple[Any, ...]], Key[Any]] | None

    @property
    def to_one(self) -> bool:
        """Whether it leads to one entity at most."""
        return isinstance(self.relation, OneOf)

    def query(self, db: Connection, source: tuple[Any, ...]) -> Select[Any]:
        """Return the query for what belongs to an entity with these values. Raises what `queries` raises."""
        return self.queries(db, [source])[0]

    def queries(self, db: Connection, sources: Sequence[tuple[Any, ...]]) -> list[Select[Any]]:
        """
        Return the queries for what belongs to entities with these values of their fields.

        Raises:
            ModelError: The fields bound neither the keys of the other model nor those of an index of it.
        """
        if not sources:
            return []
        relation, query = self.relation, db.reader.select(self._find_index(db, sources[0]) or self.target)
        if isinstance(relation, ManyOf):
            query = query.where(*relation.conditions)
            query = query if relation.count is None else query.limit(relation.count)
            query = query if relation.fields is None else query.only(*relation.fields)
        else:
            query = query.limit(2)
        return [query.where(*self._conditions(source)) for source in sources]

    def _conditions(self, source: tuple[Any, ...]) -> list[Expression]:
        """Return the conditions for what belongs to an entity with these values of its fields."""
        declared: RelationDeclaration = self.relation.declared
        return [getattr(self.target, theirs) == value for theirs, value in declared.given(source).items()]

    def _find_index(self, db: Connection, source: tuple[Any, ...]) -> IndexOf[Any] | None:
        """
        Return an index in other partitions that has all entities, if nothing else bounds these; None if their own keys
        do, or those of an index beside them. Raises what `queries` does.
        """
        names, schema = [*self.relation.declared.fields, *self.relation.declared.texts], self.target.__schema__
        for name in (None, *schema.derived):
            if name is not None and not all(_has_all(each.derived[name], {*names}) for each in concrete(schema)):
                continue
            index = None if name is None else getattr(self.target, name)
            with suppress(ScanRefused):
                plan_query(db.reader.select(index or self.target).where(*self._conditions(source)), assumed=True)
                return index
        raise ModelError(
            f"{self.relation}: {', '.join(names)} of {self.target.__name__} bound neither its keys nor those of an "
            f"index, so that each load would read many partitions; give the fields that its PartitionKey is made "
            f"of, or declare an index that begins with {names[0]} in {self.target.__name__}"
        )


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
    target: Any = find_target(str(relation), declared.target)
    theirs: Any = getattr(target, "__schema__", None)
    if not (isinstance(target, type) and isinstance(theirs, Schema)):
        raise ModelError(f"{relation}: {shown(target)} is no model; give one, as in lambda: Order")
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
    check_alike(str(relation), mine, theirs, declared.fields, declared.texts)
    whole = isinstance(relation, OneOf) and not theirs.abstract
    whole = whole and theirs.key_names == frozenset((*declared.fields, *declared.texts))
    return BoundRelation(relation, target, (lambda source: theirs.key(declared.given(source))) if whole else None)


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
