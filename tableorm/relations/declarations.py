"""
How relations are declared: `many` and `one` in the body of a class.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, get_args, overload

from ..derived.aggregate.schema import AggregateSchema
from ..errors import ModelError
from ..models.entity import Entity
from ..models.marker_rows import note_follower
from ..models.schema import Schema, concrete
from .relation import BoundRelation, ManyOf, OneOf, RelationDeclaration, bind

P = TypeVar("P", bound=Entity)
C = TypeVar("C", bound=Entity)

OnDelete = Literal["refuse", "cascade", "keep"]

_PLACE = re.compile(r"\{([^{}:]+)([^{}]*)\}")


class Many(RelationDeclaration, Generic[C]):
    """What `many` declares: on the class a `ManyOf`, on an entity a tuple."""

    _on_class = ManyOf

    def __init__(self, target: Any, on_delete: OnDelete, fields: Mapping[str, object]) -> None:
        super().__init__("many", target, fields)
        if on_delete not in get_args(OnDelete):
            raise ModelError(f"many(on_delete={on_delete!r}) is rejected: give 'refuse', 'cascade' or 'keep'")
        if not self.fields:
            raise ModelError(
                "many(...) needs fields of the other model from fields of this one, by which its entities belong to "
                'one of this model: department="{name}"'
            )
        self.on_delete: OnDelete = on_delete
        self.cascades = on_delete == "cascade"
        theirs = next(iter(self.fields))
        self.instead = (
            f"it shows what was loaded. Insert or delete entities with db.insert(...) and db.delete(...); move one "
            f"to another parent with db.move(entity, {theirs}=...), or with db.save(entity) if {theirs} is not in "
            f"its key; then load it"
        )

    def check_used(self, schema: Schema) -> None:
        """
        Refuse what becomes of children when an entity of a model is deleted, if that cannot be.

        Raises:
            ModelError: There is no count of them, which `on_delete="refuse"` needs; the entities expire; the children
                have a table for each period; or workers could not delete them with children in other partitions.
        """
        if self.on_delete == "keep":
            return
        relation = self.of(schema.model)
        target = bind(relation).target
        if self.cascades and schema.expiry is not None:
            raise ModelError(
                f"{relation}: on_delete='cascade' is rejected for entities that expire, as a sweep deletes them alone; "
                "let the children expire too, with on_delete='keep'"
            )
        if self.cascades and any(child.periods is not None for child in concrete(target.__schema__)):
            raise ModelError(
                f"{relation}: on_delete='cascade' is rejected for {target.__name__}, which has a table for each "
                "period: none of them bounds the periods of the children; declare on_delete='keep', and delete these "
                "by a query"
            )
        if self.cascades and cascades_elsewhere(schema):
            self._check_followed(schema, f"{relation}: deleting {schema.name} with children in other partitions")
        if not self.cascades and not all(self._is_counted(schema, child) for child in concrete(target.__schema__)):
            fields = ", ".join(f'{mine}="{{{theirs}}}"' for theirs, mine in self.fields.items())
            raise ModelError(
                f"{relation}: on_delete='refuse' needs a count of all {target.__name__} in {schema.name}, which alone "
                f"tells a delete whether there are any; declare count: Mapped[int] = field(default=0, maintained=True) "
                f"in {schema.name}, and counted = Count(lambda: {schema.name}.count, {fields}) in {target.__name__}"
            )

    def _check_followed(self, schema: Schema, what: str) -> None:
        """Refuse a model whose entities workers cannot delete with their children. Raises ModelError."""
        if not schema.tracked:
            raise ModelError(f"{what} needs tracked=True in it, so that every write keeps the note that an entity goes")
        if schema.stages or schema.home is not None or schema.periods is not None:
            raise ModelError(
                f"{what} is rejected with encrypted fields, several rows for an entity, entities that a model takes "
                "over from an older one, and a table for each period; declare on_delete='keep', and delete the "
                "children by a query"
            )
        lost = next((name for name in self.sources if name not in schema.key_holders), None)
        if lost is not None:
            raise ModelError(
                f"{what} finds these by its key, which does not hold {lost} in full; declare on_delete='keep', and "
                "delete the children by a query"
            )
        note_follower(schema, f"the delete of {schema.name} with its children")

    def is_elsewhere(self, schema: Schema, child: Schema) -> bool:
        """Return whether children need not be in the partition of the entity that they belong to."""

        def spelled(place: re.Match[str]) -> str:
            name, spec = place.groups()
            return self.texts[name] if name in self.texts and not spec else f"{{{self.fields.get(name)}{spec}}}"

        mine, theirs = schema.templates()[0].text, child.templates()[0].text
        pairs = (schema.table_text(), child.table_text()), (mine, theirs)
        return any(one != _PLACE.sub(spelled, two) for one, two in pairs)

    def _is_counted(self, schema: Schema, child: Schema) -> bool:
        """Return whether each child is counted in the entity that it belongs to."""
        pairs = {f"{{{theirs}}}": mine for theirs, mine in self.fields.items()}
        for each in child.derived_as(AggregateSchema).values():
            if each.counts_all and each.target[0] is schema and all(pairs.get(t) == m for m, t in each.key.items()):
                return True
        return False

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type[P]) -> ManyOf[P, C]: ...
        @overload
        def __get__(self, instance: object, owner: type[Any]) -> tuple[C, ...]: ...
        def __get__(self, instance: object | None, owner: type[Any]) -> Any: ...

    else:
        __get__ = RelationDeclaration.get


def find_cascades(schema: Schema) -> Iterator[tuple[BoundRelation, Schema, Schema]]:
    """Yield the relations by which deleting an entity deletes others, each with the models of a parent and a child."""
    left, known = [schema], {schema}
    while left:
        parent = left.pop()
        for declared in parent.relations:
            if not declared.cascades:
                continue
            bound = bind(declared.of(parent.model))
            for child in concrete(bound.target.__schema__):
                yield bound, parent, child
                if child not in known:
                    known.add(child)
                    left.append(child)


def cascades_elsewhere(schema: Schema) -> bool:
    """Return whether workers delete the entities of a model, as they have children in other partitions."""
    return any(bound.relation.declared.is_elsewhere(parent, child) for bound, parent, child in find_cascades(schema))


class One(RelationDeclaration, Generic[C]):
    """What `one` declares: on the class a `OneOf`, on an entity another entity, or None if there is none."""

    _on_class = OneOf

    def __init__(self, target: Any, key: str | None, fields: Mapping[str, object]) -> None:
        super().__init__("one", target, fields)
        if (key is None) is not bool(self.fields):
            raise ModelError(
                'one(...) needs either key="buyer", a field of this model that is a Key, or fields of the other model '
                'from fields of this one, as in employee_id="{id}"'
            )
        self.key = key
        if key is not None:
            self.sources = (key,)
        names = ", ".join(f"entity.{name}" for name in self.sources)
        self.instead = (
            f"it shows what was loaded. Set {names} and save the entity, or write the other one; then load it"
        )

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type[P]) -> OneOf[P, C]: ...
        @overload
        def __get__(self, instance: object, owner: type[Any]) -> C | None: ...
        def __get__(self, instance: object | None, owner: type[Any]) -> Any: ...

    else:
        __get__ = RelationDeclaration.get


def many(model: Callable[[], type[C]], *, on_delete: OnDelete, **fields: str) -> Many[C]:
    """
    Declare a relation to many entities: those whose keys, or the keys of one of their indexes, begin with the given
    fields.

        employees = many(lambda: Employee, department="{name}", on_delete="keep")

    In the class `Team`, this is the tuple of a team's employees, after `db.load(teams, Team.employees)` has loaded it.

    Args:
        model: A function that returns the model of these entities, which may be declared later.
        on_delete: What happens to them when their parent is deleted. "refuse" rejects the delete while a `Count` in the
            parent shows that there are any. "cascade" deletes them first; only `Database.delete` does that, and a
            worker if some are in other partitions. "keep" leaves them unchanged.
        fields: Their fields: "{field}" of this model, or a literal.

    Returns:
        A declaration, which becomes the relation on the class.
    """
    return Many(model, on_delete, fields)


def one(model: Callable[[], type[C]], *, key: str | None = None, **fields: str) -> One[C]:
    """
    Declare a relation to one entity, found by its key or by fields.

        customer = one(lambda: Customer, key="buyer")
        profile = one(lambda: Profile, employee_id="{id}")

    The first one is the entity whose key is in the field `buyer`, declared as `buyer: Mapped[Key[Customer] | None]`.
    The second one is the entity with this value of `employee_id`.

    Args:
        model: A function that returns the model of that entity, which may be declared later.
        key: The field of this model that holds the key of that entity.
        fields: Its fields: "{field}" of this model, or a literal. They must form its key, or the beginning of its key
            or of the key of one of its indexes.

    Returns:
        A declaration, which becomes the relation on the class.
    """
    return One(model, key, fields)
