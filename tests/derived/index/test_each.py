"""
Indexes of the elements of a list: an entity has an entry for each of them, and comes once in what a query finds.

What there ought to be is said once more here, by hand, from the rows of the entities.
"""

import enum
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from tableorm import (
    Damage,
    Database,
    EncodeError,
    Entity,
    Expression,
    Index,
    Key,
    LimitExceeded,
    Mapped,
    ModelError,
    PropertyBag,
    UniqueViolation,
    field,
    from_dict,
    to_dict,
)
from tableorm.stores import Operation, Verb
from tests.databases import memory_database
from tests.derived.index.oracle import Bag, Copies, Kind, audit, read_table
from tests.faults import QUICK


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Club(Entity, table="Clubs", partition_key="{town}", row_key="club_{name}"):
    town: Mapped[str]
    name: Mapped[str]


class AnyFan(Entity, table="Fans", partition_key="{town}", row_key="fan_{id:03d}", abstract=True):
    town: Mapped[str] = field(default="t")
    id: Mapped[int] = field(default=1)
    name: Mapped[str] = field(default="n")
    tags: Mapped[list[str]] = field(factory=list)
    clubs: Mapped[list[Key[Club]]] = field(factory=list)
    numbers: Mapped[list[int] | None] = field(default=None)


class Plain(AnyFan, kind="Fan"): ...


class Fan(AnyFan):
    by_tag = Index(row_key="tag_{tags:each}_{id:03d}")
    by_club = Index(row_key="club-{clubs:each}_{id:03d}", include="keys")
    by_number = Index(row_key="number_{numbers:each}_{id:03d}", include=["name"])
    by_own = Index(row_key="own_{numbers:each}", unique=True, where=lambda fan: fan.name == "owner")


UNTYPED: Any = Fan

CLUBS = [Club(town="a|b", name=name).key for name in ("x_y", "x", "x|/")]


def escaped(text: str) -> str:
    """A text as a key has it in front of `_`."""
    return "".join(f"^{ord(char):02X}" if char in "^/_" else char for char in text)


def keys_of_clubs(bag: Bag) -> set[str]:
    """The RowKeys of the entries by the clubs of a fan."""
    clubs = [(each["partition_key"].replace("|", "^7C"), each["row_key"]) for each in json.loads(bag["clubs"])]
    return {f"club-{escaped('|'.join(keys))}_{bag['id']:03d}" for keys in clubs}


def numbers_of(bag: Bag) -> list[int]:
    numbers: list[int] = json.loads(bag.get("numbers", "[]"))
    return numbers


FAN = Kind(
    "Fan",
    lambda town, row_key: {"town": town, "id": int(row_key.removeprefix("fan_"))},
    (
        Copies("by_tag", lambda e: {f"tag_{escaped(tag)}_{e['id']:03d}" for tag in json.loads(e["tags"])}),
        Copies("by_club", keys_of_clubs, frozenset()),
        Copies("by_number", lambda e: {f"number_{each}_{e['id']:03d}" for each in numbers_of(e)}, frozenset({"name"})),
        Copies(
            "by_own",
            lambda e: {f"own_{each}" for each in numbers_of(e) if e["name"] == "owner"},
            adds=lambda e: {"id": e["id"]},
        ),
    ),
)


async def wrong_rows(db: Database) -> list[str]:
    """What is wrong with the rows of the table, in words."""
    return audit(await read_table(db, "Fans"), (FAN,))


@pytest.fixture
async def db() -> Any:
    async with memory_database(Fan, retry=QUICK) as db:
        yield db


async def test_a_change_writes_what_came_and_went(db: Database) -> None:
    """Entries of elements that stay are written only if they hold what changes."""
    fan = Fan(tags=["a", "b"], clubs=CLUBS[:2], numbers=[1, 2, 2])
    await db.insert(fan)

    async def written() -> set[str]:
        with db.observe() as seen:
            await db.save(fan)
        (request,) = seen.requests
        return {f"{each.verb.name.split('_')[-1].lower()} {each.row['RowKey']}" for each in request.operations}

    fan.clubs, fan.numbers = CLUBS[1:], [2, 3]
    changed = await written()
    assert {each for each in changed if "number" in each} == {"delete number_1_001", "insert number_3_001"}
    assert len([each for each in changed if "club-" in each]) == 2
    fan.name = "m"
    assert {each.split("_")[0] for each in await written()} == {"merge fan", "replace tag", "replace number"}


T, C, N = Fan.tags, Fan.clubs, Fan.numbers
CONDITIONS: list[tuple[Expression, Callable[[Fan], bool]]] = [
    (T.contains("a"), lambda fan: "a" in fan.tags),
    (T.contains("a_b"), lambda fan: "a_b" in fan.tags),
    (T.contains("a") & T.contains("x/y"), lambda fan: {"a", "x/y"} <= {*fan.tags}),
    (T.contains("a") | T.contains(""), lambda fan: "a" in fan.tags or "" in fan.tags),
    (T.contains("a") & ~T.contains("^"), lambda fan: "a" in fan.tags and "^" not in fan.tags),
    (~T.contains("a"), lambda fan: "a" not in fan.tags),
    (T.contains("a") & Fan.id.in_([1, 2, 9]), lambda fan: "a" in fan.tags and fan.id in (1, 2, 9)),
    (
        (T.contains("a") & (Fan.id == 1)) | T.contains("^"),
        lambda fan: ("a" in fan.tags and fan.id == 1) or "^" in fan.tags,
    ),
    (C.contains(CLUBS[0]), lambda fan: CLUBS[0] in fan.clubs),
    (C.contains(CLUBS[1]) | C.contains(CLUBS[2]), lambda fan: not {*CLUBS[1:]}.isdisjoint(fan.clubs)),
    (C.contains(CLUBS[1]) & C.contains(CLUBS[2]), lambda fan: {*CLUBS[1:]} <= {*fan.clubs}),
    (C.contains(CLUBS[1]) & T.contains("a"), lambda fan: CLUBS[1] in fan.clubs and "a" in fan.tags),
    (N.contains(-1), lambda fan: -1 in (fan.numbers or [])),
    (~N.contains(1), lambda fan: fan.numbers is not None and 1 not in fan.numbers),
    (Fan.id >= 5, lambda fan: fan.id >= 5),
    (Fan.name == "m", lambda fan: fan.name == "m"),
]


@pytest.fixture(scope="module")
def fans() -> list[Fan]:
    """Fans of every sort, some without any element."""
    tags = ["a", "a_b", "x/y", "^", ""]
    return [
        Fan(
            id=number,
            name="nm"[number % 2],
            tags=[*(tag for at, tag in enumerate(tags) if number >> at & 1), *tags[: number % 2]],
            clubs=[club for at, club in enumerate(CLUBS) if number * 5 >> at & 1],
            numbers=None if number % 4 == 0 else [number % 3 - 1, 1][: number % 4],
        )
        for number in range(24)
    ]


@pytest.mark.parametrize("index", [Fan, Fan.by_tag, Fan.by_club, Fan.by_number], ids=str)
async def test_an_entity_comes_once(db: Database, fans: list[Fan], index: Any) -> None:
    """Whatever the conditions, and however a query is read, each entity that satisfies them comes once."""
    async with db.bulk() as bulk:
        for fan in fans:
            await bulk.insert(fan)
    of = {Fan.by_tag: "tags", Fan.by_club: "clubs", Fan.by_number: "numbers"}.get(index)
    refused = 0
    for condition, holds in CONDITIONS:
        wanted = [fan.id for fan in fans if holds(fan) and (of is None or getattr(fan, of))]
        query = db.select(index).where(Fan.town == "t", condition)
        try:
            found = [fan.id for fan in await query.all()]
        except ModelError as error:
            refused += index is Fan.by_number and ("contains" in str(error) or "include=" in str(error))
            continue
        assert sorted(found) == wanted, condition
        assert len(wanted) == await query.count() == len(await query.only(Fan.id).all())
        assert [fan.id async for page in query.pages(3) for fan in page.items] == found
        assert [fan.id for fan in await query.limit(5).all()] == found[:5]
        parts = [[fan.id for fan in await part.all()] for part in query.split(3)]
        assert sorted(number for part in parts for number in part) == wanted
        loaded = {fan.id: fan for fan in await query.all()}
        if index is not Fan.by_number:
            assert all(to_dict(loaded[number]) == to_dict(fans[number]) for number in wanted)
    assert refused == (len(CONDITIONS) - 1 if index is Fan.by_number else 0)


HARM: dict[str, tuple[set[Damage], Callable[[PropertyBag], list[Operation]]]] = {
    "an entry is gone": ({Damage.MISSING}, lambda bag: [Operation(Verb.DELETE, _key("tag_a_001"), "*")]),
    "an entry is old": ({Damage.STALE}, lambda bag: [Operation(Verb.MERGE, {**_key("tag_a_001"), "name": "old"}, "*")]),
    "an entry too many": (
        {Damage.ORPHAN},
        lambda bag: [
            Operation(Verb.INSERT, {**_key("tag_q_001"), "_of": "fan_001", "EntityType": "Fan#by_tag", "tags": "[]"})
        ],
    ),
    "the manifest lacks one": (
        {Damage.MANIFEST},
        lambda bag: [_note(bag, [each for each in _noted(bag) if each != "tag_a_001"])],
    ),
    "the manifest names one too many": ({Damage.MANIFEST}, lambda bag: [_note(bag, [*_noted(bag), "tag_q_001"])]),
    "the manifest names the entity of another": (
        {Damage.MANIFEST},
        lambda bag: [_note(bag, [*_noted(bag), "fan_002", "tag_a_002"])],
    ),
}


def _key(row_key: str) -> dict[str, Any]:
    return {"PartitionKey": "t", "RowKey": row_key}


def _noted(bag: PropertyBag) -> list[str]:
    return [*json.loads(bag["_ix"])["by_tag"]["each"][0]]


def _note(bag: PropertyBag, keys: list[str]) -> Operation:
    noted = json.dumps({**json.loads(bag["_ix"]), "by_tag": {"each": [keys]}})
    return Operation(Verb.MERGE, {**_key("fan_001"), "_ix": noted}, "*")


@pytest.mark.parametrize("harm", HARM)
async def test_audit(db: Database, harm: str) -> None:
    """An audit finds damage to entries and manifests, and repairs it; what others have is left alone."""
    await db.insert(Fan(tags=["a", "b"], clubs=CLUBS))
    await db.insert(Fan(id=2, tags=["a"]))
    bag = await db.get(PropertyBag.key("Fans", "t", "fan_001"))
    found, operations = HARM[harm]
    await db.store.transact("Fans", operations(bag))

    assert {each.damage for each in (await db.audit(Fan)).findings} == found
    await db.audit(Fan, repair=True)
    assert (await db.audit(Fan)).clean
    assert await wrong_rows(db) == []


async def test_forged_manifests_take_nothing_from_others(db: Database) -> None:
    """A manifest that names the rows of others has them read first, and they stay."""
    fan = Fan(tags=["a", "b"])
    await db.insert(fan)
    await db.insert(Fan(id=2, tags=["a"]))
    bag = await db.get(PropertyBag.key("Fans", "t", "fan_001"))
    await db.store.transact("Fans", [_note(bag, ["fan_002", "tag_a_001", "tag_a_002", "tag_b_001"])])

    fan = await db.get(fan.key)
    fan.tags = []
    await db.save(fan)

    assert [each.id for each in await db.select(Fan.by_tag).where(Fan.town == "t").all()] == [2]
    assert await wrong_rows(db) == []


async def test_each_element_is_unique(db: Database) -> None:
    """A unique index takes each element once in a partition; an element that one gives up, another one can take."""
    one, two = (Fan(id=number, name="owner", numbers=[number, number + 10]) for number in (1, 2))
    await db.insert(one)
    await db.insert(two)
    with pytest.raises(UniqueViolation, match="numbers=12 already"):
        await db.modify(one.key, lambda fan: (fan.numbers or []).append(12))
    assert (await db.get(Fan.by_own, town="t", numbers=12)).id == 2

    async with db.transaction() as tx:
        mine, yours = await tx.get(one.key), await tx.get(two.key)
        mine.numbers, yours.numbers = yours.numbers, mine.numbers
        tx.save(mine)
        tx.save(yours)
    assert (await db.get(Fan.by_own, town="t", numbers=12)).id == 1
    assert await wrong_rows(db) == []


async def test_a_transaction_has_room_for_so_many(db: Database) -> None:
    """More entries than a transaction takes are rejected before anything is sent, with their number and the remedy."""
    fan = Fan(tags=[str(number) for number in range(99)])
    await db.insert(fan)
    fan.tags = [*fan.tags[:50], *(f"n{number}" for number in range(10))]
    with pytest.raises(
        LimitExceeded, match=r"tags has 60 elements, .* 60 entries of index Fan.by_tag .* and 49 deleted"
    ):
        await db.save(fan)
    with pytest.raises(LimitExceeded, match=r"tags has 100 elements.*store an entity for each"):
        await db.insert(Fan(id=2, tags=[str(number) for number in range(100)]))
    assert await wrong_rows(db) == []
    await db.delete(fan.key, if_match="*")
    assert await db.select_raw("Fans").allow_scan().count() == 0


async def test_moves_and_builds(db: Database) -> None:
    """Entries move with their entity to another partition, and an index that comes later is built."""
    for number in range(30):
        await db.insert(Plain(id=number, tags=["a", f"b{number}"][: number % 3], clubs=CLUBS[: number % 4]))
    for name in ("by_tag", "by_club", "by_number", "by_own"):
        await db.build_index(getattr(Fan, name))
    assert await wrong_rows(db) == []
    assert len(await db.select(Fan.by_tag).where(Fan.town == "t", T.contains("a")).all()) == 20

    moved = await db.get(Fan, town="t", id=5)
    await db.move(moved, town="u")
    assert [fan.id for fan in await db.select(Fan.by_tag).where(Fan.town == "u", T.contains("a")).all()] == [5]
    assert await wrong_rows(db) == []


def test_links_in_lists() -> None:
    """A list of keys is JSON as a link is, and takes keys of its model alone."""
    fan = Fan(clubs=CLUBS[:1])

    assert to_dict(fan, "json")["clubs"] == [{"partition_key": "a|b", "row_key": CLUBS[0].row_key}]
    assert from_dict(Fan, to_dict(fan, "json")) == from_dict(Fan, to_dict(fan)) == fan
    for wrong in ("x", [fan.key], [None], ["x"]):
        with pytest.raises(EncodeError, match=r"Fan.clubs: .*list\[Key\[Club\]\]"):
            Fan(clubs=wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: UNTYPED.id.contains(3), "Fan.id.contains.* the field is no list"),
        (lambda: UNTYPED.tags.contains(3), "the value .*the field is list.str"),
        (lambda: UNTYPED.clubs.contains(Fan.key(town="t", id=1)), "is a key of Fan"),
        (lambda: Fan.clubs == [], "use contains"),
        (lambda: Fan.tags == ["a"], "use contains"),
    ],
)
def test_conditions_that_are_refused(make: Callable[[], object], problem: str) -> None:
    """A condition that no list can satisfy is rejected where it is written."""
    with pytest.raises((ModelError, EncodeError), match=problem):
        make()


async def test_queries_are_pickled(db: Database) -> None:
    """A query for an element of a list, a link among them, is the same in another process."""
    await db.insert(Fan(tags=["a"], clubs=CLUBS))
    query = db.select(Fan.by_club).where(Fan.town == "t", C.contains(CLUBS[0]), T.contains("a"))

    assert [fan.id for fan in await pickle.loads(pickle.dumps(query)).bind(db).all()] == [1]
