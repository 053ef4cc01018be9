"""
`rewrite`: one process, and several at the same time.
"""

import asyncio
import datetime as dt
from typing import Any

import pytest

from tableorm import (
    AccessDenied,
    Database,
    Entity,
    Index,
    Mapped,
    ModelError,
    PropertyBag,
    RunReport,
    TableNotFound,
    field,
    upgrade,
    utc_now,
)
from tableorm.protocol.edm import text_from_datetime
from tableorm.stores import RowQuery, StoreRequest
from tableorm_migrations import rewrite
from tests.database.between import Between
from tests.database.conftest import also_in_file
from tests.databases import memory_database
from tests.rows import merge_row

pytestmark = pytest.mark.usefixtures("many_ranges")

UPKEEP = "TableormUpkeep"


class AnyPlayer(Entity, table="RunPlayers", abstract=True, partition_key="{team}", row_key="player_{id:04d}"):
    team: Mapped[str]
    id: Mapped[int]


class PlayerV1(AnyPlayer, kind="Player"):
    name: Mapped[str]


class Player(AnyPlayer, version=2):
    nick: Mapped[str]
    by_nick = Index(row_key="nick_{nick}_{id:04d}")


class Referee(Entity, table="RunReferees", version=2, partition_key="{id:04d}", row_key="referee"):
    id: Mapped[int]


class Keyless(AnyPlayer, kind=None, row_key="keyless_{id:04d}"):
    pass


@upgrade(Player, from_version=1)
def rename(bag: PropertyBag) -> PropertyBag:
    bag["nick"] = str(bag.pop("name"))
    if bag["nick"] == "":
        raise ValueError("a player\n has a name")
    return bag


async def fill(db: Database, teams: int = 6, size: int = 5) -> None:
    await db.create_tables(Player)
    async with db.bulk(errors="report") as bulk:
        for team in range(teams):
            for number in range(size):
                await bulk.insert(PlayerV1(team=f"team-{team:03d}", id=number, name=f"Ann{number}"))
    assert bulk.report.failures == 0


async def versions(db: Database) -> set[str]:
    rows = await db.select_raw("RunPlayers").allow_scan().all()
    return {str(row["EntityType"]) for row in rows if row.row_key.startswith("player_")}


async def test_every_old_row_gets_the_current_version(db: Database) -> None:
    """With all that is derived from it; afterwards one row tells of the run, and none of its ranges. Others stay."""
    await fill(db)
    await db.insert(Player(team="team-000", id=900, nick="New"))
    await db.insert(PropertyBag("RunPlayers", "team-000", "other", {"EntityType": "Other"}))
    before = [await db.get(PropertyBag.key("RunPlayers", "team-000", key)) for key in ("player_0900", "other")]

    report = await rewrite(db, Player)

    assert (report.complete, report.state, report.entities, report.written, report.failed) == (True, "done", 31, 30, 0)
    assert [(await db.get(PropertyBag.key(each.table, each.partition_key, each.row_key))).etag for each in before] == [
        each.etag for each in before
    ]
    assert (await db.get(Player.by_nick, team="team-001", nick="Ann3", id=3)).id == 3
    assert (report.ranges, report.ranges_done, report.owners) == (6, 6, ())
    assert str(report).startswith(f"{report.name}: 31 entities read, 30 written; done in ")
    assert await versions(db) == {"Player:2"}
    assert (await db.audit(Player)).clean
    rows = await db.select_raw(UPKEEP).allow_scan().all()
    runs = [row for row in rows if row.partition_key.startswith("run ")]
    assert [(row.partition_key, row.row_key) for row in runs] == [(f"run {report.name}", "run")]
    assert await db.runs() == [report]


async def test_a_run_that_has_ended_is_done_again_unless_it_has_a_name(db: Database) -> None:
    """The next call without a name reads all rows again; one with a name returns what the first has done."""
    await fill(db, 2)
    named = await rewrite(db, Player, name="0001 rename")

    again = await rewrite(db, Player)
    others = [await rewrite(db, Player), await rewrite(db, Player, name="0001 rename")]

    assert (named.written, again.entities, again.written, others[0].entities) == (10, 10, 0, 10)
    assert others[1] == named
    assert [each.name for each in await db.runs()] == ["0001 rename", again.name]


@pytest.mark.parametrize("name", ["2026/11: #3?", "a\\b^c", "tab\there", "%2F \u00fc"])
async def test_a_name_may_have_any_characters(db: Database, name: str) -> None:
    """Those that no key may contain are escaped in the keys of its rows."""
    await fill(db, 2)
    report = await rewrite(db, Player, name=name)

    assert (report.complete, report.entities, await db.runs()) == (True, 10, [report])
    assert await rewrite(db, Player, name=name) == report
    await db.drop_run(name)
    assert await db.runs() == []


@also_in_file
async def test_several_processes_share_the_ranges(db: Database) -> None:
    """Each row is read by one of them, and all return the same report."""
    await fill(db, 12)

    reports = await asyncio.gather(*(rewrite(db, Player, parallel=2) for _ in range(3)))

    assert {(report.entities, report.written, report.complete) for report in reports} == {(60, 60, True)}
    assert reports[0] == reports[1] == reports[2]
    assert await versions(db) == {"Player:2"}


async def test_what_fails_is_told_and_done_again(db: Database) -> None:
    """The run has failed, with the reasons; the next call with its name begins it anew."""
    await fill(db, 2)
    await db.insert(PlayerV1(team="team-001", id=77, name=""))

    failed = await rewrite(db, Player, name="rename")
    await db.upsert(PlayerV1(team="team-001", id=77, name="Bo"))
    done = await rewrite(db, Player, name="rename")

    assert (failed.state, failed.complete, failed.written, failed.failed) == ("failed", False, 10, 1)
    assert failed.failures == ("('team-001', 'player_0077') in table RunPlayers: ValueError: a player has a name",)
    assert (done.state, done.written, done.failures) == ("done", 1, ())


async def test_what_no_attempt_cures_fails_at_once() -> None:
    """A value that an upgrade makes, and another entity has, is named after one attempt."""

    class Mail(Entity, table="RunMails", abstract=True, partition_key="p", row_key="row_{id}"):
        id: Mapped[int]
        mail: Mapped[str]
        by_mail = Index(row_key="m_{mail}", unique=True)

    class V1(Mail, kind="Mail"):
        pass

    class V2(Mail, kind="Mail", version=2):
        pass

    @upgrade(V2, from_version=1)
    def _(bag: PropertyBag) -> PropertyBag:
        bag["mail"] = bag["mail"].lower()
        return bag

    async with memory_database(V1) as db:
        for number, mail in enumerate(("a", "A")):
            await db.insert(V1(id=number, mail=mail))
        with db.observe() as seen:
            report = await rewrite(db, V2)

    assert "UniqueViolation" in report.failures[0] and report.failed == 1
    assert len(seen.requests) < 40


async def test_many_failures_fit_into_the_rows(db: Database) -> None:
    """All are counted, and the first of them named."""
    await fill(db, 3, 0)
    async with db.bulk(errors="report") as bulk:
        for number in range(200):
            await bulk.insert(PlayerV1(team=f"team-{number % 3:03d}", id=number, name=""))

    report = await rewrite(db, Player)

    assert (report.failed, len(report.failures)) == (200, 35)
    assert all(len(each) <= 440 for each in report.failures)


async def test_progress_is_of_all_processes(db: Database) -> None:
    """`on_progress` gets the report so far, which `db.runs` gives to others."""
    await fill(db, 4, 5)
    found: list[RunReport] = []

    report = await rewrite(db, Player, parallel=1, on_progress=found.append)

    assert [each.state for each in found] == ["open"] * len(found)
    assert found[-1].entities == 20
    assert [each.entities for each in found] == sorted(each.entities for each in found)
    assert any(each.owners for each in found)
    assert found[0].to_dict()["ranges"] == report.ranges
    assert f"; 1 of {report.ranges} ranges done" in str(next(each for each in found if each.ranges_done == 1))


async def test_models_of_several_tables(db: Database) -> None:
    """Each table has ranges of its own."""
    await fill(db, 2)
    await db.create_tables(Referee)
    await db.insert(Referee(id=1))

    report = await rewrite(db, Referee, Player)

    assert (report.what, report.entities, report.written) == ("rewrite Player, Referee", 11, 10)


async def test_a_run_is_dropped(db: Database) -> None:
    """With its ranges, if it is under way; a run of that name is a new one."""
    await fill(db, 3)

    def stop(report: RunReport) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        await rewrite(db, Player, name="first", on_progress=stop)
    await rewrite(db, Player, name="second")
    await db.drop_run("first")

    assert [run.name for run in await db.runs()] == ["second"]
    rows = await db.select_raw(UPKEEP).allow_scan().all()
    assert [row.row_key for row in rows if row.partition_key == "run first"] == []
    with pytest.raises(ModelError, match=r"drop_run\('first'\).*no run"):
        await db.drop_run("first")
    with pytest.raises(AccessDenied, match="drop_run"):
        await db.scope(team="team-000").drop_run("second")


async def test_an_empty_table(db: Database) -> None:
    """There is nothing to do, and the run ends."""
    await db.create_tables(Player)

    assert (await rewrite(db, Player)).complete


async def test_what_cannot_be_asked(db: Database) -> None:
    """Arguments that are rejected, a table that is not there, a scope, and a name that another run has."""
    with pytest.raises(TableNotFound):
        await rewrite(db, Player)
    assert await db.runs() == []
    await fill(db, 1)
    with pytest.raises(ModelError, match="at least one model"):
        await rewrite(db)
    with pytest.raises(ModelError, match=r"rewrite\(Keyless\).*kind=None"):
        await rewrite(db, Keyless)
    refused: list[tuple[str, Any]] = [("parallel", 0), ("lease", 0), ("rate", -1), ("name", "")]
    for option, value in refused:
        with pytest.raises(ModelError, match=rf"rewrite\({option}={value!r}\)"):
            await rewrite(db, Player, **{option: value})
    scope = db.scope(team="team-000")
    with pytest.raises(AccessDenied, match="rewrite"):
        await rewrite(scope, Player)
    with pytest.raises(AccessDenied, match="runs"):
        await scope.runs()
    await rewrite(db, Player, name="first")
    await db.create_tables(Referee)
    with pytest.raises(ModelError, match=r"'rewrite Player'.*'rewrite Referee'"):
        await rewrite(db, Referee, name="first")


class Racing(Between):
    """A store in which an old program writes to a row right after a page with rows was read."""

    raced = False

    def __init__(self, table: str, changes: dict[str, object]) -> None:
        super().__init__()
        self.table, self.changes = table, changes

    async def send(self, request: StoreRequest) -> Any:
        reply = await super().send(request)
        if request.method == "query" and reply.rows and request.table == self.table and not self.raced:
            self.raced = True
            await merge_row(self.inner.tables, self.table, self.changes)
        return reply


async def test_a_row_that_changes_meanwhile_is_read_again() -> None:
    """What an old program has written since the page was read is kept, and upgraded."""
    racing = Racing("RunPlayers", {"PartitionKey": "team-000", "RowKey": "player_0001", "name": "Bob"})
    async with Database(racing) as db:
        await fill(db, 1, 3)

        report = await rewrite(db, Player)

        assert (report.written, report.complete) == (3, True)
        assert (await db.get(Player, team="team-000", id=1)).nick == "Bob"


class AnyOffer(Entity, table="Offers", abstract=True, partition_key="{shop}", row_key="offer_{id:04d}"):
    shop: Mapped[str]
    id: Mapped[int]
    expires: Mapped[dt.datetime | None] = field(default=None, expiry=True)


class OfferV1(AnyOffer, kind="Offer"):
    pass


class Offer(AnyOffer, version=2):
    pass


@upgrade(Offer, from_version=1)
def keep(bag: PropertyBag) -> PropertyBag:
    return bag


async def test_what_has_expired_is_rewritten(stopped_clock: None) -> None:
    """
    A row that has expired is read until it is swept, so it has to be of the current version too: also if its time was
    shortened since the page was read.
    """
    now = utc_now()
    ended: dict[str, object] = {"PartitionKey": "pens", "RowKey": "offer_0001", "expires": text_from_datetime(now)}
    ended["expires@odata.type"] = "Edm.DateTime"
    async with Database(Racing("Offers", ended)) as db:
        await db.create_tables(Offer)
        for number, expires in enumerate([now, now + dt.timedelta(hours=1), None]):
            await db.insert(OfferV1(shop="pens", id=number, expires=expires))

        report = await rewrite(db, Offer)

        rows = (await db.store.query("Offers", RowQuery(), 1000, None)).rows
        assert [row["EntityType"] for row in rows] == ["Offer:2"] * 3
        assert (report.written, report.complete) == (3, True)
        assert (await db.sweep(Offer)).deleted == 2
