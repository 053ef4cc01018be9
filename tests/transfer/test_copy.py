"""
`copy_rows` and `compare_rows`: rows come as they are stored, nothing is overwritten, and every difference is seen.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tableorm import (
    AccessDenied,
    Database,
    Entity,
    Index,
    Mapped,
    ModelError,
    PropertyBag,
    TableNotFound,
    TableOrmError,
    TransferReport,
    connect,
)
from tableorm.jobs import scan
from tableorm.stores import Row, StoreRequest
from tableorm.testing import MemoryStore
from tableorm_local import Account, serve
from tests.azurite import KEY, Azurite
from tests.database.between import Between, Shuffled
from tests.databases import memory_database
from tests.faults import Fate, FaultyStore
from tests.outbox.network import FATES, Death, connected, failing_at
from tests.rows import replace_row
from tests.torture import Rounds, examples
from tests.transfer.rows import TABLE, content_of, fill, make_rows, row_lists


class Part(Entity, table="TransferParts", partition_key="{shop}", row_key="part_{id:04d}"):
    shop: Mapped[str]
    id: Mapped[int]
    name: Mapped[str]
    by_name = Index(row_key="name_{name}", unique=True)


@asynccontextmanager
async def two(rows: list[Row]) -> AsyncGenerator[tuple[Database, Database]]:
    """Two databases in memory, of which the first has these rows."""
    async with memory_database() as db, memory_database() as target:
        await fill(db.store, rows)
        yield db, target


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[str]:
    """The connection string of a server."""
    accounts = [Account(name="contoso", keys=(KEY,))]
    async with serve(tmp_path / "served.tables", port=0, accounts=accounts) as server:
        yield f"AccountName=contoso;AccountKey={KEY};TableEndpoint={server.url}"


@settings(examples(6, 1500), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(row_lists)
async def test_there_and_back(served: str, rows: list[Row]) -> None:
    """From a file to a server and from there to a file, every row is the same, byte for byte."""
    async with connect(served) as server, two(rows) as (db, back):
        await server.drop_table(TABLE, missing_ok=True)
        assert (await db.copy_rows(server)).complete
        assert (await server.copy_rows(back)).complete

        assert await content_of(back) == await content_of(db)
        assert (await db.compare_rows(back)).equal == len(rows)


@settings(examples(4, 1500), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(row_lists)
async def test_through_azurite(azurite: Azurite, rows: list[Row]) -> None:
    """The same through Azurite, which changes -0.0: that is found by a comparison."""
    async with connect(azurite.connection_string) as emulator, two(rows) as (db, back):
        await emulator.drop_table(TABLE, missing_ok=True)
        await db.copy_rows(emulator)
        await emulator.copy_rows(back)

        sent = {_sorted(json.loads(each)) for each in await content_of(db)}
        kept = {_as_azurite_keeps(each) for each in sent}
        assert (await emulator.compare_rows(back)).complete
        assert (await db.compare_rows(back)).failed == len(sent - kept)
        assert {_sorted(json.loads(each)) for each in await content_of(back)} == kept
        await emulator.drop_table(TABLE)


def _sorted(row: Row) -> str:
    """Return the JSON of a row, whatever the order of its properties is: Azurite has its own."""
    return json.dumps(row, sort_keys=True)


def _as_azurite_keeps(row: str) -> str:
    """Return the JSON of a row as Azurite returns it, which writes -0.0 as 0.0."""
    members = json.loads(row)
    zeros = {name: 0.0 for name, value in members.items() if isinstance(value, float) and value == 0.0}
    return _sorted(members | zeros)


async def test_a_whole_database() -> None:
    """Entities, index entries, unique values and states of indexes: a program goes on with the copy."""
    async with memory_database(Part) as db, memory_database() as target:
        for number in range(20):
            await db.insert(Part(shop=f"s{number % 3}", id=number, name=f"n{number}"))
        await db.copy_rows(target, name="nightly")
        assert {*await db.tables()} == {*await target.tables()}
        # A run of the source is none of the target.
        await target.copy_rows(db, name="back")
        assert [run.name for run in await target.runs()] == ["nightly"]

        found = await target.select(Part.by_name).where(Part.shop == "s1", Part.name == "n7").all()
        assert [each.id for each in found] == [7]
        assert (await target.audit(Part)).clean
        await target.save(found[0].evolve(name="other"))
        assert (await target.audit(Part)).clean


async def test_what_is_there_stays() -> None:
    """Equal rows are not written again; rows that differ are failures, are skipped, or are replaced."""
    async with two(make_rows(1_100)) as (db, target):
        await db.copy_rows(target, TABLE)
        changed = await target.select_raw(TABLE).where("n lt 3").allow_scan().all()
        for bag in changed:
            bag["n"] = -1
            await target.save(bag)
        await target.delete(PropertyBag.key(TABLE, "p3", "000003"), if_match="*")
        before = await content_of(target)

        failing = await db.copy_rows(target, TABLE)
        assert (failing.entities, failing.written, failing.equal, failing.failed) == (1_100, 1, 1_096, 3)
        assert "('p0', '000000'): is in table Transferred already, with other content: n" in failing.failures
        assert len(await content_of(target)) == len(before) + 1
        skipping = await db.copy_rows(target, TABLE, if_exists="skip")
        assert (skipping.skipped, skipping.complete) == (3, True)
        assert {*before} < {*await content_of(target)}
        replacing = await db.copy_rows(target, TABLE, if_exists="replace")
        assert (replacing.written, replacing.replaced, replacing.equal) == (3, 3, 1_097)
        assert await content_of(target) == await content_of(db)


async def test_a_comparison_sees_every_difference() -> None:
    """A changed row, a missing one, one more, and a value of another type are found, each by its keys."""
    async with two(make_rows(1_100)) as (db, target):
        await db.copy_rows(target)
        assert (await db.compare_rows(target)).complete
        await target.delete(PropertyBag.key(TABLE, "p1", "000001"), if_match="*")
        await target.insert(PropertyBag(TABLE, "p9", "more"))
        await target.merge(PropertyBag(TABLE, "p2", "000002", {"n": 2.0}), if_match="*")
        await target.merge(PropertyBag(TABLE, "p3", "000003", {"m": 1}), if_match="*")

        report = await db.compare_rows(target)

        assert (report.entities, report.equal, report.failed) == (1_100, 1_097, 4)
        assert sorted(report.failures) == [
            "('p1', '000001'): is missing in table Transferred of the target",
            "('p2', '000002'): differs in table Transferred of the target: n",
            "('p3', '000003'): differs in table Transferred of the target: m",
            "('p9', 'more'): is in table Transferred of the target alone",
        ]


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("n ge 90", 10),
        ("PartitionKey eq 'p3'", 14),
        ("PartitionKey gt 'p3' and n lt 50 and PartitionKey le 'p5'", 14),
        ("PartitionKey gt 'p5' and PartitionKey lt 'p2'", 0),
        ("PartitionKey eq 'p3' or PartitionKey eq 'p4'", 28),
    ],
)
async def test_a_filter(where: str, count: int) -> None:
    """Only the rows that satisfy it are copied and compared, and partitions that it excludes are not read."""
    async with two(make_rows(100)) as (db, target):
        with db.observe() as seen:
            report = await db.copy_rows(target, where=where)

        assert (report.entities, report.written, len(await content_of(target))) == (count, count, count)
        assert (await db.compare_rows(target, where=where)).equal == count
        if "eq" in where and "or" not in where:
            assert seen.rows == count


async def test_one_database_under_two_connections(served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of a database to itself is rejected however its URL is spelled; another prefix is another database."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "linked").symlink_to(tmp_path)
    spellings = [
        ("local:a.tables", f"local:{other}") for other in ("./a.tables", tmp_path / "a.tables", "linked/a.tables")
    ]
    for one, other in [*spellings, (served, served)]:
        async with connect(one) as db, connect(other) as again, connect(other, prefix="prod") as prefixed:
            await fill(db.store, make_rows(3))
            for call in (db.copy_rows, db.compare_rows):
                with pytest.raises(ModelError, match="both sides are one database"):
                    await call(again)
            assert (await db.copy_rows(prefixed, TABLE)).written == 3
            await db.drop_table(TABLE)
            await prefixed.drop_table(TABLE)


async def test_a_default_port_is_no_other_database() -> None:
    """A URL may name the port that its scheme has anyway."""
    for scheme, port in (("http", 80), ("https", 443)):
        one, other = f"{scheme}://127.0.0.1/contoso", f"{scheme}://127.0.0.1:{port}/contoso"
        async with connect(one, key=KEY) as db, connect(other, key=KEY) as again:
            with pytest.raises(ModelError, match="both sides are one database"):
                await db.copy_rows(again)


async def test_other_names() -> None:
    """Prefixes are those of either side; a scope copies nothing, and a mistake is told before anything is made."""
    async with memory_database(Part, prefix="dev") as db, memory_database(prefix="prod") as target:
        await db.insert(Part(shop="s", id=1, name="n"))
        await db.copy_rows(target, "TransferParts")
        assert await target.tables() == ["TransferParts"]
        assert await target.select(Part).allow_scan().count() == 1
        with pytest.raises(AccessDenied, match="copy_rows"):
            await db.scope(Part, shop="s").copy_rows(target)
        with pytest.raises(ModelError, match="both sides are one database"):
            await db.copy_rows(db)
        with pytest.raises(ModelError, match="where"):
            await db.copy_rows(target, where="n eq")
        with pytest.raises(ModelError, match="if_exists='merge'"):
            await db.copy_rows(target, if_exists="merge")  # type: ignore[arg-type]
        with pytest.raises(TableNotFound, match="Nothing"):
            await db.copy_rows(target, "Nothing")
        assert await target.tables() == ["TransferParts"]


async def test_a_row_that_the_target_refuses(azurite: Azurite) -> None:
    """It is a failure that names the property, also amid a transaction; the others are copied."""
    rows = make_rows(30, partitions=1)
    rows[7]["half"] = "a\ud800"
    async with connect(azurite.connection_string) as db, connect("local::memory:") as target:
        await fill(db.store, rows)
        report = await db.copy_rows(target, TABLE)
        await db.drop_table(TABLE)

        assert (report.written, report.failed) == (29, 1)
        assert report.failures[0].startswith("('p0', '000007'): half: 'a\\ud800' is not a value")


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "MAX_PAGE", 6)


@pytest.mark.usefixtures("small_pages")
@pytest.mark.one_of(4)
@pytest.mark.parametrize("fault", [*FATES, *Death])
async def test_each_write_that_meets_a_fault(fault: Fate | Death, rounds: Rounds) -> None:
    """
    A copy without a name goes on by itself, or another call does if its process has died: nothing is lost, or written
    twice.
    """
    async with connect("local::memory:") as db:
        await fill(db.store, make_rows(60))
        network = FaultyStore(MemoryStore())
        async with connected(network) as target:
            await db.copy_rows(target, parallel=3)
        numbers = range(len(network.sent))
        for at in numbers[:: rounds(3, 1)]:
            store = MemoryStore()
            network = failing_at(store, at, fault)
            async with connected(network) as target:
                with suppress(TableOrmError) if isinstance(fault, Death) else nullcontext():
                    await db.copy_rows(target, parallel=3)
            await network.deliver()
            async with connected(store) as target:
                report = await db.copy_rows(target, parallel=3)
                assert (at, report.entities, report.failed) == (at, 60, 0)
                assert (at, await content_of(target)) == (at, await content_of(db))


@pytest.mark.usefixtures("small_pages")
async def test_a_cursor_goes_on() -> None:
    """Who works alone goes on from the cursor of a report, and counts each row once."""
    async with two(make_rows(60, partitions=1)) as (db, target):
        cursors: list[str] = []

        def stop(report: TransferReport) -> None:
            cursors.append(str(report.cursor))
            if len(cursors) == 3:
                raise InterruptedError

        with pytest.raises(InterruptedError):
            await db.copy_rows(target, on_progress=stop)
        with db.observe() as seen:
            report = await db.copy_rows(target, cursor=cursors[-1])

        assert (report.entities, report.written, seen.rows) == (60, 60, 42)
        assert await content_of(target) == await content_of(db)


class Raced(Between):
    """Somebody writes a row after it was read for the first time."""

    raced = False

    async def send(self, request: StoreRequest) -> Any:
        reply = await super().send(request)
        if request.method == "query" and any(row["RowKey"] == "000000" for row in reply.rows) and not self.raced:
            self.raced = True
            await replace_row(self, request.table, {"PartitionKey": "p0", "RowKey": "000000", "n": 77})
        return reply


async def test_a_row_that_is_written_meanwhile() -> None:
    """Who replaces rows does so under the ETag that it has read, and looks again if somebody was faster."""
    async with connect("local::memory:") as db, Database(Raced()) as target:
        await fill(db.store, make_rows(30, partitions=1))
        await fill(target.store, make_rows(30, partitions=1, other=1))
        with target.observe() as seen:
            report = await db.copy_rows(target, if_exists="replace")

        assert (report.written, report.replaced, report.failed) == (30, 30, 0)
        assert [each.outcome for each in seen.requests if each.operation == "transaction"] == [
            "EntityAlreadyExists",
            "UpdateConditionNotSatisfied",
            "ok",
        ]
        assert await content_of(target) == await content_of(db)


async def test_stores_without_order() -> None:
    """Rows that come in no order are copied and compared all the same."""
    async with Database(Shuffled()) as db, Database(Shuffled()) as target:
        await fill(db.store, make_rows(60))
        assert (await db.copy_rows(target)).written == 60
        assert (await db.copy_rows(target)).equal == 60
        assert (await db.compare_rows(target)).equal == 60
        await target.insert(PropertyBag(TABLE, "p9", "more"))
        assert (await db.compare_rows(target)).failed == 1
