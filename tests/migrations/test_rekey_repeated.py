"""
Calls of a re-key that find what an earlier one has begun, or that another process goes on meanwhile.
"""

import asyncio
import re
from typing import Any

import pytest

from tableorm import Database, NotSupported, RunReport
from tableorm.connection.connection import connection_of
from tableorm.jobs.rows import Run
from tableorm.rekey.phases import RekeyPhase, StoredPhase
from tableorm.stores import StoreRequest
from tableorm_migrations import rekey_phase, run_move, verify_move
from tableorm_migrations.rekey import phases
from tests.faults import FaultyStore
from tests.migrations.conftest import in_memory
from tests.migrations.flights import DAY, fill
from tests.migrations.programs.legs import Leg, TailLeg
from tests.migrations.test_rekey_online import move, move_legs, seal
from tests.rows import insert_row

pytestmark = [in_memory, pytest.mark.usefixtures("known_at_once")]


class Stopped(Exception):
    """A process is stopped in the middle."""


def stop_before_last_range(report: RunReport) -> None:
    """Stop the process when one range is left."""
    if report.ranges_done == report.ranges - 1:
        raise Stopped


async def insert_early(db: Database) -> None:
    """Insert an entity at its older key, as a program does that knows the older model alone."""
    await db.insert(Leg(origin="EWR", day=DAY, number=999, tail="N1"))


async def test_each_seal_verifies_everything(db: Database) -> None:
    """What an earlier call has verified, which was stopped in the middle, is verified again by the next one."""
    await move_legs(db, 30)
    await verify_move(db, TailLeg)
    with pytest.raises(Stopped):
        await seal(db, parallel=1, on_progress=stop_before_last_range)
    await insert_early(db)

    report = await seal(db, lease=0.2)

    assert (report.complete, await rekey_phase(db, TailLeg)) == (False, "move")
    assert "has its older key still" in report.failures[0]
    await run_move(db, TailLeg)
    await verify_move(db, TailLeg)
    assert (await seal(db)).complete


async def test_two_processes_seal_together(db: Database) -> None:
    """A process that takes part in the verification of another one, which then seals, does not verify once more."""
    await move_legs(db, 30)
    await verify_move(db, TailLeg)
    second: list[asyncio.Task[RunReport]] = []

    def join(_: RunReport) -> None:
        if not second:
            second.append(asyncio.create_task(seal(db)))

    first = await seal(db, parallel=1, on_progress=join)
    joined = await second[0]

    assert (first.complete, joined.complete, await rekey_phase(db, TailLeg)) == (True, True, "sealed")
    (run,) = [each for each in await db.select(Run).allow_scan().all() if each.what.startswith("verify again")]
    assert run.generation == 1


async def test_a_seal_that_meets_a_way_back(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A re-key is not said to be sealed if another process has begun to let entities go back meanwhile."""
    await move_legs(db, 10)
    await verify_move(db, TailLeg)
    entering = phases.OnlineRekey.enter

    async def enter_late(rekey: phases.OnlineRekey, read: StoredPhase, phase: RekeyPhase) -> StoredPhase:
        await entering(rekey, await rekey.read_phase(), RekeyPhase.BACK)
        return await entering(rekey, read, phase)

    monkeypatch.setattr(phases.OnlineRekey, "enter", enter_late)

    with pytest.raises(NotSupported, match=r"in phase 'back', .*another process has gone on meanwhile"):
        await seal(db)


async def test_a_pass_that_was_stopped(db: Database) -> None:
    """What a stopped pass had gone through is gone through again: an entity that came meanwhile is moved."""
    await move_legs(db, 30)
    with pytest.raises(Stopped):
        await run_move(db, TailLeg, parallel=1, on_progress=stop_before_last_range)
    await insert_early(db)

    report = await run_move(db, TailLeg)

    assert (report.complete, report.written) == (True, 1)
    assert (await verify_move(db, TailLeg)).complete


class InsertingStore(FaultyStore):
    """A store in which somebody inserts an entity at its older key after each time that the older table is read."""

    inserted = 0

    async def send(self, request: StoreRequest) -> Any:
        reply = await super().send(request)
        if request.method == "query" and request.table == "RunLegs":
            self.inserted += 1
            keys = {"PartitionKey": "LGA", "RowKey": f"2024-02-01_{self.inserted:06d}"}
            await insert_row(self.store, request.table, {**keys, "EntityType": "Leg", "tail": "N1"})
        return reply


async def test_a_move_that_finds_more_each_time(db: Database) -> None:
    """While others insert at older keys as fast as entities are moved, the move ends, and says that it is not done."""
    await fill(db, Leg, 10)
    connection_of(db).wrap_store(InsertingStore)

    report = await move(db)

    assert (report.complete, report.failed) == (False, 1)
    assert report.written > 10
    assert re.fullmatch(
        r"even the last of 20 passes has found \d+ rows? to move: programs that know Leg alone insert as fast; call "
        r"run_move\(\) again when they insert less",
        report.failures[0],
    )
