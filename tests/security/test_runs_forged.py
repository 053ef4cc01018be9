"""
Texts in rows of shared runs, of states of indexes and of revisions, which who may write the table of upkeep chooses.
"""

import asyncio
import datetime as dt
import logging

import pytest

from tableorm import Entity, LostRace, Mapped, connect
from tableorm.stores import Operation, Verb
from tableorm_migrations import RunReport, migration_status, run_rewrite
from tableorm_migrations.command.output import Output
from tableorm_migrations.command.stored import print_run
from tableorm_migrations.runs.rows import Run, RunCounts

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


async def test_rows_of_upkeep_make_no_lines_of_a_status() -> None:
    """The status has a line for each row, whatever the row says."""
    async with connect("local::memory:") as db:
        await db.create_tables(Run)
        counts = RunCounts(failures=[LINE])
        run = Run(name="run", what=LINE, purpose="p", begun=NOW, ended=NOW, state=LINE, counts=counts)
        await db.insert(run)
        state = {"PartitionKey": "index states", "RowKey": "d", "Model": LINE, "Declaration": LINE, "Table": LINE}
        await db.store.write("TableormUpkeep", Operation(Verb.INSERT, state))
        status = await migration_status(db)
    assert len(str(status).split("\n")) == 1 + 2 + 2
    assert "\n0002" not in str(status)


def test_a_row_of_a_run_makes_no_lines_of_what_is_printed(
    report: RunReport, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run and its failures are a line each."""
    with Output(as_json=False) as output:
        print_run(output, report)
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_what_is_logged_of_a_run_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    """The error of a server, which may quote anything, makes no lines of the log."""
    logging.getLogger("tableorm.migrations").warning("it is not stored: %s", LINE)
    assert caplog.messages == ["it is not stored: x\\u000a0002_more: applied"]


class Boat(Entity, table="ForgedBoats", version=2, partition_key="{harbour}", row_key="boat"):
    harbour: Mapped[str]


async def test_a_row_in_the_place_of_a_run_does_not_hold_its_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that can be neither begun nor found is an error that says what to delete."""
    monkeypatch.setattr("tableorm_migrations.runs.process._SHORTEST_PAUSE", 0.0)
    async with connect("local::memory:") as db:
        await db.create_tables(Boat, Run)
        row = {"PartitionKey": "run again", "RowKey": "run", "EntityType": "Other"}
        await db.store.write("TableormUpkeep", Operation(Verb.INSERT, row))
        with pytest.raises(LostRace, match="delete what other programs have written into partition 'run again'"):
            async with asyncio.timeout(5):
                await run_rewrite(db, Boat, name="again")
