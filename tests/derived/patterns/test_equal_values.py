"""
Embedded copies of values that Python takes for equal, and that are different in a table: 0.0 and -0.0, 1.0 and 1.
"""

from typing import Any

import pytest

from tableorm import Damage, Database, Embedded, Entity, Mapped, connect, field
from tableorm.stores import Row
from tests.rows import merge_row


class Player(Entity, table="Games", partition_key="{game}", row_key="player_{id}", tracked=True):
    game: Mapped[str]
    id: Mapped[str]
    rating: Mapped[float]


class Game(Entity, table="Games", partition_key="{game}", row_key="game"):
    game: Mapped[str]
    leader_id: Mapped[str | None] = field(default=None)
    leader_rating: Mapped[float | None] = field(default=None, maintained=True)
    note: Mapped[str | None] = field(default=None)

    leader = Embedded(lambda: Player, {"leader_rating": "rating"}, game="{game}", id="{leader_id}")


async def start(db: Database, rating: float) -> Player:
    """A game with a leader who has this rating."""
    await db.create_tables(Game)
    await db.insert(Player(game="go", id="ann", rating=rating))
    await db.insert(Game(game="go", leader_id="ann"))
    return await db.get(Player, game="go", id="ann")


async def copied(db: Database) -> str:
    """The copy of the rating, as JSON has it."""
    row = await db.store.get("Games", "go", "game")
    return repr(row["leader_rating"])


@pytest.mark.parametrize("together", [False, True])
async def test_a_copy_follows_from_zero_to_minus_zero(together: bool) -> None:
    """A change that `==` of Python does not see is copied as any other, also within one transaction."""
    async with connect("local::memory:") as db:
        player = await start(db, 0.0)
        game = await db.get(Game, game="go")
        player.rating, game.note = -0.0, "new"
        async with db.transaction() as tx:
            tx.save(player)
            if together:
                tx.save(game)

        assert await copied(db) == "-0.0"
        assert (await db.audit(Game)).found == 0


@pytest.mark.parametrize(("rating", "wrong"), [(1.0, 1), (0.0, -0.0), (-0.0, 0.0), (-0.0, 0)])
async def test_an_audit_finds_a_copy_of_another_type(rating: float, wrong: Any) -> None:
    """A copy that another program wrote as an Int32, or as the other zero, is found, and repaired."""
    async with connect("local::memory:") as db:
        await start(db, rating)
        keys: Row = {"PartitionKey": "go", "RowKey": "game"}
        await merge_row(db, "Games", {**keys, "leader_rating": wrong})

        found = await db.audit(Game)
        repaired = await db.audit(Game, repair=True)

        assert [(each.damage, each.index) for each in found.findings] == [(Damage.STALE, "leader")]
        assert repaired.clean
        assert await copied(db) == repr(rating)
        assert (await db.audit(Game)).found == 0
