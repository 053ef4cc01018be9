"""
Texts in rows of shared runs, of states of indexes and of revisions, which who may write the table of upkeep chooses.
"""

import asyncio
import datetime as dt
import logging
from argparse import Namespace
from typing import Any

import pytest

from tableorm import Database, DecodeError, Entity, LostRace, Mapped, ModelError, RunReport, connect
from tableorm.cli.progress import print_report
from tableorm.jobs.ranges import JobRange
from tableorm.jobs.rows import Run, RunRange, RunRow
from tableorm.stores import Bounds
from tableorm_migrations import migration_status, rewrite
from tests.rows import merge_row
from tests.security.world import write_row

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
LINE = "x\n0002_more: applied"


@pytest.fixture
def report() -> RunReport:
    return RunReport(
        name=LINE,
        what=LINE,
        state="failed",
        ranges=1,
        ranges_done=1,
        owners=(),
        entities=1,
        written=0,
        failed=1,
        failures=(LINE,),
        seconds=1.0,
        others={LINE: 1},
        working=(),
    )


async def test_rows_of_upkeep_make_no_lines_of_a_status(db: Database) -> None:
    """The status has a line for each row, whatever the row says."""
    await db.create_tables(Run)
    counts = {"failures": [LINE]}
    run = Run(name="run", what=LINE, purpose="p", begun=NOW, ended=NOW, state=LINE, counts=counts)
    await db.insert(run)
    await write_row(db, "TableormUpkeep", "index states", "d", Model=LINE, Declaration=LINE, Table=LINE)
    status = await migration_status(db)
    assert len(str(status).split("\n")) == 1 + 2 + 2
    assert "\n0002" not in str(status)


def test_a_row_of_a_run_makes_no_lines_of_what_is_printed(
    report: RunReport, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run and its failures are a line each."""
    print_report(report, Namespace(json=False))
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_what_is_logged_of_a_run_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    """The error of a server, which may quote anything, makes no lines of the log."""
    logging.getLogger("tableorm.jobs").warning("it is not stored: %s", LINE)
    assert caplog.messages == ["it is not stored: x\\u000a0002_more: applied"]


class Boat(Entity, table="ForgedBoats", version=2, partition_key="{harbour}", row_key="boat"):
    harbour: Mapped[str]


async def test_a_row_in_the_place_of_a_run_does_not_hold_its_processes(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that can be neither begun nor found is an error that says what to delete."""
    monkeypatch.setattr("tableorm.jobs.process._SHORTEST_PAUSE", 0.0)
    await db.create_tables(Boat, Run)
    await write_row(db, "TableormUpkeep", "run again", "run", EntityType="Other")
    with pytest.raises(LostRace, match="delete what other programs have written into partition 'run again'"):
        async with asyncio.timeout(5):
            await rewrite(db, Boat, name="again")


async def begin_run(db: Database, **values: Any) -> Run:
    """Write a run of rewriting boats that is under way, as another program would."""
    await db.create_tables(Boat, Run)
    await rewrite(db, Boat)
    [done] = [row for row in await db.select(RunRow).allow_scan().all() if isinstance(row, Run)]
    done.state, done.ended, done.generation = "open", None, done.generation + 1
    for name, value in values.items():
        setattr(done, name, value)
    await db.save(done)
    return done


def range_of(run: Run, **values: Any) -> RunRange:
    part = JobRange(table="ForgedBoats", partitions=Bounds())
    given: dict[str, Any] = {"name": run.name, "number": 0, "generation": run.generation, "part": part, **values}
    return RunRange(**given)


async def test_a_run_that_has_not_the_ranges_that_it_says() -> None:
    """Nobody waits for ranges that are not there: the error says what to do."""

    async def meet(said: int, there: int) -> None:
        async with connect("local::memory:") as db:
            run = await begin_run(db, ranges=said)
            if there:
                await db.insert(range_of(run))
            with pytest.raises(ModelError, match=f"says that it has .*, and {there} are there; .* call db.drop_run"):
                await rewrite(db, Boat)
            await db.drop_run(run.name)
            assert (await rewrite(db, Boat)).complete

    async with asyncio.timeout(20):
        await asyncio.gather(*(meet(*case) for case in ((2, 1), (1, 0), (10**9, 1), (0, 1), (-1, 0))))


async def test_a_range_of_another_table(db: Database) -> None:
    """A process works on no table that its run is not of."""
    run = await begin_run(db, ranges=1)
    await db.insert(range_of(run, part=JobRange(table="Others", partitions=Bounds())))
    with pytest.raises(ModelError, match="has a range of table 'Others', and is of ForgedBoats"):
        await rewrite(db, Boat)


@pytest.mark.parametrize("lease", [1e300, float("inf"), float("nan"), -1.0])
async def test_a_lease_that_never_ends(db: Database, lease: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A range of a process that is not there is taken over, whatever lease its row says."""
    monkeypatch.setattr("tableorm.jobs.process._LONGEST_LEASE", 0.2)
    run = await begin_run(db, ranges=1)
    await db.insert(range_of(run, owner="nobody", taken="t", lease=lease))
    async with asyncio.timeout(20):
        assert (await rewrite(db, Boat)).complete


async def test_failures_that_are_too_long(db: Database) -> None:
    """What ranges say of failures is cut to what the row of the run can hold."""
    run = await begin_run(db, ranges=2)
    counts = {"failed": 1, "failures": ["x" * 20_000]}
    for number in range(2):
        part = JobRange(table="ForgedBoats", partitions=Bounds(), done=True)
        await db.insert(range_of(run, number=number, part=part, counts=counts))
    report = await rewrite(db, Boat)
    assert (report.state, report.failed, max(map(len, report.failures))) == ("failed", 2, 440)


async def test_a_sum_that_is_no_number(db: Database) -> None:
    """It is an error that names the row, for who works on the run and for who lists all runs."""
    run = await begin_run(db, ranges=1)
    await db.insert(range_of(run))
    keys = {"PartitionKey": f"run {run.name}", "RowKey": "range_0000"}
    row = {**keys, "counts": '{"sums":{"sources":{"rows":1,"digest":"none"}}}'}
    await merge_row(db, "TableormUpkeep", row)
    with pytest.raises(DecodeError, match="range_0000"):
        await db.runs()
    with pytest.raises(DecodeError, match="range_0000"):
        await rewrite(db, Boat)
