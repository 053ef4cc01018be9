"""
Moves to other partitions and archives in a scope: their steps are checked against the scope as other writes are.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tableorm import (
    AccessDenied,
    Count,
    Database,
    Entity,
    EntityExists,
    Index,
    IndexList,
    Mapped,
    ModelError,
    TableOrmError,
    field,
)
from tableorm.connection.connection import connection_of
from tableorm.outbox.bell import OUTBOX, outbox_queues
from tableorm.stores import Row
from tests.faults import FaultyStore
from tests.rows import insert_row
from tests.unfinished_moves import database_on, move_half


class MovingTeam(Entity, table="MovesScoped", partition_key="{country}", row_key="team_{tenant}"):
    country: Mapped[str]
    tenant: Mapped[str]
    size: Mapped[int] = field(default=0, maintained=True)


class Moving(Entity, abstract=True):
    country: Mapped[str]
    tenant: Mapped[str]
    id: Mapped[int]
    name: Mapped[str] = field(default="")


class Mover(Moving, table="MovesScoped", partition_key="{country}", row_key="mover_{tenant}_{id}", tracked=True):
    team: Mapped[str | None] = field(default=None)

    by_name = Index(row_key="name_{tenant}_{name}", unique=True)
    counted = Count(lambda: MovingTeam.size, country="{country}", tenant="{team}")


class Roamer(Moving, table="MovesScoped", partition_key="{country}", row_key="roamer_{tenant}_{id}"):
    people = IndexList(table="NamesScoped", partition_key="{name}", row_key="people", consistency="eventual")


class Gone(Moving, table="GoneScoped", partition_key="{country}", row_key="mover_{tenant}_{id}", tracked=True):
    team: Mapped[str | None] = field(default=None)


@pytest.fixture
async def db(network: FaultyStore) -> AsyncIterator[Database]:
    """Mover 1 of acme counts in the team of another tenant, and mover 2 in that of acme."""
    async with database_on(network, Mover, Gone) as db:
        for country in ("SE", "NO"):
            for tenant in ("other", "acme"):
                await db.insert(MovingTeam(country=country, tenant=tenant))
        await db.insert(Mover(country="SE", tenant="acme", id=1, team="other"))
        await db.insert(Mover(country="SE", tenant="acme", id=2, team="acme", name="Bo"))
        await db.insert(Mover(country="SE", tenant="other", id=3, team="other", name="Cy"))
        yield db


async def rows(db: Database, tenant: str = "") -> list[Row]:
    """All rows with their ETags; or those of a tenant."""
    found = [row.row for name in ("MovesScoped", "GoneScoped") for row in await db.select_raw(name).allow_scan().all()]
    return [row for row in found if tenant in row["RowKey"]]


async def sizes(db: Database, tenant: str) -> list[int]:
    return [(await db.get(MovingTeam, country=each, tenant=tenant)).size for each in ("SE", "NO")]


@pytest.mark.parametrize("unsaved", [False, True])
@pytest.mark.parametrize("verb", ["move", "archive"])
async def test_a_move_that_changes_counts_of_others_sends_nothing(db: Database, verb: str, *, unsaved: bool) -> None:
    """
    A move to another partition, and an archive, are rejected where an insert or a delete is: before anything is sent,
    also the changes that were not saved.
    """
    mine = db.scope(tenant="acme")
    mover, before = await mine.get(Mover, country="SE", id=1), await rows(db)
    if unsaved:
        mover.name = "changed"
    with pytest.raises(AccessDenied):
        await (mine.move(mover, country="NO") if verb == "move" else mine.archive(mover, to=Gone))
    assert await rows(db) == before
    assert not await outbox_queues(connection_of(db)).take(OUTBOX, 32, 60)


@pytest.mark.parametrize("fields", [{"tenant": "other"}, {"country": "NO", "tenant": "other"}])
async def test_an_archive_out_of_the_scope_sends_nothing(db: Database, fields: dict[str, Any]) -> None:
    """A key of another tenant is rejected before changes are saved that were not."""
    mine = db.scope(tenant="acme")
    mover, before = await mine.get(Mover, country="SE", id=2), await rows(db)
    mover.name = "changed"
    with pytest.raises(AccessDenied):
        await mine.archive(mover, to=Gone, **fields)
    assert await rows(db) == before


async def test_a_move_that_changes_lists_elsewhere_sends_nothing(db: Database) -> None:
    """It is rejected as an insert is if the key of an index list in another partition does not tell the tenant."""
    mine = db.scope(tenant="acme")
    await db.create_tables(Roamer)
    roamer = Roamer(country="SE", tenant="acme", id=1, name="Di")
    with pytest.raises(ModelError):
        await mine.insert(roamer)
    await db.insert(roamer)
    before = await rows(db)
    with pytest.raises(ModelError):
        await mine.move(await mine.get(Roamer, country="SE", id=1), country="NO")
    assert await rows(db) == before


async def test_a_move_within_the_scope(db: Database) -> None:
    """It takes along what was not saved, of a part of an entity too, and counts of the tenant; then it is archived."""
    mine, theirs = db.scope(tenant="acme"), await rows(db, "other")
    mover = await mine.get(Mover, country="SE", id=2)
    mover.name = "changed"
    said, sent = mine.explain_write("move", mover, country="NO"), list[str]()
    with db.observe(lambda request: sent.append(request.operation)):
        await mine.move(mover, country="NO")
    assert said.cost == len(sent)
    assert await mine.get(Mover.by_name, country="NO", name="changed") == mover
    assert await sizes(db, "acme") == [0, 1]
    old = await mine.archive(mover, to=Gone, country="SE")
    assert await mine.get(Gone, country="SE", id=2) == old and old.name == "changed"
    assert await sizes(db, "acme") == [0, 0]
    assert await rows(db, "other") == theirs


@pytest.mark.parametrize("writes", [2, 3, 4])
async def test_a_scope_meets_the_move_of_another_tenant(db: Database, network: FaultyStore, writes: int) -> None:
    """
    A program with all rights gave an entity of another tenant to acme, and died. In the scope of acme the move is
    completed if it was committed; but nobody touches the other tenant's entity to make it impossible.
    """
    cy = await db.get(Mover, country="SE", tenant="other", id=3)
    cy.team = None
    await db.save(cy)
    await move_half(db, network, cy, writes, country="NO", tenant="acme")
    mine, theirs = db.scope(tenant="acme"), await rows(db, "other")
    if writes == 2:
        with pytest.raises(EntityExists):
            await mine.insert(Mover(country="NO", tenant="acme", id=3))
        assert await rows(db, "other") == theirs
        return
    found = await mine.get(Mover, country="NO", id=3)
    found.name = "changed"
    await mine.save(found)
    assert [row for row in theirs if row["EntityType"] != "Mover#_forward"] == await rows(db, "other")


async def test_a_tentative_row_changes_no_counts_of_others(db: Database) -> None:
    """A write that meets the rows of a move changes no row of another tenant when it confirms them."""
    mine, before = db.scope(tenant="acme"), await sizes(db, "other")
    keys = {"PartitionKey": "SE", "team": "other"}
    for row_key, state, other in (
        ("mover_acme_7", "tentative", "mover_acme_8"),
        ("mover_acme_8", "forward", "mover_acme_7"),
    ):
        mark = json.dumps({"state": state, "move": "m", "other": ["MovesScoped", "SE", other]})
        row = {**keys, "RowKey": row_key, "EntityType": f"Mover#_{state}", "_mv": mark}
        await insert_row(db, "MovesScoped", row)
    found = await mine.get(Mover, country="SE", id=7)
    found.name = "changed"
    with pytest.raises(TableOrmError):
        await mine.save(found)
    assert await sizes(db, "other") == before
