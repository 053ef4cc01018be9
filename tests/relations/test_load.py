"""Loading relations: what it finds, with how many requests, and what happens while others write."""

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm import (
    Database,
    Entity,
    Key,
    Mapped,
    ModelError,
    MovedFrom,
    MultipleEntitiesFound,
    NotLoaded,
    PropertyBag,
    field,
    many,
    one,
    to_dict,
)
from tableorm.connection.connection import connection_of
from tableorm.expressions import Expression
from tableorm.stores import Row
from tableorm.stores.layers import StoreLayer, StoreRequest
from tests.databases import database_fixture, memory_database
from tests.relations.models import Employee, Item, Purchase, Review, Team
from tests.rows import delete_row, insert_row

db = database_fixture(Team, Employee, Review)


async def fill(db: Database, sizes: dict[str, int], company: str = "c") -> list[Team]:
    """Insert teams of so many employees, and return them as they were read."""
    async with db.bulk() as bulk:
        for name, size in sizes.items():
            await bulk.insert(Team(company=company, name=name))
            for number in range(size):
                await bulk.insert(Employee(company=company, team=name, id=number, age=number))
    return await db.select(Team).where(Team.company == company).all()


def ids(team: Team) -> list[int]:
    return [each.id for each in team.employees]


class Pages(StoreLayer):
    """Answers queries with short pages, and does something after each."""

    size = 1000
    sent = 0

    async def after(self) -> None:
        """Do nothing."""

    async def send(self, request: StoreRequest) -> Any:
        if request.method not in ("query", "get"):
            return await super().send(request)
        self.sent += 1
        if request.method == "query":
            query, limit, continuation = request.arguments
            request = StoreRequest("query", request.table, (query, min(limit, self.size), continuation))
        try:
            return await super().send(request)
        finally:
            await self.after()


async def test_children_are_loaded_for_their_parents(db: Database) -> None:
    """One entity or several; a relation to one, and chains; equal keys once, and one object for each."""
    teams = await fill(db, {"a": 2, "ab": 1, "b": 0, "c": 3})
    await db.load(teams, Team.employees, Employee.own_team)
    assert [ids(team) for team in teams] == [[0, 1], [0], [], [0, 1, 2]]
    owners = [each.own_team for each in teams[3].employees]
    assert owners[0] == teams[3]
    assert owners[0] is owners[1] is owners[2]
    await db.load(teams, Team.employees.limit(1).only(Employee.age))
    assert [ids(team) for team in teams] == [[0], [0], [], [0]]
    with pytest.raises(NotLoaded):
        _ = teams[0].employees[0].boss
    await db.load([], Team.employees)


async def test_a_key_leads_to_one(db: Database) -> None:
    """A field of a key; None where it is None, and where no such entity is."""
    await fill(db, {"a": 3})
    chief, other, lost = await db.select(Employee).where(Employee.company == "c").all()
    other.boss, lost.boss = chief.key, Employee.key(company="c", team="a", id=99)
    await db.load([chief, other, lost], Employee.manager)
    assert (chief.manager, other.manager, lost.manager) == (None, chief, None)
    other.boss = lost.key
    with pytest.raises(NotLoaded, match=r"Employee\.manager was loaded for other values"):
        _ = other.manager


async def test_an_index_leads_to_children(db: Database) -> None:
    """Where fields bound an index, and not the keys."""
    teams = await fill(db, {"a": 1, "b": 1})
    async with db.bulk() as bulk:
        for number in range(5):
            await bulk.insert(Employee(company="c", team="z", id=number, nick="ab"[number % 2]))
    with db.observe() as seen:
        await db.load(teams, Team.by_name)
    assert sum(each.table == "Directory" for each in seen.requests) == 1
    assert [[each.id for each in team.by_name] for team in teams] == [[0, 2, 4], [1, 3]]


async def test_what_is_loaded_is_no_field(db: Database) -> None:
    """It is not saved, compared, shown or set; copies have it; nothing is read by looking at it."""
    (team,) = await fill(db, {"a": 2})
    with pytest.raises(NotLoaded, match=r"await db\.load\(entity, Team\.employees\)"):
        _ = team.employees
    assert not hasattr(team, "employees")
    bare = team.evolve()
    await db.load(team, Team.employees)
    assert team == bare
    assert repr(team) == repr(bare)
    assert to_dict(team) == to_dict(bare)
    assert to_dict(team, "json", relations=True)["employees"][1]["id"] == 1
    for copy in (team.evolve(), pickle.loads(pickle.dumps(team))):
        assert copy.employees == team.employees
    assert not db.explain_write("save", team).steps
    with pytest.raises(ModelError, match=r"Team\.employees cannot be set.*db\.insert.*db\.move\(entity, company="):
        team.employees = ()  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
    for refused in (
        lambda: team.evolve(employees=()),
        lambda: Team(company="c", name="a", employees=()),  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        lambda: delattr(team, "employees"),
    ):
        with pytest.raises(ModelError, match=r"employees.*it shows what was loaded\. Insert or delete .*db\.insert"):
            refused()
    with pytest.raises(ModelError, match=r"own_team cannot be set.*entity\.team"):
        team.employees[0].own_team = team  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]


async def test_a_query_loads_page_by_page(db: Database) -> None:
    """By `all`, iteration, pages, streams and `first`; of several models each has its own."""
    await fill(db, {"a": 1, "b": 2})
    query = db.select(Team).where(Team.company == "c").load(Team.employees)
    assert [ids(team) for team in await query.all()] == [[0], [0, 1]]
    assert [ids(team) async for team in query] == [[0], [0, 1]]
    assert [ids(team) async for page in query.pages(1) for team in page.items] == [[0], [0, 1]]
    async with query.stream() as stream:
        assert ids(await anext(aiter(stream))) == [0]
        cursor = stream.cursor
    async with query.stream(cursor) as stream:
        assert [ids(team) async for team in stream] == [[0, 1]]
    assert ids(await query.limit(1).one()) == [0]
    explained = query.load(Team.by_name, Employee.reviews).explain()
    assert explained.then == ("Team.employees", "Team.by_name", "Employee.reviews")
    assert explained.max_transactions is None
    assert str(explained).endswith(
        "rows found, and those of relations\n"
        "  then Team.employees, for what was found on each page\n"
        "  then Team.by_name, for what was found on each page\n"
        "  then Employee.reviews, for what was found on each page"
    )
    both = db.select(Team, Employee).where(Team.company == "c").load(Team.employees).load(Employee.own_team)
    found = await pickle.loads(pickle.dumps(both)).bind(db).all()
    assert sum(len(each.employees) if isinstance(each, Team) else each.own_team is not None for each in found) == 6
    with pytest.raises(ModelError, match="load relations of its results"):
        db.union(query)


async def test_a_cycle_is_loaded_as_deep_as_it_is_written(db: Database) -> None:
    """Team, employees, their team, its employees, and no further."""
    (team,) = await fill(db, {"a": 2})
    await db.load(team, Team.employees, Employee.own_team, Team.employees)
    again = team.employees[0].own_team
    assert again is not None
    assert ids(again) == [0, 1]
    with pytest.raises(NotLoaded):
        _ = again.employees[0].own_team


async def test_equal_keys_are_read_once(db: Database) -> None:
    """By `load` and `get_many`; keys that lie close together by a range."""
    await fill(db, {"a": 40})
    employees = await db.select(Employee).where(Employee.company == "c").all()
    for each in employees:
        if each.id >= 10:
            each.boss = employees[each.id % 10].key
    for explained in (db.explain_load(employees, Employee.own_team), db.explain_load(employees, Employee.manager)):
        assert explained.max_requests in (1, 11)
        assert len(explained.requests) == 1
    with db.observe() as seen:
        await db.load(employees, Employee.own_team)
        await db.load(employees, Employee.manager)
        assert (await db.get_many([employees[3].key] * 3))[2] == employees[3]
    assert [each.operation for each in seen.requests] == ["get", "query", "get"]


async def test_a_relation_to_one_refuses_several(db: Database) -> None:
    """Which one is meant nobody knows."""

    class Boss(Team, kind="Boss", row_key="boss_{name}"):
        only = one(lambda: Employee, company="{company}", team="{name}")

    await fill(db, {"a": 2, "b": 1, "d": 0})
    bosses = [Boss(company="c", name=name) for name in "bd"]
    await db.load(bosses, Boss.only)
    assert [each.only and each.only.team for each in bosses] == ["b", None]
    with pytest.raises(MultipleEntitiesFound, match=r"Boss\.only finds several"):
        await db.load(Boss(company="c", name="a"), Boss.only)


async def test_a_far_row_ends_a_range(db: Database) -> None:
    """Where a page brings rows of others above all, the rest is read one by one, never with more requests than that."""
    await fill(db, {"b": 2500, "a": 1, "c": 1, "d": 3})
    teams = [Team(company="c", name=name) for name in "acd"]
    explained = db.explain_load(teams, Team.employees)
    with db.observe() as seen:
        await db.load(teams, Team.employees)
    assert [ids(team) for team in teams] == [[0], [0], [0, 1, 2]]
    assert len(seen.requests) == explained.max_requests == 3


async def test_another_parent_is_another_load(db: Database) -> None:
    """A child that was moved has the parent that it had no more, until it is loaded again."""
    teams = await fill(db, {"a": 1, "b": 1})
    await db.load(teams, Team.employees, Employee.own_team)
    child = teams[0].employees[0]
    await db.move(child, team="b", id=5)
    with pytest.raises(NotLoaded, match="for other values"):
        _ = child.own_team
    await db.load(teams, Team.employees, Employee.own_team)
    assert [ids(team) for team in teams] == [[], [0, 5]]


async def test_a_scope_loads_its_own(db: Database) -> None:
    """Also where a relation does not name the field of the scope."""
    await fill(db, {"a": 1}, "x")
    for company in ("x", "y"):
        await fill(db, {"b": 2}, company)
    mine = db.scope(company="y")
    teams = await mine.select(Team).load(Team.employees, Employee.own_team).all()
    assert [(team.company, ids(team)) for team in teams] == [("y", [0, 1])]
    theirs = await db.get(Team, company="x", name="a")
    with pytest.raises(Exception, match=r"company"):
        await mine.load(theirs, Team.employees)


class OldHut(Entity, table="OldHuts", tracked=True, partition_key="{town}", row_key="{id:04d}"):
    town: Mapped[str]
    id: Mapped[int]
    land: Mapped[str]


class Hut(Entity, table="Huts", moved_from=MovedFrom(OldHut), partition_key="{land}", row_key="{town}_{id:04d}"):
    land: Mapped[str]
    town: Mapped[str]
    id: Mapped[int]


class Walk(Entity, table="Walks", partition_key="{land}", row_key="{id:04d}"):
    land: Mapped[str]
    id: Mapped[int]
    end: Mapped[Key[Hut] | None] = field(default=None)

    hut = one(lambda: Hut, key="end")


async def test_requests_for_entities_under_older_keys_are_not_counted(db: Database) -> None:
    """How many they are depends on the phase of the re-key, and on what is found."""
    await db.create_tables(OldHut, Hut, Walk)
    walks = [Walk(land="at", id=number, end=Hut.key(land="at", town="a", id=number)) for number in range(6)]
    for number in range(6):
        await db.insert(OldHut(land="at", town="a", id=number))
    explained = db.explain_load(walks, Walk.hut)
    with db.observe() as seen:
        await db.load(walks, Walk.hut)

    assert all(walk.hut is not None for walk in walks)
    assert len(seen.requests) > len(explained.requests) == 6
    assert explained.max_requests is None


NAMES = st.sampled_from(["a", "ab", "a_b", "b", "é", "x_y", "z"])
SIZES = st.dictionaries(NAMES, st.integers(0, 9), min_size=1)


@given(
    sizes=st.lists(SIZES, min_size=1, max_size=3),
    wanted=st.sets(NAMES, min_size=1),
    limit=st.none() | st.integers(0, 4),
    least=st.none() | st.integers(0, 8),
    page=st.sampled_from([2, 7, 1000]),
)
async def test_a_load_equals_separate_reads(
    sizes: list[dict[str, int]], wanted: set[str], limit: int | None, least: int | None, page: int
) -> None:
    """Of any graph, with any condition, limit and size of pages; and it sends no more than its explanation says."""
    async with memory_database(Team, Review) as db:
        for number, each in enumerate(sizes):
            await fill(db, each, f"c{number}")
        layer = Pages(db.store)
        layer.size = page
        connection_of(db).wrap_store(lambda _: layer)
        teams = [Team(company=f"c{number}", name=name) for number in range(len(sizes)) for name in sorted(wanted)]
        relation = Team.employees
        relation = relation if least is None else relation.where(Employee.age >= least)
        relation = relation if limit is None else relation.limit(limit)
        most = db.explain_load(teams, relation).max_requests
        before = layer.sent
        await db.load(teams, relation)
        assert most is not None
        assert page < 1000 or layer.sent - before <= most
        for team in teams:
            query = db.select(Employee).where(Employee.company == team.company, Employee.team == team.name)
            query = query if least is None else query.where(Employee.age >= least)
            assert [*team.employees] == await (query if limit is None else query.limit(limit)).all()


@given(
    rows=st.sets(st.tuples(st.integers(0, 9), st.integers(-1, 2))),
    condition=st.sampled_from([Purchase.id >= 3, Purchase.id < 5, Purchase.id <= 5]),
)
async def test_a_query_reads_children_in_the_range_of_their_parents(
    rows: set[tuple[int, int]], condition: Expression
) -> None:
    """By one request, with the same results as in turn. Items of a purchase are behind a range that ends at it."""
    async with memory_database(Purchase) as db:
        async with db.bulk() as bulk:
            for number, item in rows:
                purchase = Purchase(tenant="t", id=number, buyer=None)
                await bulk.insert(purchase if item < 0 else Item(tenant="t", purchase=number, id=item))
        query = db.select(Purchase).where(Purchase.tenant == "t", condition).load(Purchase.items)
        with db.observe() as seen:
            found = await query.all()
        assert len(seen.requests) == 1 or "<=" in str(condition)
        assert [(each, each.items) for each in found] == [(each, each.items) async for each in query]


async def test_a_query_loads_children_whose_classes_have_their_own_keys() -> None:
    """An abstract base has no RowKeys that could begin with those of its parents."""

    class Shelf(Entity, table="Shelves", partition_key="{room}", row_key="shelf"):
        room: Mapped[str]
        things = many(lambda: Thing, room="{room}", on_delete="cascade")

    class Thing(Entity, table="Shelves", partition_key="{room}", abstract=True):
        room: Mapped[str] = field(default="r")

    class Book(Thing, row_key="book"): ...

    async with memory_database(Shelf) as db:
        await db.insert(Shelf(room="r"))
        await db.insert(Book())
        (shelf,) = await db.select(Shelf).where(Shelf.room == "r").load(Shelf.things).all()
        assert shelf.things == (Book(),)


async def test_children_without_a_parent_spoil_no_query_that_reads_both() -> None:
    """One that can't be read is no result, and of many not all are read."""
    async with memory_database(Purchase) as db:
        await db.insert(Purchase(tenant="t", id=1, buyer=None))
        await db.insert(Item(tenant="t", purchase=1, id=1))
        await db.insert(PropertyBag("MisfitPurchases", "t", "purchase_002_000", {"EntityType": "Item", "size": "big"}))
        query = db.select(Purchase).where(Purchase.tenant == "t").load(Purchase.items)
        assert [len(each.items) for each in await query.all()] == [1]
        await db.delete(PropertyBag.key("MisfitPurchases", "t", "purchase_002_000"), if_match="*")
        async with db.bulk() as bulk:
            for number in range(4_000):
                await bulk.insert(Item(tenant="t", purchase=2 + number // 900, id=number % 900))
        with db.observe() as seen:
            assert [len(each.items) for each in await query.all()] == [1]
        assert sum(each.rows for each in seen.requests) < 4_000  # one page more may be on its way when it stops


@pytest.mark.parametrize("names", ["a", "a b", "a a_b c"])
async def test_limited_ranges_with_rows_of_others_take_two_requests(db: Database, names: str) -> None:
    """The keys of one team begin like those of another: a short page may bring rows of that alone, the next is full."""
    await fill(db, {"a": 0, "a_b": 100, "b": 1, "c": 3})
    teams = [Team(company="c", name=name) for name in names.split()]
    explained = db.explain_load(teams, Team.employees.limit(2))
    with db.observe() as seen:
        await db.load(teams, Team.employees.limit(2))

    assert [ids(team) for team in teams] == [
        {"a": [], "a_b": [0, 1], "b": [0], "c": [0, 1]}[team.name] for team in teams
    ]
    assert explained.max_requests is not None
    assert len(seen.requests) <= explained.max_requests == 2 * len(teams)


CHANGES = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 6)), max_size=12)


@given(there=st.sets(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 6))), changes=CHANGES)
async def test_others_write_between_requests(there: set[tuple[str, int]], changes: list[tuple[str, int]]) -> None:
    """
    Each child that is loaded was there at some moment, under its parent; each that was there throughout is loaded.
    """
    async with memory_database(Team) as db:
        teams = await fill(db, dict.fromkeys("abc", 0))
        now, ever, always = set(there), set(there), set(there)
        for team, number in there:
            await insert_row(db, "Directory", row_of(team, number))
        left = iter(changes)

        class Busy(Pages):
            size = 2

            async def after(self) -> None:
                for change in left:
                    write = delete_row if change in now else insert_row
                    await write(self.below, "Directory", row_of(*change))
                    now.symmetric_difference_update({change})
                    ever.add(change)
                    always.intersection_update(now)
                    break

        connection_of(db).wrap_store(Busy)
        await db.load(teams, Team.employees)
        found = {(team.name, each.id) for team in teams for each in team.employees}
        assert all(each.team == team.name for team in teams for each in team.employees)
        assert always <= found <= ever


def row_of(team: str, number: int) -> Row:
    return {"PartitionKey": "c", "RowKey": f"emp_{team}_{number:06d}", "EntityType": "Employee", "age": 1}
