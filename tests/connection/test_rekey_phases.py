"""
Phases of a re-key, which the store says and programs ask for.
"""

import pytest

from tableorm import Database, Entity, Mapped, MovedFrom, NotSupported
from tableorm.connection.connection import connection_of
from tableorm.rekey import phases as rekey_phases
from tableorm.rekey.phases import RekeyPhase, change_phase, current_phase, load_phase
from tests.databases import database_fixture
from tests.rekeys import rekeying_of


class Old(Entity, table="RekeyPhases", tracked=True, partition_key="{a}", row_key="o_{b}"):
    a: Mapped[str]
    b: Mapped[str]


class New(Entity, table="RekeyPhases", partition_key="{b}", row_key="n_{a}", moved_from=MovedFrom(Old)):
    a: Mapped[str]
    b: Mapped[str]


REKEYING = rekeying_of(New)


db = database_fixture()
"""A database in memory."""


async def test_phases_in_their_order(db: Database) -> None:
    """No row is *expand*; each phase says when it began, and after *done* there is none."""
    connection = connection_of(db)
    now = await load_phase(connection, REKEYING)
    assert (now.phase, now.since, now.etag) == (RekeyPhase.EXPAND, None, None)
    for phase in (
        RekeyPhase.MOVE,
        RekeyPhase.BACK,
        RekeyPhase.EXPAND,
        RekeyPhase.MOVE,
        RekeyPhase.SEALED,
        RekeyPhase.DONE,
    ):
        now = await change_phase(connection, REKEYING, now, phase)
        assert now.phase is phase and (now.since is None) is (phase is RekeyPhase.EXPAND)
        assert await current_phase(connection, REKEYING) is phase
    with pytest.raises(NotSupported, match="move does not follow done; what may follow is nothing"):
        await change_phase(connection, REKEYING, now, RekeyPhase.MOVE)


async def test_two_who_change_the_phase(db: Database) -> None:
    """Who is second changes nothing, and learns what the first one has written."""
    connection = connection_of(db)
    read = await load_phase(connection, REKEYING)
    first = await change_phase(connection, REKEYING, read, RekeyPhase.MOVE)
    assert await change_phase(connection, REKEYING, read, RekeyPhase.MOVE) == first
    back = await change_phase(connection, REKEYING, first, RekeyPhase.BACK)
    assert await change_phase(connection, REKEYING, first, RekeyPhase.SEALED) == back


async def test_a_phase_is_asked_for_again(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program asks at first, and again after a minute; one that knows that the re-key is sealed asks no more."""
    connection = connection_of(db)
    sent = list[str]()
    with db.observe(lambda request: sent.append(request.operation)):
        for _ in range(3):
            assert await current_phase(connection, REKEYING) is RekeyPhase.EXPAND
        assert sent == ["get"]
        monkeypatch.setattr(rekey_phases, "ASK_AGAIN", 0.0)
        assert await current_phase(connection, REKEYING) is RekeyPhase.EXPAND
        assert sent == ["get", "get"]
        now = await change_phase(connection, REKEYING, await load_phase(connection, REKEYING), RekeyPhase.MOVE)
        await change_phase(connection, REKEYING, now, RekeyPhase.SEALED)
        sent.clear()
        assert await current_phase(connection, REKEYING) is RekeyPhase.SEALED

    assert sent == []
