"""
A kind of field that the program knows nothing of, written here alone: a pair of numbers in two properties.

`spot: Pairs[Spot]` stores the x of a spot as `spot_x` and its y, which may be absent, as `spot_y`. It is declared,
written, queried, explained and described through the interfaces that every kind of field has.
"""

import datetime as dt
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, overload

import pytest
from pydantic import TypeAdapter

from tableorm import (
    Count,
    Database,
    DecodeError,
    Embedded,
    EncodeError,
    Entity,
    IndexList,
    InvalidInput,
    Mapped,
    ModelError,
    NotLoaded,
    Sum,
    field,
    from_dict,
    to_dict,
)
from tableorm.expressions import Expression, Field
from tableorm.models.property_types import Shape
from tableorm_migrations import describe_models
from tests.databases import database_fixture
from tests.rows import insert_row


@dataclass(unsafe_hash=True)
class Spot:
    x: int
    y: float | None = None


M = TypeVar("M")
P = TypeVar("P", Spot, Spot | None)


class PairField(Field[P]):
    __slots__ = ("x", "y")

    def __init__(self, model: type[Any], name: str) -> None:
        super().__init__(model, name, (f"{name}.x", f"{name}.y"))
        self.x: Field[int] = self.parts[0]
        self.y: Field[float] = self.parts[1]

    if not TYPE_CHECKING:

        def __eq__(self, other: object) -> Expression:
            return (self.x == other.x) & (self.y == other.y)

        __hash__ = Field.__hash__


class PairShape(Shape[Spot]):
    def members(self, name: str, property_: str) -> Sequence[tuple[str, str, Any]]:
        return (f"{name}.x", f"{property_}_x", int), (f"{name}.y", f"{property_}_y", float)

    def write(self, value: Spot) -> Sequence[Any]:
        if value.x == 13:
            raise ValueError("has an unlucky x")
        return value.x, value.y

    def read(self, values: Sequence[Any]) -> Spot:
        x, y = values
        if x is None:
            raise ValueError("has no x")
        return Spot(x, y)

    def expression(self, model: type[Any], name: str) -> PairField[Any]:
        return PairField(model, name)


class Pairs(Mapped[P]):
    _shape = PairShape()

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type[Any]) -> PairField[P]: ...
        @overload
        def __get__(self, instance: object, owner: type[Any]) -> P: ...
        def __get__(self, instance: object | None, owner: type[Any]) -> PairField[P] | P: ...


class Moments(Mapped[M]):
    _shape = PairShape()


def pair(**options: Any) -> Any:
    """As `field`, which for type checkers makes fields that are `Mapped` alone."""
    return field(**options)


# Models


class Place(Entity, table="Toys", partition_key="c", row_key="place_{id}", naming="pascal"):
    id: Mapped[int]
    spot: Pairs[Spot]
    last: Pairs[Spot | None] = pair(default=None)
    home: Pairs[Spot] = pair(factory=lambda: Spot(0, 0.5))
    age: Mapped[int] = field(default=1)


class Shop(Entity, table="Toys", partition_key="c", row_key="shop_{id}"):
    id: Mapped[int]
    name: Mapped[str]


db = database_fixture(Place)


async def row_of(db: Database, row_key: str) -> dict[str, Any]:
    row = await db.store.get("Toys", "c", row_key)
    return {name: value for name, value in row.items() if name.partition("_")[0] in ("Spot", "Last", "Home", "spot")}


async def get(db: Database, number: int = 1) -> Place:
    return await db.get(Place, id=number)


async def test_a_value_is_stored_in_several_properties(db: Database) -> None:
    """Each member is a property of its own type, and absent ones are left out."""
    await db.insert(Place(id=1, spot=Spot(3, 1.5), last=Spot(7)))
    assert await row_of(db, "place_1") == {
        "Spot_x": "3",
        "Spot_x@odata.type": "Edm.Int64",
        "Spot_y": 1.5,
        "Last_x": "7",
        "Last_x@odata.type": "Edm.Int64",
        "Home_x": "0",
        "Home_x@odata.type": "Edm.Int64",
        "Home_y": 0.5,
    }
    assert await get(db) == Place(id=1, spot=Spot(3, 1.5), last=Spot(7))


async def test_an_absent_value_is_none_or_the_default(db: Database) -> None:
    """As of every field; without either the row does not fit the model."""
    row = {"PartitionKey": "c", "EntityType": "Place"}
    await insert_row(db, "Toys", {**row, "RowKey": "place_1", "Spot_x": 5})
    assert await get(db) == Place(id=1, spot=Spot(5), last=None, home=Spot(0, 0.5))
    for number, broken in ((2, {}), (3, {"Spot_y": 1.5}), (4, {"Spot_x": "text"})):
        await insert_row(db, "Toys", {**row, "RowKey": f"place_{number}", **broken})
        with pytest.raises(DecodeError, match=r"Place.*spot.*(no property 'Spot_x'|has no x|holds 'text')"):
            await get(db, number)


async def test_every_verb_takes_it(db: Database) -> None:
    """Each write is explained as it is sent, and the entity is read as it was written; an audit finds it right."""
    place = Place(id=1, spot=Spot(1, 1.5), last=Spot(2, 2.5))
    (step,) = db.explain_write("insert", place).steps
    assert b'"Spot_x":"1","Spot_y":1.5' in (step.body or b"")
    await db.insert(place)
    place.spot = Spot(3)
    (step,) = db.explain_write("save", place).steps
    assert (step.method, b"Last" in (step.body or b"")) == ("PUT", True)  # to remove Spot_y
    await db.save(place)
    assert await get(db) == place
    await db.merge(Place(id=1, spot=Spot(4, 4.5)), only=[Place.spot], if_match="*")
    assert await get(db) == place.evolve(spot=Spot(4, 4.5))
    await db.upsert(Place(id=1, spot=Spot(5)), mode="replace")
    assert await get(db) == Place(id=1, spot=Spot(5))
    async with db.transaction() as tx:
        tx.save((await get(db)).evolve(spot=Spot(6), last=Spot(6, 6.5)))
        tx.insert(Place(id=2, spot=Spot(2)))
    async with db.bulk() as bulk:
        for number in range(20, 140):
            await bulk.insert(Place(id=number, spot=Spot(number)))
    assert [(await get(db, number)).spot.x for number in (1, 2, 139)] == [6, 2, 139]
    await db.delete(await get(db))
    report = await db.audit(Place)
    assert (report.clean, report.entities) == (True, 121)


def test_a_snapshot_has_its_parts() -> None:
    """Each by its path, with its property and type, and whether it may be absent."""
    (layout,) = describe_models([Place]).models
    found = [(name, each.property, each.edm) for name, each in layout.fields.items() if name.startswith("last")]
    assert found == [("last.x", "Last_x", "Edm.Int64"), ("last.y", "Last_y", "Edm.Double")]


async def test_a_merge_never_mixes_two_values(db: Database) -> None:
    """A member that the new value does not have would stay in the row: a merge of it is rejected, a save removes it."""
    await db.insert(Place(id=1, spot=Spot(1, 1.5)))
    place = await get(db)
    place.spot = Spot(2)
    with pytest.raises(EncodeError, match=r"spot\.y.*merge cannot remove"):
        await db.merge(place, only=[Place.spot])
    with pytest.raises(EncodeError, match=r"spot\.y.*merge cannot remove"):
        await db.merge(place)
    for blind in (Place(id=1, spot=Spot(3)), Place(id=1, spot=Spot(3), last=Spot(4, 1.0))):
        with pytest.raises(EncodeError, match=r"spot\.y.*merge cannot remove"):
            await db.upsert(blind, mode="merge")
    async with db.bulk(errors="report") as bulk:
        with pytest.raises(EncodeError, match=r"spot\.y"):
            await bulk.upsert(Place(id=1, spot=Spot(3)), mode="merge")
    assert (await get(db)).spot == Spot(1, 1.5)
    await db.save(place)
    assert (await get(db)).spot == Spot(2)
    await db.upsert(Place(id=1, spot=Spot(3, 3.5)), mode="merge")
    assert (await get(db)).spot == Spot(3, 3.5)


async def test_a_part_is_compared(db: Database) -> None:
    """The service evaluates it; of the field as a whole a query asks whether it is there, or what its kind offers."""
    for number in range(6):
        last = Spot(number, None if number % 2 else 1.5) if number > 1 else None
        await db.insert(Place(id=number, spot=Spot(number), last=last))
    everything = db.select(Place)

    async def found(*where: Expression) -> list[int]:
        return [each.id for each in await everything.where(*where).all()]

    assert await found(Place.spot.x > 3) == [4, 5]
    assert await found((Place.spot.x < 2) | (Place.last.y == 1.5)) == [0, 1, 2, 4]
    assert await found(Place.last.is_none()) == [0, 1]
    assert await found(~Place.last.is_none(), Place.last.y.is_none()) == [3, 5]
    assert await found(Place.last == Spot(4, 1.5)) == [4]
    assert "then here: Place.last.x.is_none()" in str(everything.where(Place.last.x.is_none()).explain())
    with pytest.raises(EncodeError, match=r"Place.spot > .*compare a part of it: Place.spot.x, Place.spot.y"):
        _ = Place.spot > Spot(1)
    with pytest.raises(EncodeError, match="compare a part of it"):
        Place.spot.in_([Spot(1)])
    assert str(pickle.loads(pickle.dumps(Place.spot.x > 3))) == "Place.spot.x > 3"


async def test_a_projection_has_the_whole_of_it(db: Database) -> None:
    """Asked for as a whole or by a part: an entity has all of a value or nothing; a save of it writes what changed."""
    await db.insert(Place(id=1, spot=Spot(1, 1.5), last=Spot(2, 2.5)))
    for asked in (Place.spot, Place.spot.x):
        place = await db.select(Place).only(asked).one()
        assert place.spot == Spot(1, 1.5)
        with pytest.raises(NotLoaded):
            _ = place.last
    place = await db.select(Place).only(Place.age).one()
    place.last = Spot(3)  # of what was not read, the row tells whether there is something to remove
    await db.save(place)
    assert (await get(db)).last == Spot(3)
    await db.insert(Place(id=2, spot=Spot(1), home=Spot(0)))
    place = await db.select(Place).where(Place.id == 2).only(Place.home).one()
    place.home = Spot(0, 0.5)  # the default, and not what the row has
    await db.save(place)
    assert (await get(db, 2)).home == Spot(0, 0.5)


def test_json_is_that_of_the_value() -> None:
    """Clients see a value and no properties; what does not fit is rejected with its path."""
    place = from_dict(Place, {"id": 1, "spot": {"x": 1, "y": 2.5}, "last": None})
    assert place.spot == Spot(1, 2.5)
    assert to_dict(place)["spot"] == Spot(1, 2.5)
    adapter = TypeAdapter(Place)
    assert b'"spot":{"x":1,"y":2.5}' in adapter.dump_json(place)
    assert adapter.json_schema()["properties"]["spot"] == {"$ref": "#/$defs/Spot"}
    with pytest.raises(InvalidInput, match=r"spot.*unlucky"):
        from_dict(Place, {"id": 1, "spot": {"x": 13}})
    with pytest.raises(InvalidInput, match=r"spot\.x|spot.*x"):
        from_dict(Place, {"id": 1, "spot": {"x": "no"}})


async def test_a_value_that_does_not_fit_is_refused(db: Database) -> None:
    """With the model and the field: of another type, or one that its shape or a member refuses."""
    with pytest.raises(EncodeError, match=r"Place\.spot.*a Spot"):
        Place(id=1, spot=(1, 2))  # type: ignore[arg-type]
    for bad, problem in ((Spot(13), "unlucky"), (Spot("a"), "a str, not an int"), (Spot(2**63), "range")):  # type: ignore[arg-type]
        with pytest.raises(EncodeError, match=rf"Place\.spot.*{problem}"):
            await db.insert(Place(id=1, spot=bad))


KEYS: dict[str, Any] = {"table": "Toys2", "partition_key": "c", "row_key": "r"}
REQUIRED = pair()


def refuses(problem: str, kind: Any = Pairs[Spot], declared: Any = REQUIRED, derived: Any = None) -> None:
    with pytest.raises(ModelError, match=rf"Refused\.(spot|by_spot).*{problem}"):

        class Refused(Entity, **KEYS):  # pyright: ignore[reportUnusedClass]
            spot: kind = declared  # pyright: ignore[reportInvalidTypeForm]
            if derived is not None:
                by_spot = derived


def test_what_takes_a_field_of_one_property_refuses_it() -> None:
    """Keys, lists by each, sums, counts, copies, expiry and maintained fields, when the class is made."""
    with pytest.raises(ModelError, match="spot"):

        class Keyed(Entity, table="Toys2", partition_key="c", row_key="{spot}"):  # pyright: ignore[reportUnusedClass]
            spot: Pairs[Spot]

    optional = Pairs[Spot | None]
    refuses("take 'each' of this type", derived=IndexList(row_key="list_{spot:each}"))
    refuses(r"field\(maintained=True\).* 2 properties", optional, pair(default=None, maintained=True))
    refuses(r"field\(expiry=True\)", optional, pair(default=None, expiry=True))
    refuses(r"field\(expiry=True\)", Moments[dt.datetime | None], pair(default=None, expiry=True))
    refuses("'spot' is stored in 2 properties", derived=Sum("spot", lambda: Shop.name, id="1"))  # type: ignore[arg-type, return-value]
    refuses(r"Place\.spot\.x is not a maintained field", derived=Count(lambda: Place.spot.x, id="1"))

    with pytest.raises(ModelError, match=r"Copying\.source: 'spot' of Whole is stored in 2 properties"):

        class Whole(Entity, table="Toys2", partition_key="c", row_key="{id}", tracked=True):
            id: Mapped[int]
            spot: Pairs[Spot]

        class Copying(Entity, table="Toys2", partition_key="c", row_key="copy_{id}"):  # pyright: ignore[reportUnusedClass]
            id: Mapped[int]
            copied: Mapped[Spot | None] = field(default=None, maintained=True)
            source = Embedded(Whole, {"copied": "spot"}, id="{id}")


def test_names_and_defaults_are_checked() -> None:
    """Members must not have the name of another property, and a default must be one that can be stored."""
    with pytest.raises(ModelError, match=r"'spot_x' and 'spot\.x' are both stored as 'spot_x'"):

        class Twice(Entity, **KEYS):  # pyright: ignore[reportUnusedClass]
            spot_x: Mapped[int]
            spot: Pairs[Spot]

    refuses("has the default .* unlucky", declared=pair(default=Spot(13)))

    class Base(Entity, abstract=True):
        spot: Pairs[Spot]

    with pytest.raises(ModelError, match=r"Child\.spot has other members than Base\.spot"):

        class Child(Base, **KEYS):  # pyright: ignore[reportUnusedClass]
            spot: Mapped[Spot]  # pyright: ignore[reportIncompatibleVariableOverride]


async def test_a_filled_value_is_written(db: Database) -> None:
    """`on_write` makes a value of several members, unless another was assigned."""
    made = iter([Spot(1), Spot(2, 0.0), Spot(3)])

    class Noted(Entity, table="Toys", partition_key="c", row_key="noted"):
        at: Mapped[dt.datetime | None] = field(default=None)
        spot: Pairs[Spot | None] = pair(default=None, on_write=lambda: next(made))

    noted = Noted()
    await db.insert(noted)
    noted.at = dt.datetime.now(dt.UTC)
    await db.save(noted)
    assert (await db.get(Noted)).spot == Spot(2, 0.0)
    for assigned in (Spot(2, -0.0), Spot(9)):
        noted.spot = assigned
        await db.save(noted)
        assert str((await db.get(Noted)).spot) == str(assigned)
