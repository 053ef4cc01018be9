"""
A program any of whose writes may be its last, or meet a fault: what is derived is right then, and others go on.
"""

import datetime as dt
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tableorm import Database, Entity, Feed, Key, Mapped, TableOrmError, Transaction, field
from tableorm.protocol.codes import Fault
from tableorm.stores import Operation
from tableorm.testing import MemoryStore
from tests.derived.index.worker import SQUADS, Writer, audited, read_partition
from tests.derived.patterns.club import CLUB, Player, Squad, check
from tests.faults import Fate, FaultyStore
from tests.outbox.network import Death, connected, failing_at
from tests.torture import Rounds


class Note(Entity, table="Club", partition_key="{club}", row_key="note_{id}"):
    """What the change feed of the partition notes."""

    club: Mapped[str] = field(default=CLUB)
    id: Mapped[int]

    changes = Feed(keep=dt.timedelta(days=1))


def said(operation: Operation) -> str:
    """Return what an operation does to which kind of rows."""
    row = operation.row
    return f"{operation.verb} {row.get('EntityType', row['RowKey'].partition('_')[0])}"


def player_of(number: int, **values: Any) -> Player:
    given: dict[str, Any] = {"id": number, "nick": f"n{number}", "squad": "x", "points": number % 6, **values}
    return Player(name=given.pop("name", "a"), **given)


def key_of(number: int) -> Key[Player]:
    return Player.key(club=CLUB, id=number)


async def program(db: Database) -> None:
    """Every sort of write; the list of the name `a` is divided on the way."""
    for number in range(1, 12):
        await db.insert(player_of(number))

    def move(player: Player) -> None:
        player.nick, player.name, player.squad, player.points = "moved", "b", "y", 5

    await db.modify(key_of(3), move)
    await db.upsert(player_of(4, nick=None, name="b"), mode="replace")
    await db.upsert(player_of(40, nick="n4", squad=None))

    async def swap(tx: Transaction) -> None:
        one, two = await tx.get(key_of(5)), await tx.get(key_of(6))
        one.nick, two.nick, one.name = two.nick, one.nick, "b"
        tx.save(one)
        tx.save(two)

    await db.run_transaction(swap)

    def lead(squad: Squad) -> None:
        squad.captain = 7

    await db.modify(Squad, lead, club=CLUB, name="z")
    await db.modify(key_of(7), move_of("led"))
    async with db.transaction() as tx:
        tx.delete(await db.get(key_of(8)))
        tx.insert(player_of(41, nick="n8", squad="z"))
    await db.merge(player_of(9, name="c", points=1), only=[Player.name, Player.points], if_match="*")
    await db.delete(key_of(10), if_match="*")
    async with db.bulk() as bulk:
        for number in range(20, 24):
            await bulk.upsert(player_of(number, points=4, squad=SQUADS[number % 3]))

    def dismiss(squad: Squad) -> None:
        squad.captain = None

    await db.modify(Squad, dismiss, club=CLUB, name="z")
    await db.insert(Note(id=1))
    async with db.transaction() as tx:
        tx.delete(Note.key(club=CLUB, id=1), if_match="*")
        tx.insert(Note(id=2))


def move_of(nick: str) -> Callable[[Player], None]:
    """Gives a player another nick."""

    def move(player: Player) -> None:
        player.nick = nick

    return move


async def run(at: int, fault: Fate | Death) -> FaultyStore:
    """Run the program on a table of its own, with a fault at a write; return the network."""
    store = MemoryStore()
    async with connected(store) as db:
        await db.create_tables(Player)
        for name in SQUADS:
            await db.insert(Squad(name=name))
    network = failing_at(store, at, fault)
    async with connected(network) as db:
        with suppress(TableOrmError, Fault):  # of a program that is dead nobody hears
            await program(db)
    await network.deliver()
    return network


async def unnoted(db: Database) -> list[str]:
    """What the change feed does not say of the notes that are stored, or says of others."""
    noted = set[str]()
    async for change in db.changes(Note, club=CLUB):
        noted ^= {each.key.row_key for each in change.entities}  # what is inserted and deleted
    stored = {note.key.row_key for note in await db.select(Note).where(Note.club == CLUB).all()}
    return sorted(noted ^ stored)


EVERYTHING = {
    *("insert Player", "merge player", "replace Player", "delete player"),
    *("insert Player#by_nick", "insert-or-replace Player#by_nick", "delete nick"),
    *("insert Player#by_rank", "delete rank"),
    *("insert Player#by_name", "replace Player#by_name", "insert Player#by_points", "replace Player#by_points"),
    *("merge squad", "replace Squad", "insert Total", "merge total"),
    *("insert Note", "delete note", "insert #_feed", "replace #_feed", "insert #_change"),
}
"""
The program has writes of every sort that there are for these models: a copy, a list, a count, copies held, and a change
that is noted.
"""

DIVISION = ["replace Player#by_name", "insert Player#by_name", "insert Player#by_name"]


async def test_the_program_writes_everything() -> None:
    """So any of these is interrupted."""
    network = await run(-1, Fate.FINE)

    sent = [[said(each) for each in operations] for operations in network.sent]
    assert {each for some in sent for each in some} == EVERYTHING
    assert DIVISION in sent


@pytest.mark.torture
@pytest.mark.parametrize("fault", [*Death, *(fate for fate in Fate if fate is not Fate.FINE)])
async def test_any_write_may_be_the_last_or_fail(fault: Fate | Death, rounds: Rounds) -> None:
    """The table holds all of a write or nothing of it, and who writes on meets nothing that is in the way."""
    at, step = 0, rounds(5, 1)
    while len((network := await run(at, fault)).sent) > at:
        async with connected(network.store) as db:
            assert [*check(await read_partition(db)), *await audited(db, Note), *await unnoted(db)] == [], at
            await Writer(db, 1).run(4)
            assert [*check(await read_partition(db)), *await audited(db)] == [], at
        at += step
    assert at > 25
