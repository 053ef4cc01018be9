"""
Nested dataclasses that are read from JSON: they store the same members as those that their constructors make.
"""

import dataclasses
from collections.abc import Iterable
from typing import Annotated, Any, Generic, NamedTuple, TypeVar, cast

import attrs
import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tableorm import Database, Entity, Mapped, Partial, PropertyBag, field, from_dict, to_dict
from tableorm.models.entity import schema_of
from tests.databases import database_fixture

T = TypeVar("T")


@dataclasses.dataclass
class Plain:
    article: str
    quantity: int = 1
    tags: list[str] = dataclasses.field(default_factory=list[str])
    note: str | None = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: int = 0
    y: int = 0


@dataclasses.dataclass(slots=True)
class Slotted:
    article: str
    quantity: int = 1


@dataclasses.dataclass
class Derived(Plain):
    article: str = "tea"
    price: float = dataclasses.field(default=1.5, kw_only=True)


@dataclasses.dataclass
class DerivedFromSlots(Slotted):
    note: str = ""


@dataclasses.dataclass
class Computed:
    article: str
    size: int = 2
    label: str = dataclasses.field(default="", init=False)

    def __post_init__(self) -> None:
        self.label = self.article * self.size


@dataclasses.dataclass
class Fixed:
    article: str
    unit: str = dataclasses.field(default="kg", init=False)


@dataclasses.dataclass
class Tree:
    name: str = "root"
    children: "list[Tree]" = dataclasses.field(default_factory=list["Tree"])
    parent: "Tree | None" = None


@dataclasses.dataclass
class Box(Generic[T]):
    item: T
    size: int = 3


@attrs.define
class Holder:
    plain: Plain
    place: Frozen = Frozen(1, 2)
    count: int = 4


@attrs.define(slots=False)
class WithoutSlots:
    plain: Plain | None = None
    count: int = 4


class Pair(NamedTuple):
    left: Frozen
    right: int = 1


class Struct(msgspec.Struct):
    plain: Plain
    count: int = 4


@dataclasses.dataclass
class Outer:
    holder: Holder
    free: WithoutSlots
    struct: Struct
    pair: Pair
    box: Box[Plain]
    both: tuple[Plain, Frozen]
    places: set[Frozen]
    named: dict[str, list[Plain | None]]
    several: tuple[Slotted, ...] = ()
    limited: Annotated[list[Plain], msgspec.Meta(max_length=5)] = dataclasses.field(default_factory=list[Plain])
    tree: Tree | None = None
    derived: Derived | None = None
    more: DerivedFromSlots | None = None
    computed: Computed | None = None
    fixed: Fixed | None = None


class Everything(Entity, table="NestedDefaults", partition_key="p", row_key="everything_{id}"):
    id: Mapped[str]
    outer: Mapped[Outer | None] = field(default=None)
    plain: Mapped[Plain | None] = field(default=None)
    list_: Mapped[list[Plain]] = field(factory=list[Plain])
    named: Mapped[dict[str, Derived]] = field(factory=dict[str, Derived])
    holder: Mapped[Holder | None] = field(default=None)


@dataclasses.dataclass
class OldItem:
    article: str


@dataclasses.dataclass
class NewItem:
    article: str
    quantity: int = 1


class OldOrder(Entity, table="NestedOrders", kind="Order", partition_key="p", row_key="order_{id}"):
    id: Mapped[str]
    items: Mapped[list[OldItem]]


class NewOrder(Entity, table="NestedOrders", kind="Order", partition_key="p", row_key="order_{id}"):
    id: Mapped[str]
    items: Mapped[list[NewItem]]


def _objects(kind: Any, **members: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Make objects of a class by its constructor, with some of the members that have defaults."""
    required = {
        each.name
        for each in (attrs.fields(kind) if attrs.has(kind) else dataclasses.fields(kind))
        if each.default in (dataclasses.MISSING, attrs.NOTHING) and getattr(each, "default_factory", None) is not list
    }
    needed = {name: each for name, each in members.items() if name in required}
    rest = {name: each for name, each in members.items() if name not in required}
    return st.fixed_dictionaries(needed, optional=rest).map(lambda given: kind(**given))


_TEXTS, _NUMBERS = st.text("ab", max_size=2), st.integers(0, 3)
_PLAIN = _objects(Plain, article=_TEXTS, quantity=_NUMBERS, tags=st.lists(_TEXTS, max_size=2), note=st.none() | _TEXTS)
_FROZEN = _objects(Frozen, x=_NUMBERS, y=_NUMBERS)
_SLOTTED = _objects(Slotted, article=_TEXTS, quantity=_NUMBERS)
_DERIVED = _objects(Derived, article=_TEXTS, quantity=_NUMBERS, price=st.just(2.5))
_HOLDERS = _objects(Holder, plain=_PLAIN, place=_FROZEN, count=_NUMBERS)
_TREES = st.recursive(
    _objects(Tree, name=_TEXTS),
    lambda inner: _objects(Tree, name=_TEXTS, children=st.lists(inner, max_size=2), parent=inner),
    max_leaves=4,
)
_OUTERS = _objects(
    Outer,
    holder=_HOLDERS,
    free=_objects(WithoutSlots, plain=_PLAIN, count=_NUMBERS),
    struct=st.builds(Struct, plain=_PLAIN),
    pair=st.builds(Pair, _FROZEN),
    box=_objects(Box, item=_PLAIN, size=_NUMBERS),
    both=st.tuples(_PLAIN, _FROZEN),
    places=st.sets(_FROZEN, max_size=1),
    named=st.dictionaries(_TEXTS, st.lists(st.none() | _PLAIN, max_size=2), max_size=2),
    several=st.lists(_SLOTTED, max_size=2).map(tuple),
    limited=st.lists(_PLAIN, max_size=2),
    tree=_TREES,
    derived=_DERIVED,
    more=_objects(DerivedFromSlots, article=_TEXTS, quantity=_NUMBERS, note=_TEXTS),
    computed=_objects(Computed, article=_TEXTS, size=_NUMBERS),
    fixed=_objects(Fixed, article=_TEXTS),
)
_ENTITIES = st.builds(
    Everything,
    id=st.just("a"),
    outer=st.none() | _OUTERS,
    plain=st.none() | _PLAIN,
    list_=st.lists(_PLAIN, max_size=2),
    named=st.dictionaries(_TEXTS, _DERIVED, max_size=2),
    holder=st.none() | _HOLDERS,
)


def _without_defaults(value: object) -> Any:
    """Return the JSON of a value, without the members that have their plain defaults."""
    kind: Any = type(value)
    fields: Any = attrs.fields(kind) if attrs.has(kind) else getattr(kind, "__dataclass_fields__", {}).values()
    if fields:
        members = {each.name: (getattr(value, each.name), each.default) for each in fields}
        return {name: _without_defaults(each) for name, (each, default) in members.items() if each != default}
    if isinstance(value, msgspec.Struct):
        return {name: _without_defaults(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {key: _without_defaults(each) for key, each in cast("dict[str, Any]", value).items()}
    if isinstance(value, (list, tuple, set)):
        return [_without_defaults(each) for each in cast("Iterable[Any]", value)]
    return value


def _as_json(entity: Everything) -> dict[str, Any]:
    data = {name: value for name, value in to_dict(entity).items() if value is not None}
    return {name: _without_defaults(value) for name, value in data.items()}


_JSON = ("outer", "plain", "list_", "named", "holder")


def _parsed(row: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a row's texts: members of attrs classes without slots have no order of their own."""
    return {name: msgspec.json.decode(text) for name, text in row.items() if name in _JSON}


@given(_ENTITIES)
def test_from_dict_makes_what_the_constructors_make(entity: Everything) -> None:
    """JSON without the members that have their defaults becomes an entity that is encoded with them."""
    read = from_dict(Everything, _as_json(entity))

    assert read == entity
    assert to_dict(read, "json") == to_dict(entity, "json")


@given(_ENTITIES)
def test_a_row_becomes_what_the_constructors_make(entity: Everything) -> None:
    """A row whose JSON texts lack members that have their defaults is read, and would be written, with them."""
    schema = schema_of(Everything)
    whole, _ = schema.encode(entity.__dict__, "p", "everything_a")
    data = _as_json(entity)
    texts = {name: msgspec.json.encode(value).decode() for name, value in data.items() if name != "id"}
    row = {**whole, **texts, "odata.etag": 'W/"1"', "Timestamp": ""}

    read = schema.decode(row)

    assert read == entity
    assert _parsed(schema.encode(read.__dict__, "p", "everything_a")[0]) == _parsed(whole)


db = database_fixture(NewOrder)
"""A database in memory, with the table of orders."""


async def test_a_member_that_was_added_has_its_default_in_old_rows(db: Database) -> None:
    """A member is added with a default: answers have it, and a save that changes nothing else sends nothing."""
    await db.insert(OldOrder(id="a", items=[OldItem("tea")]))

    order = await db.get(NewOrder, id="a")
    await db.save(order)

    assert to_dict(order, "json")["items"] == [{"article": "tea", "quantity": 1}]
    assert (await db.get(PropertyBag.key("NestedOrders", "p", "order_a")))["items"] == '[{"article":"tea"}]'


async def test_what_a_client_sends_is_stored_with_its_defaults(db: Database) -> None:
    """A body without a member that has a default, whole or partial: the row has the member."""
    await db.insert(from_dict(NewOrder, {"id": "a", "items": [{"article": "tea"}]}))
    first = (await db.get(PropertyBag.key("NestedOrders", "p", "order_a")))["items"]
    changes = Partial(NewOrder, {"items": [{"article": "jam"}]})
    changed = await db.modify(NewOrder, lambda order: order.update(changes), id="a")

    assert first == '[{"article":"tea","quantity":1}]'
    assert to_dict(changed, "json")["items"] == [{"article": "jam", "quantity": 1}]


def test_a_type_without_such_members_is_read_as_before() -> None:
    """Only types with a dataclass that has a plain default in it are looked through after they were read."""
    fields = schema_of(Everything).fields | schema_of(OldOrder).fields

    assert fields["items"].type.complete is None
    assert fields["id"].type.complete is None
    assert fields["plain"].type.complete is not None
