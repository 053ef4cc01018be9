"""
Shared runs on a network that fails: each of their writes is lost, late or doubled, or its sender dies there.
"""

import ast
import asyncio
import random
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest

import tableorm
import tableorm_migrations
from tableorm import NotSupported, TableOrmError
from tableorm.jobs import scan
from tableorm.stores import Capabilities, TableStore
from tableorm.testing import MemoryStore
from tests.faults import Fate, FaultyStore
from tests.migrations.programs import accounts, agents, clerks
from tests.migrations.programs.accounts import change_of_old, visit
from tests.migrations.programs.clerks import read_desks, write_desks
from tests.migrations.programs.kinds import (
    COUNT,
    KINDS,
    LEASE,
    RUNS,
    UNCOUNTED,
    Run,
    build,
    build_elsewhere,
    build_list,
    build_list_elsewhere,
    find_problems,
    prepare,
    rewrite_all,
)
from tests.outbox.network import FATES, Death, Jittery, connected, failing_at
from tests.torture import Rounds, every, seeds

pytestmark = pytest.mark.usefixtures("many_ranges", "known_at_once")

PAGE = 4
SHORT = 0.002  # so that a range is stored between its pages; and now and then it is taken over while its owner lives


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A range has several pages."""
    monkeypatch.setattr(scan, "MAX_PAGE", PAGE)


def set_order(monkeypatch: pytest.MonkeyPatch, *, ordered: bool) -> None:
    """Let networks say whether rows come in the order of their keys; where they do not, a range has no cursor."""
    monkeypatch.setattr(FaultyStore, "capabilities", Capabilities(durable=False, ordered=ordered))


async def prepared(journal: Path, run: Run | None = None) -> TableStore:
    """Return a store that is prepared for a run."""
    store = MemoryStore()
    async with connected(store) as db:
        await prepare(db, journal, run)
    return store


def test_every_job_is_killed() -> None:
    """A function that gives a job to the engine is one of those whose jobs are killed."""
    found = {
        function.name
        for package in (tableorm, tableorm_migrations)
        for path in Path(package.__path__[0]).rglob("*.py")
        if "process import" in (text := path.read_text(encoding="utf-8"))
        for function in ast.walk(ast.parse(text))
        if isinstance(function, ast.AsyncFunctionDef)
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ("carry_out", "work_on")
    }

    assert found == {*KINDS}


WRITES: dict[Run, int] = {}
"""How many writes each run sends where nothing fails."""


async def count_writes(run: Run, journal: Path) -> int:
    if run not in WRITES:
        network = FaultyStore(await prepared(journal, run))
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
        store = await prepared(journal, run)
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
            assert (at, await find_problems(db, journal, run)) == (at, [])


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
    store = await prepared(journal)
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
