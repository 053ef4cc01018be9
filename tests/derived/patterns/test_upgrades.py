"""
Versions of what counts, keeps, holds and is held: nothing is lost or stale when properties get other names.
"""

import asyncio
from typing import Any

import pytest

from tableorm import (
    AuditReport,
    Conflict,
    Count,
    Database,
    Embedded,
    Entity,
    Index,
    IndexList,
    Int32,
    Mapped,
    NotSupported,
    PropertyBag,
    Sum,
    field,
    upgrade,
)
from tests.database.conftest import also_in_file


class TeamV1(Entity, kind="Team", table="Firm", partition_key="{name}", row_key="team"):
    name: Mapped[str]
    title: Mapped[str] = field(default="a")
    size: Mapped[int] = field(default=0, maintained=True)
    points: Mapped[int] = field(default=0, maintained=True)
    lead_id: Mapped[int | None] = field(default=None)
    lead_nick: Mapped[str | None] = field(default=None, maintained=True)

    by_title = Index(row_key="title_{title}", unique=True)
    lead = Embedded(lambda: MemberV1, {"lead_nick": "nick"}, team="{name}", id="{lead_id}")


class MemberV1(Entity, kind="Member", table="Firm", partition_key="{team}", row_key="member_{id:03d}"):
    team: Mapped[str]
    id: Mapped[int]
    nick: Mapped[str] = field(default="x")
    points: Mapped[int] = field(default=1)

    by_nick = IndexList(row_key="nick_{nick}")
    counted = Count(lambda: TeamV1.size, name="{team}")
    summed = Sum("points", lambda: TeamV1.points, name="{team}")


class Team(Entity, table="Firm", partition_key="{name}", row_key="team", version=2):
    name: Mapped[str]
    heading: Mapped[str] = field(default="a")
    members: Mapped[int] = field(default=0, maintained=True)
    score: Mapped[int] = field(default=0, maintained=True)
    lead_id: Mapped[int | None] = field(default=None)
    lead_name: Mapped[str | None] = field(default=None, maintained=True)

    by_title = Index(row_key="title_{heading}", unique=True, building=False)
    lead = Embedded(lambda: Member, {"lead_name": "name"}, team="{name}", id="{lead_id}")


TEAM = Team.key(name="Blue")


class Member(Entity, table="Firm", partition_key="{team}", row_key="member_{id:03d}", version=2):
    team: Mapped[str]
    id: Mapped[int]
    name: Mapped[str] = field(default="x")
    points: Mapped[int] = field(default=1)

    by_nick = IndexList(row_key="nick_{name}", building=False)
    counted = Count(lambda: Team.members, name="{team}")
    summed = Sum("points", lambda: Team.score, name="{team}")


MEMBER = Member.key(team="Blue", id=0)


@upgrade(Team, from_version=1)
def team_of_old(bag: PropertyBag) -> PropertyBag:
    for old, new in (("title", "heading"), ("size", "members"), ("points", "score"), ("lead_nick", "lead_name")):
        if old in bag:
            bag[new] = bag.pop(old)
    return bag


@upgrade(Member, from_version=1)
def member_of_old(bag: PropertyBag) -> PropertyBag:
    bag["name"] = bag.pop("nick")
    return bag


@pytest.fixture
async def old(db: Database) -> Database:
    """A team of three, of the version before, that is led by the first."""
    await db.insert(TeamV1(name="Blue"))
    for number in range(3):
        await db.insert(MemberV1(team="Blue", id=number, nick=f"n{number}", points=10))
    await db.modify(TeamV1, lambda team: team.evolve(lead_id=0), name="Blue")
    return db


async def blue(db: Database) -> tuple[int, int, str | None]:
    team = await db.get(TEAM)
    return team.members, team.score, team.lead_name


async def audited(db: Database) -> AuditReport:
    report = await db.audit(Team, Member)
    assert (report.clean, report.findings) == (True, ())
    return report


async def test_who_keeps_a_count_is_upgraded_with_it(old: Database) -> None:
    """By the first that is counted; an upgrade later would otherwise run over what was added."""
    await old.insert(Member(team="Blue", id=7, points=5))
    assert await blue(old) == (4, 35, "n0")
    assert (await old.get(PropertyBag.key("Firm", "Blue", "team")))["EntityType"] == "Team:2"
    assert (await old.get(Team.by_title, name="Blue", heading="a")).lead_id == 0
    await audited(old)


async def test_what_was_counted_before_is_taken_back_by_its_new_name(old: Database) -> None:
    """A deleted member, one that is changed, and one that is read and saved."""
    await old.delete(Member, team="Blue", id=1, if_match="*")
    assert await blue(old) == (2, 20, "n0")
    await old.modify(Member, lambda member: member.evolve(points=3), team="Blue", id=2)
    assert await blue(old) == (2, 13, "n0")
    async with old.transaction() as tx:
        await tx.modify(Member, lambda member: member.evolve(points=4), team="Blue", id=2)
        await tx.modify(TEAM, lambda team: team.evolve(heading="b"))
    assert await blue(old) == (2, 14, "n0")
    await audited(old)


async def test_a_saved_team_that_was_upgraded_counts_on(old: Database) -> None:
    """The team first, its members later; the count goes down to nothing, and the team can go."""
    team = await old.get(TEAM)
    team.lead_id = None
    await old.save(team)
    assert await blue(old) == (3, 30, None)
    with pytest.raises(Conflict, match="its members is 3"):
        await old.delete(team)
    report = await old.select(Member).where(Member.team == "Blue").delete()
    assert (report.written, report.failures) == (3, 0)
    assert await blue(old) == (0, 0, None)
    await old.delete(TEAM, if_match="*")


async def test_a_team_of_old_in_which_others_count_is_not_deleted(old: Database) -> None:
    """By its key, and by a query, of which the rows are of the version before."""
    await old.modify(TeamV1, lambda team: team.evolve(lead_id=None), name="Blue")
    with pytest.raises(Conflict, match="its members is 3"):
        await old.delete(TEAM, if_match="*")
    report = await old.select(Team).where(Team.name == "Blue").delete()
    assert (report.written, report.failures) == (0, 1)
    assert isinstance(report.failed[0].error, Conflict)


@also_in_file
async def test_many_at_once_upgrade_it_once(old: Database) -> None:
    """Of those that race the others add to what is there then."""
    await asyncio.gather(*(old.insert(Member(team="Blue", id=10 + number, points=1)) for number in range(8)))
    assert await blue(old) == (11, 38, "n0")
    await audited(old)


async def test_a_program_of_old_does_not_count_in_what_is_newer(old: Database) -> None:
    """It would begin a count of its own; the message says what to do, and nothing is written."""
    await old.save(await old.get(TEAM))
    with pytest.raises(NotSupported, match=r"of version 2 of TeamV1, .* has no 'size' to count in; update"):
        await old.insert(MemberV1(team="Blue", id=9))
    assert await blue(old) == (3, 30, "n0")
    assert not await old.exists(Member, team="Blue", id=9)


async def test_who_holds_copies_gets_them_under_their_new_name(old: Database) -> None:
    """The team is upgraded, and its leader, of the version before or not, changes afterwards."""
    await old.save(await old.get(TEAM))
    assert await blue(old) == (3, 30, "n0")
    await old.modify(MEMBER, lambda member: member.evolve(name="Zoe"))
    assert await blue(old) == (3, 30, "Zoe")
    assert await old.lookup(Member.by_nick, team="Blue", name="n0") == []
    await audited(old)


async def test_whose_fields_are_copied_can_be_upgraded(old: Database) -> None:
    """The leader first, while the team is of the version before."""
    await old.save(await old.get(MEMBER))
    assert (await old.get(TEAM)).lead_name == "n0"
    await old.modify(MEMBER, lambda member: member.evolve(name="Zoe"))
    assert await blue(old) == (3, 30, "Zoe")
    await audited(old)


class AnyCrew(Entity, table="Firm", partition_key="{name}", row_key="crew", tracked=True, abstract=True):
    name: Mapped[str]
    note: Mapped[str | None] = field(default=None)
    chief_id: Mapped[int | None] = field(default=None)
    chief_name: Mapped[str | None] = field(default=None, maintained=True)

    chief = Embedded(lambda: Member, {"chief_name": "name"}, team="{name}", id="{chief_id}")


class Crew(AnyCrew): ...


class CrewAsIs(AnyCrew, kind="Crew"):
    """The same, as a class that got another name."""


async def test_a_class_can_be_renamed(db: Database) -> None:
    """What others note of it goes by its kind."""
    await db.insert(Team(name="Blue"))
    await db.insert(Member(team="Blue", id=0))
    await db.insert(Crew(name="Blue", chief_id=0))
    await db.modify(CrewAsIs, lambda crew: crew.evolve(note="b"), name="Blue")
    await db.modify(CrewAsIs, lambda crew: crew.evolve(chief_id=None), name="Blue")
    await db.delete(MEMBER, if_match="*")
    await audited(db)


# Keepers that are made, or lack the property


class InHouse(Entity, table="Firm", partition_key="{house}", abstract=True):
    house: Mapped[str] = field(default="a")


class Shelf(InHouse, row_key="shelf_{name}"):
    name: Mapped[str]
    books: Mapped[Int32] = field(default=5, maintained=True)
    made: Mapped[str | None] = field(default=None, on_insert=lambda: "today")

    by_made = Index(row_key="made_{made}_{name}")
    counted = Count(lambda: House.shelves, create=True, name="{house}")


SHELF = Shelf.key(house="a", name="s")


class House(Entity, table="Firm", partition_key="{name}", row_key="house"):
    name: Mapped[str]
    shelves: Mapped[int] = field(default=0, maintained=True)

    all = IndexList(row_key="all")


class ShelfOfOld(InHouse, kind="Shelf", row_key="shelf_{name}"):
    name: Mapped[str]


class Book(InHouse, row_key="book_{id}"):
    id: Mapped[int]
    shelf: Mapped[str | None] = field(default=None)

    counted = Count(lambda: Shelf.books, create=True, house="{house}", name="{shelf}")


async def test_what_is_made_to_count_in_is_a_whole_entity(db: Database) -> None:
    """With its copies and lists, what is filled on insert, and counted itself, in what is made for that."""
    await db.create_tables(Shelf, House, Book)
    await asyncio.gather(*(db.insert(Book(id=number, shelf="s")) for number in range(4)))
    assert await db.exists(Shelf.by_made, house="a", made="today", name="s")
    assert (await db.get(SHELF)).books == 9
    assert (await db.get(House, name="a")).shelves == 1
    assert await db.lookup(House.all, name="a") == [House(name="a", shelves=1)]
    report = await db.audit(Book, Shelf, House)
    assert (report.clean, report.findings) == (True, ())


class Hall(Entity, table="Firm", partition_key="{name}", row_key="hall"):
    name: Mapped[str]
    loans: Mapped[int] = field(default=0, maintained=True)


class Loan(InHouse, row_key="loan_{id}"):
    id: Mapped[int]
    shelf: Mapped[str]

    counted = Count(lambda: Shelf.books, create=True, house="{house}", name="{shelf}")
    in_hall = Count(lambda: Hall.loans, name="{house}")


@also_in_file
async def test_what_was_read_before_a_lost_race_is_read_again(db: Database) -> None:
    """The row that others have changed, and no other, whatever was made meanwhile."""
    await db.insert(Hall(name="a"))
    await asyncio.gather(*(db.insert(Loan(id=number, shelf=str(number))) for number in range(9)))
    assert (await db.get(Hall, name="a")).loans == 9
    assert (await db.get(House, name="a")).shelves == 9


async def test_a_repair_makes_a_whole_entity(db: Database) -> None:
    """Where that in which entities count is gone."""
    await db.insert(Book(id=1, shelf="s"))
    for row_key in ("shelf_s", "made_today_s"):
        await db.delete(PropertyBag.key("Firm", "a", row_key), if_match="*")
    assert (await db.audit(Book, repair=True)).clean
    assert (await db.get(SHELF)).books == 6
    assert (await db.audit(Book)).found == 0


async def test_a_count_begins_with_its_default_and_in_its_type(db: Database) -> None:
    """In a row that does not have it yet."""
    await db.insert(ShelfOfOld(name="s"))
    await db.insert(Book(id=1, shelf="s"))
    assert (await db.get(SHELF)).books == 6
    await db.delete(Book, house="a", id=1, if_match="*")
    await db.delete(SHELF, if_match="*")


class Place(InHouse, row_key="place_{name}", abstract=True):
    name: Mapped[str]
    things: Mapped[int] = field(default=0, maintained=True)


class Desk(Place): ...


class Box(Place): ...


class Thing(InHouse, row_key="thing_{id}"):
    id: Mapped[int]
    place: Mapped[str | None] = field(default=None)

    counted = Count(lambda: Place.things, house="{house}", name="{place}")


async def test_entities_of_several_kinds_can_keep_a_count(db: Database) -> None:
    """The field is that of their abstract base."""
    await db.insert(Desk(name="x"))
    await db.insert(Box(name="y"))
    for number, place in enumerate(["x", "y", "y"]):
        await db.insert(Thing(id=number, place=place))
    assert [each.things for each in await db.select(Place).where(Place.house == "a").all()] == [1, 2]
    assert (await db.audit(Thing)).found == 0


# One name for another sort of thing


class AnyNote(InHouse, row_key="note_{id}", abstract=True):
    id: Mapped[int]
    topic: Mapped[str]


class Listed(AnyNote, kind="Note"):
    by_topic = IndexList(row_key="topic_{topic}")


class Indexed(AnyNote, kind="Note"):
    by_topic = Index(row_key="topic_{topic}_{id}")


@pytest.mark.parametrize(("before", "after"), [(Listed, Indexed), (Indexed, Listed)])
async def test_a_name_can_get_another_meaning(db: Database, before: Any, after: Any) -> None:
    """An index becomes a list or the other way round: what is there goes with the next write of an entity."""
    for number in range(3):
        await db.insert(before(id=number, topic="x"))
    await db.modify(after, lambda note: note.evolve(topic="y"), house="a", id=0)
    await db.delete(after, house="a", id=1, if_match="*")
    assert (await db.build_index(after.by_topic, no_older_writers=True)).readable
    assert (await db.audit(after)).found == 0
    found = await read_by(db, after)
    assert found == {"x": [2], "y": [0]}


async def read_by(db: Database, model: Any) -> dict[str, list[int]]:
    """By topic the numbers of the notes."""
    found: dict[str, list[int]] = {}
    for topic in ("x", "y"):
        if model is Listed:
            found[topic] = [note.id for note in await db.lookup(Listed.by_topic, house="a", topic=topic)]
        else:
            query = db.select(Indexed.by_topic).where(Indexed.house == "a", Indexed.topic == topic)
            found[topic] = [note.id for note in await query.all()]
    return found
