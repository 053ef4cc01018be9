"""
Every kind of jobs that the engine does: what its jobs work on, what comes before them, and what is wrong in the end.
"""

import datetime as dt
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain
from pathlib import Path

from tableorm import Database, Entity, Mapped, RunReport, field
from tableorm.testing import MemoryStore
from tableorm_migrations import rewrite
from tests.migrations.programs import accounts, agents, clerks
from tests.migrations.programs.accounts import Account, open_accounts
from tests.migrations.programs.agents import Agent, engage
from tests.migrations.programs.clerks import Clerk, hire
from tests.migrations.programs.legs import (
    copy_legs,
    finalize_copies,
    finalize_legs,
    find_misplaced,
    find_unwrapped,
    move_legs,
    move_legs_back,
    report_of,
    rewrap,
    schedule,
    seal_legs,
    undo_copies,
    verify_copies,
    verify_legs,
)
from tests.outbox.network import connected
from tests.transfer.rows import fill, make_rows

COUNT = 60
LEASE = 0.05
Run = Callable[..., Awaitable[RunReport]]


async def rewrite_all(db: Database, lease: float) -> RunReport:
    return await rewrite(db, Account, name="cents", parallel=3, lease=lease)


async def build(db: Database, lease: float) -> RunReport:
    return await db.build_index(Clerk.by_desk, name="desks", no_older_writers=True, parallel=3, lease=lease)


async def build_list(db: Database, lease: float) -> RunReport:
    return await db.build_index(Clerk.at_desk, name="at desks", no_older_writers=True, parallel=3, lease=lease)


async def build_elsewhere(db: Database, lease: float) -> RunReport:
    return await db.build_index(Agent.by_desk, name="elsewhere", no_older_writers=True, parallel=3, lease=lease)


async def build_list_elsewhere(db: Database, lease: float) -> RunReport:
    return await db.build_index(Agent.at_desk, name="lists", no_older_writers=True, parallel=3, lease=lease)


class Pass(Entity, table="RunPasses", partition_key="{gate}", row_key="pass_{id:04d}"):
    gate: Mapped[str]
    id: Mapped[int]
    expires: Mapped[dt.datetime | None] = field(default=None, expiry=True)


async def issue_passes(db: Database) -> None:
    await db.create_tables(Pass)
    for number in range(COUNT):
        await db.insert(Pass(gate=f"gate-{number % 9}", id=number, expires=dt.datetime(2020, 1, 1, tzinfo=dt.UTC)))


async def sweep(db: Database, lease: float) -> RunReport:
    await db.sweep(Pass, name="sweep", parallel=3, lease=lease)
    return await report_of(db, "sweep")


async def repair(db: Database, lease: float) -> RunReport:
    await db.audit(Agent, name="repair", repair=True, parallel=3, lease=lease)
    return await report_of(db, "repair")


@asynccontextmanager
async def source_of_copies() -> AsyncGenerator[Database]:
    """A database whose only table has the rows that are copied."""
    async with connected(MemoryStore()) as db:
        await fill(db.store, make_rows(COUNT))
        yield db


async def copy(db: Database, lease: float) -> RunReport:
    async with source_of_copies() as source:
        await source.copy_rows(db, name="copy", parallel=3, lease=lease)
    return await report_of(db, "copy")


async def compare(db: Database, lease: float) -> RunReport:
    async with source_of_copies() as source:
        await source.compare_rows(db, name="compare", parallel=3, lease=lease)
    return await report_of(db, "compare")


async def find_uncopied(db: Database) -> list[str]:
    async with source_of_copies() as source:
        report = await source.compare_rows(db)
    return [] if report.equal == COUNT else [f"{report}", *report.failures]


async def find_unswept(db: Database) -> list[str]:
    return [str(each) async for each in db.select_raw("RunPasses").allow_scan()]


async def find_damage(db: Database) -> list[str]:
    return [str(each) for each in (await db.audit(Agent)).findings]


async def prepare(db: Database, journal: Path, run: Run | None = None) -> None:
    """
    Insert accounts of the old version, clerks and agents who were there before their index, legs at their older keys,
    and notes whose content keys are wrapped with an older key; and do what comes before a run.
    """
    await open_accounts(db, COUNT)
    await hire(db, journal, COUNT)
    await engage(db, COUNT)
    await schedule(db, COUNT)
    await issue_passes(db)
    for earlier in EARLIER.get(run, ()):
        assert (await earlier(db, LEASE)).state == "done"


KINDS: dict[str, Sequence[Run]] = {
    "audit": [repair],
    "build_index": [build, build_list, build_elsewhere, build_list_elsewhere],
    "rewrap": [rewrap],
    "sweep": [sweep],
    "copy_rows": [copy],
    "compare_rows": [compare],
    "export_rows": [],  # a file appears as a whole, or not at all
    "rewrite": [rewrite_all],
    "run_rekey": [copy_legs],
    "verify_rekey": [verify_copies],
    "finalize_rekey": [finalize_copies],
    "roll_back_rekey": [undo_copies],
    "_repeat": [move_legs, move_legs_back],
    "verify_move": [verify_legs],
    "seal_move": [seal_legs],
    "finalize_move": [finalize_legs],
}
"""The jobs of each function that gives some to the engine."""

RUNS = [*chain(*KINDS.values())]

EARLIER: dict[Run | None, Sequence[Run]] = {
    compare: [copy],
    verify_copies: [copy_legs],
    finalize_copies: [copy_legs, verify_copies],
    undo_copies: [copy_legs],
    verify_legs: [move_legs],
    seal_legs: [move_legs, verify_legs],
    finalize_legs: [move_legs, verify_legs, seal_legs],
    move_legs_back: [move_legs],
}
"""What comes before a run, if something does."""

UNCOUNTED = (sweep, finalize_copies, undo_copies, move_legs, finalize_legs, move_legs_back)
"""Runs after which what was dealt with is not found again."""

ENDS: dict[Run, Callable[[Database], Awaitable[list[str]]]] = {
    repair: find_damage,
    build_elsewhere: partial(agents.find_problems, count=COUNT, listed=False),
    build_list_elsewhere: partial(agents.find_problems, count=COUNT, listed=True),
    sweep: find_unswept,
    copy: find_uncopied,
    compare: find_uncopied,
    rewrite_all: partial(accounts.find_problems, count=COUNT, writers=[]),
    rewrap: partial(find_unwrapped, count=COUNT),
    **{
        run: partial(find_misplaced, count=COUNT, old=old, new=new, table=table)
        for run, old, new, table in [
            (copy_legs, "legs", "legs", "RunLegCopies"),
            (verify_copies, "legs", "legs", "RunLegCopies"),
            (finalize_copies, "nothing", "legs", "RunLegCopies"),
            (undo_copies, "legs", "nothing", "RunLegCopies"),
            (move_legs, "forwards", "legs", "RunTailLegs"),
            (verify_legs, "forwards", "legs", "RunTailLegs"),
            (seal_legs, "forwards", "legs", "RunTailLegs"),
            (finalize_legs, "nothing", "legs", "RunTailLegs"),
            (move_legs_back, "legs", "nothing", "RunTailLegs"),
        ]
    },
}
"""What finds what is wrong after a run."""


async def find_problems(db: Database, journal: Path, run: Run) -> list[str]:
    """Return what is wrong after a run beside which nobody has written."""
    if run in ENDS:
        return await ENDS[run](db)
    return await clerks.find_problems(db, journal, listed=run is build_list)
