"""
Shared runs on a network that fails: each of their writes is lost, late or doubled, or its sender dies there.
"""

import ast
import asyncio
import datetime as dt
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, product
from pathlib import Path

import pytest

import tableorm
import tableorm_migrations
from tableorm import AccessDenied, Database, Entity, Mapped, NotSupported, RunReport, TableOrmError, field
from tableorm.jobs import scan
from tableorm.stores import Capabilities, RowQuery, TableStore
from tableorm.testing import Faults, MemoryStore
from tableorm_migrations import rewrite
from tests.faults import Fate, FaultyStore
from tests.migrations.programs import accounts, agents, clerks
from tests.migrations.programs.accounts import Account, change_of_old, open_accounts, visit
from tests.migrations.programs.agents import Agent, engage
from tests.migrations.programs.clerks import Clerk, hire, read_desks, write_desks
from tests.migrations.programs.legs import (
    copy_legs,
    finalize_copies,
    finalize_legs,
    find_misplaced,
    find_unwrapped,
    move_legs,
    move_legs_back,
    rewrap,
    schedule,
    seal_legs,
    undo_copies,
    verify_copies,
    verify_legs,
)
from tests.migrations.test_rekey_online import known_at_once
from tests.outbox.network import FATES, Death, Jittery, connected, failing_at
from tests.torture import Rounds, every, seeds

__all__ = ["known_at_once"]

pytestmark = pytest.mark.usefixtures("many_ranges")

COUNT = 60
PAGE = 4
LEASE = 0.05
SHORT = 0.002  # so that a range is stored between its pages; and now and then it is taken over while its owner lives
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


async def report_of(db: Database, name: str) -> RunReport:
    return next(run for run in await db.runs() if run.name == name)


async def sweep(db: Database, lease: float) -> RunReport:
    await db.sweep(Pass, name="sweep", parallel=3, lease=lease)
    return await report_of(db, "sweep")


async def repair(db: Database, lease: float) -> RunReport:
    await db.audit(Agent, name="repair", repair=True, parallel=3, lease=lease)
    return await report_of(db, "repair")


async def compare(db: Database, lease: float) -> RunReport:
    async with connected(MemoryStore()) as other:
        await open_accounts(other, COUNT)
        await issue_passes(other)
        for table in ("RunPasses", "RunAccounts"):
            report = await other.compare_rows(db, table, name=f"compare {table}", parallel=3, lease=lease)
            assert (report.entities, report.failed) == (COUNT, 0)
    return await report_of(db, "compare RunAccounts")


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A range has several pages."""
    monkeypatch.setattr(scan, "MAX_PAGE", PAGE)


def set_order(monkeypatch: pytest.MonkeyPatch, *, ordered: bool) -> None:
    """Let networks say whether rows come in the order of their keys; where they do not, a range has no cursor."""
    monkeypatch.setattr(FaultyStore, "capabilities", Capabilities(durable=False, ordered=ordered))


async def prepare(journal: Path, run: Run | None = None) -> TableStore:
    """
    Return a store with accounts of the old version, clerks and agents who were there before their index, legs at their
    older keys, and notes whose content keys are wrapped with an older key; and with what comes before a run.
    """
    store = MemoryStore()
    async with connected(store) as db:
        await open_accounts(db, COUNT)
        await hire(db, journal, COUNT)
        await engage(db, COUNT)
        await schedule(db, COUNT)
        await issue_passes(db)
        for earlier in EARLIER.get(run, ()):
            assert (await earlier(db, LEASE)).state == "done"
    return store


KINDS: dict[str, Sequence[Run]] = {
    "tableorm/audit/audit.py": [repair],
    "tableorm/audit/build.py": [build, build_list, build_elsewhere, build_list_elsewhere],
    "tableorm/jobs/rewrap.py": [rewrap],
    "tableorm/queries/sweep.py": [sweep],
    "tableorm/transfer/copying.py": [compare],  # copies: tests/transfer/test_copy.py
    "tableorm/transfer/files.py": [],  # a file, which nobody shares, has no cursor
    "tableorm_migrations/rewrite.py": [rewrite_all],
    "tableorm_migrations/rekey/offline.py": [copy_legs, undo_copies],
    "tableorm_migrations/rekey/verify.py": [verify_copies, finalize_copies],
    "tableorm_migrations/rekey/online.py": [move_legs, verify_legs, seal_legs, finalize_legs, move_legs_back],
}
"""The jobs of each module that has some."""

RUNS = [*chain(*KINDS.values())]

EARLIER: dict[Run | None, Sequence[Run]] = {
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


async def find_problems(store: TableStore, journal: Path, run: Run) -> list[str]:
    """Return what is wrong after a run beside which nobody has written."""
    async with connected(store) as db:
        if run in ENDS:
            return await ENDS[run](db)
        if run is sweep:
            return [str(each) for each in (await db.store.query("RunPasses", RowQuery(), 1000)).rows]
        if run is repair:
            return [str(each) for each in (await db.audit(Agent)).findings]
        if run is rewrite_all:
            return await accounts.find_problems(db, COUNT, [])
        if run in (build_elsewhere, build_list_elsewhere):
            return await agents.find_problems(db, COUNT, listed=run is build_list_elsewhere)
        return [] if run is compare else await clerks.find_problems(db, journal, listed=run is build_list)


def test_every_job_is_killed() -> None:
    """A module that has a job done by the engine is one of those whose jobs are killed here."""
    found = {
        path.relative_to(root.parent).as_posix()
        for root in (Path(package.__path__[0]) for package in (tableorm, tableorm_migrations))
        for path in root.rglob("*.py")
        if "process import" in (text := path.read_text(encoding="utf-8"))
        for node in ast.parse(text).body
        if isinstance(node, ast.ImportFrom)
        if str(node.module).endswith("process") and {"carry_out", "work_on"} & {each.name for each in node.names}
    }

    assert found == {*KINDS}


WRITES: dict[Run, int] = {}
"""How many writes each run sends where nothing fails."""


async def count_writes(run: Run, journal: Path) -> int:
    if run not in WRITES:
        network = FaultyStore(await prepare(journal, run))
        async with connected(network) as db:
            await run(db, LEASE)
        WRITES[run] = len(network.sent)
        assert WRITES[run] > 10
    return WRITES[run]


@pytest.mark.one_of(3)
@pytest.mark.parametrize(
    ("run", "fault"),
    every(19, product([*RUNS], [*FATES, *Death])),
    ids=lambda value: getattr(value, "name", None) or value.__name__,
)
async def test_each_write_that_meets_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run, fault: Fate | Death, rounds: Rounds
) -> None:
    """The run goes on by itself, or another call does if its process has died. It counts each entity once."""
    chance = random.Random(f"{fault} {run.__name__}")
    journal = tmp_path / "journal"
    numbers = range(await count_writes(run, journal))
    for at in chance.sample(numbers, rounds(1, len(numbers))):
        journal.unlink(missing_ok=True)
        lease = chance.choice([LEASE, SHORT])
        set_order(monkeypatch, ordered=chance.random() < 0.5)
        store = await prepare(journal, run)
        network = failing_at(store, at, fault)
        async with connected(network) as db:
            if isinstance(fault, Death):
                with suppress(TableOrmError):
                    await run(db, lease)
            else:
                await run(db, lease)
        await network.deliver()
        async with connected(store) as db:
            report = await run(db, lease)

        read = COUNT if run in UNCOUNTED else report.entities
        assert (at, report.state, read, report.failed) == (at, "done", COUNT, 0)
        assert (at, await find_problems(store, journal, run)) == (at, [])


@pytest.mark.one_of(3, group="long runs")
@seeds(1, 300)
async def test_a_network_that_fails_at_random(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """
    Three processes share two builds, of indexes or of lists, and a rewrite; what they send is lost, late, doubled or
    overtaken, and some die. Others write and read meanwhile. In the end all is done, nothing is lost, and no answer by
    an index or a list was incomplete.
    """
    chance, journal, over = random.Random(seed), tmp_path / "journal", asyncio.Event()
    listed = seed % 2 == 1
    builds = (build_list, build_list_elsewhere) if listed else (build, build_elsewhere)
    store = await prepare(journal)
    lease = 0.5  # much longer than a beat takes, or they take ranges from each other for ever
    set_order(monkeypatch, ordered=chance.random() < 0.7)
    networks = [Jittery(store, chance, FATES, deadly=chance.random() < 0.6) for _ in range(3)]

    async def take_part(network: TableStore) -> None:
        async with connected(network) as db:
            for run in (*builds, rewrite_all):
                await run(db, lease)

    async def read_agents() -> list[str]:
        """Nobody writes agents, so all of them are found, or the index or the list is rejected."""
        while not over.is_set():
            async with connected(store) as db:
                with suppress(NotSupported):
                    if missing := await agents.find_missing(db, COUNT, listed=listed):
                        return missing
            await asyncio.sleep(0.01)
        return []

    async def write() -> list[accounts.Visits]:
        numbers = range(COUNT)
        async with connected(store) as db, asyncio.TaskGroup() as group:
            group.create_task(write_desks(db, journal, range(0, 2 * COUNT, 2), chance, over.is_set))
            writers = [
                group.create_task(program(db, numbers, chance, over.is_set)) for program in (change_of_old, visit)
            ]
        return [writer.result() for writer in writers]

    writing = asyncio.create_task(write())
    reading = asyncio.create_task(read_desks(lambda: connected(store), journal, over.is_set, listed=listed))
    reading_agents = asyncio.create_task(read_agents())
    ends = await asyncio.gather(*map(take_part, networks), return_exceptions=True)
    await take_part(store)
    for network in networks:
        await network.deliver()
    over.set()
    visits, said = await writing, await reading

    assert [end for end in ends if end is not None and not isinstance(end, TableOrmError)] == []
    assert said["problems"] + await reading_agents == []
    async with connected(store) as db:
        assert await clerks.find_problems(db, journal, listed=listed) == []
        assert await accounts.find_problems(db, COUNT, visits) == []
        assert await agents.find_missing(db, COUNT, listed=listed) == []


@pytest.mark.parametrize(("run", "table"), [(rewrite_all, "RunAccounts"), (build, "RunClerks")])
async def test_an_error_leaves_the_run_to_others_at_once(tmp_path: Path, run: Run, table: str) -> None:
    """Who ends with an error gives its ranges back, so that nobody waits until its lease has run out."""
    store = await prepare(tmp_path / "journal")
    async with connected(store) as db:
        faults = Faults(db)
        with faults.fail_next("query", with_=403, table=table), pytest.raises(AccessDenied):
            await run(db, 1_000.0)
        async with asyncio.timeout(30):
            report = await run(db, 1_000.0)

    assert (report.state, report.entities) == ("done", COUNT)
