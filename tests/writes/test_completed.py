"""
Writes that read the row first, and several partial writes of one row: what is sent, and what the entity knows then.
"""

from typing import Any

import pytest

from tableorm import (
    BulkFailed,
    Count,
    Database,
    Entity,
    EntityNotFound,
    Index,
    Key,
    Mapped,
    PropertyBag,
    ReferenceNotFound,
    TransactionFailed,
    WrongKind,
    field,
)
from tests.rows import delete_row
from tests.writes.verbs import write


class Team(Entity, table="Teams", partition_key="{name}", row_key="team"):
    name: Mapped[str] = field(default="a")
    motto: Mapped[str | None] = field(default=None)
    goal: Mapped[str | None] = field(default=None)


class Club(Team, row_key="club"):
    members: Mapped[int] = field(default=0, maintained=True)


class Member(Entity, table="Teams", partition_key="{club}", row_key="member_{number}"):
    club: Mapped[str] = field(default="a")
    number: Mapped[int]
    email: Mapped[str] = field(default="x")
    by_email = Index(row_key="email_{email}_{number}")
    counted = Count(lambda: Club.members, name="{club}")


BAG = PropertyBag.key("Teams", "a", "club")


@pytest.fixture
async def teams(db: Database) -> Database:
    await db.create_tables(Team, Club, Member)
    return db


async def stored(db: Database, key: Key[PropertyBag]) -> dict[str, Any]:
    return {name: value for name, value in (await db.get(key)).items() if not name.startswith("_")}


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("merge", {"if_match": "*"}),
        ("merge", {"if_match": "*", "only": ["motto"]}),
        ("replace", {"if_match": "*"}),
        ("upsert", {}),
        ("upsert over", {}),
    ],
)
async def test_a_write_that_reads_first_leaves_what_others_keep(
    teams: Database, verb: str, arguments: dict[str, Any]
) -> None:
    """A count that has changed since the entity was read stays as it is stored, and the entity knows it then."""
    await teams.insert(Club())
    club = await teams.get(Club, name="a")
    for number in range(3):
        await teams.insert(Member(number=number))
    club.motto = "on"
    await write(teams, verb, club, **arguments)

    assert await stored(teams, BAG) == {"EntityType": "Club", "members": 3, "motto": "on"}
    assert club.members == 3
    if club.etag is None:  # a part was written over a row that it has not seen
        await teams.refresh(club)
    club.goal = "up"
    await teams.save(club)
    assert await stored(teams, BAG) == {"EntityType": "Club", "members": 3, "motto": "on", "goal": "up"}


@pytest.mark.parametrize("given", ["bag", "key"])
async def test_an_entity_is_not_counted_in_a_row_that_the_transaction_deletes(teams: Database, given: str) -> None:
    """Also where the delete says nothing of the model: otherwise the entity would be counted nowhere."""
    await teams.insert(Club())
    target = await teams.get(BAG) if given == "bag" else BAG
    with pytest.raises(TransactionFailed, match="deletes") as caught:
        async with teams.transaction() as tx:
            tx.insert(Member(number=1))
            tx.delete(target, if_match="*")

    assert isinstance(caught.value.__cause__, ReferenceNotFound) and caught.value.index == 0
    assert (await teams.get(Club, name="a")).members == 0
    assert not await teams.exists(Member, club="a", number=1)


async def test_a_transaction_deletes_no_row_that_is_gone(teams: Database) -> None:
    """Also if the entity remembers that others need it: the row is read, and the error names the operation."""
    await teams.insert(Club())
    await teams.insert(Member(number=1))
    club = await teams.get(Club, name="a")
    await delete_row(teams, "Teams", {"PartitionKey": "a", "RowKey": "club"})
    with pytest.raises(TransactionFailed, match="nothing was sent") as caught:
        async with teams.transaction() as tx:
            tx.delete(club)

    assert isinstance(caught.value.__cause__, EntityNotFound) and caught.value.index == 0


async def test_the_row_that_counts_an_entity_is_deleted_together_with_it(teams: Database) -> None:
    """What was counted is gone too, so nothing is lost by a delete that says nothing of the model."""
    await teams.insert(Club())
    member = Member(number=1)
    await teams.insert(member)
    async with teams.transaction() as tx:
        tx.delete(member)
        tx.delete(BAG, if_match="*")

    assert not await teams.exists(Member, club="a", number=1) and not await teams.exists(Club, name="a")


async def test_a_write_that_needs_another_kind_of_row_fails_alone_in_bulk(teams: Database) -> None:
    """The bag that is written to that row is right in itself: it is written, and not named in the report."""
    member = Member(number=1)
    async with teams.bulk(errors="report") as bulk:
        await bulk.insert(PropertyBag("Teams", "a", "club", {"EntityType": "Other"}))
        await bulk.insert(member)

    (failure,) = bulk.report.failed
    assert failure.entity is member and isinstance(failure.error, WrongKind)
    assert await stored(teams, BAG) == {"EntityType": "Other"}


class Untracked(Entity, table="Teams", partition_key="{club}", row_key="x_{id}"):
    club: Mapped[str] = field(default="a")
    id: Mapped[str] = field(default="1")
    name: Mapped[str] = field(default="new")


class Tracked(Untracked):
    by_name = Index(row_key="name_{name}_{id}")


UPSERTS = ["upsert", "upsert over", "upsert in a transaction", "upsert in a bulk"]


@pytest.mark.parametrize("kind", [None, "Other"])
@pytest.mark.parametrize(
    ("model", "verb"),
    [*((Tracked, verb) for verb in (*UPSERTS, "merge", "replace", "delete")), (Untracked, "replace")],
)
async def test_a_row_of_no_kind_does_not_get_one(teams: Database, model: Any, verb: str, kind: str | None) -> None:
    """A verb that reads the row refuses one of another kind, or of none, which other programs have written."""
    await teams.create_tables(model)
    properties: dict[str, str | int] = {"Age": 7, "name": "old"}
    properties |= {"EntityType": kind} if kind else {}
    await teams.upsert(PropertyBag("Teams", "a", "x_1", properties), mode="replace")

    with pytest.raises((WrongKind, BulkFailed)) as refused:
        await write(teams, verb, model(), **({} if verb in UPSERTS else {"if_match": "*"}))

    assert isinstance(refused.value, WrongKind) or isinstance(refused.value.__cause__, WrongKind)
    assert ("kind=None" in str(refused.value)) == (kind is None)
    assert dict(await teams.get(PropertyBag.key("Teams", "a", "x_1"))) == properties
