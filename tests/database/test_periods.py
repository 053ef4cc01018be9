"""
Upkeep of tables of periods: making them in time, dropping whole periods with their blobs, and tokens for them.
"""

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tableorm import (
    AccessDenied,
    BlobArchive,
    Conflict,
    Database,
    DroppedPeriods,
    EncodeError,
    Entity,
    Index,
    Mapped,
    ModelError,
    NotSupported,
    TableNotFound,
    Workflow,
    connect,
    field,
    workflow,
)
from tableorm.connection import period_tables
from tableorm.logs import LogStream
from tableorm.stores import CLOCK
from tableorm.testing import Faults
from tableorm_migrations import rewrite
from tests.databases import database_fixture

UTC = dt.UTC
DAY = dt.timedelta(days=1)
NOON = dt.datetime(2024, 2, 28, 12, tzinfo=UTC)


class OfUser(Entity, abstract=True):
    """What a user has done at some moment."""

    user: Mapped[str] = field(default="a")
    at: Mapped[dt.datetime]


class Login(OfUser, table="KeptLogins{at:%Y%m%d}", partition_key="{user}", row_key="{at:ticks_desc}"):
    ok: Mapped[bool] = field(default=True)

    by_outcome = Index(row_key="ok_{ok}_{at:ticks_desc}", building=False)


class Bill(Entity, table="KeptBills{day:%Y%m}", partition_key="{shop}", row_key="{day}"):
    shop: Mapped[str]
    day: Mapped[dt.date]


class Hourly(OfUser, table="KeptHours{at:%Y%m%d%H}", partition_key="{user}", row_key="{at:ticks}"): ...


class Batch(Entity, table="KeptBatches{number:03d}", partition_key="{number:03d}", row_key="{item}"):
    number: Mapped[int]
    item: Mapped[str]


class Attempt(OfUser, table="KeptAttempts{at:%Y%m%d}", partition_key="{user}", row_key="{at:ticks_desc}"): ...


class Plain(Entity, table="KeptPlain", partition_key="{user}", row_key="x"):
    user: Mapped[str]


@pytest.fixture(autouse=True)
def clock() -> Iterator[None]:
    CLOCK.freeze(NOON)
    yield
    CLOCK.reset()


db = database_fixture()


async def test_tables_are_made_in_time(db: Database) -> None:
    """The tables of the present period and of the next ones are made, as far as there are none."""
    assert await db.prepare_periods(Login) == ["KeptLogins20240228", "KeptLogins20240229"]
    assert await db.prepare_periods(Login, ahead=2) == ["KeptLogins20240301"]
    assert await db.prepare_periods(Bill, ahead=0) == ["KeptBills202402"]
    assert await db.prepare_periods(Hourly) == ["KeptHours2024022812", "KeptHours2024022813"]
    with db.observe() as seen:
        await db.insert(Login(at=NOON + DAY))
    assert [request.operation for request in seen.requests] == ["transaction"]


async def test_create_tables_makes_the_present_period(db: Database) -> None:
    """`create_tables` makes the table of the present period; those of numbers are made on the first write."""
    await db.create_tables(Login, Batch, Plain)

    assert await db.tables() == ["KeptLogins20240228", "KeptPlain"]


async def test_what_cannot_be_prepared(db: Database) -> None:
    """Plain models have no periods, numbers no present, and a table that goes is waited for."""
    with pytest.raises(ModelError, match="all its entities are in table KeptPlain"):
        await db.prepare_periods(Plain)
    with pytest.raises(ModelError, match="those of numbers"):
        await db.prepare_periods(Batch)
    with pytest.raises(ModelError, match="ahead=-1 is rejected"):
        await db.prepare_periods(Login, ahead=-1)


async def test_a_table_that_goes(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Preparing waits for a table of that name which is being deleted, and says so if that lasts too long."""
    monkeypatch.setattr(period_tables, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(period_tables, "_LONGEST_WAIT", 0.002)
    faults = Faults(db)

    with faults.fail_next("create-table", with_="TableBeingDeleted"):
        assert await db.prepare_periods(Login, ahead=0) == ["KeptLogins20240228"]
    planned = faults.fail_next("create-table", with_="TableBeingDeleted", times=99)
    with pytest.raises(Conflict, match="still being deleted"):
        await db.prepare_periods(Bill, ahead=0)
    planned.left = 0


async def test_whole_periods_are_dropped(db: Database) -> None:
    """Each period that has ended by a time goes with all of its rows; one that reaches past it stays."""
    for number in range(4):
        await db.insert(Login(at=NOON + number * DAY))
    await db.create_tables("KeptLogins", "KeptLoginsOld", "KeptLogins20249999")

    for before in (NOON + DAY, dt.datetime(2024, 3, 1, 0, 59, tzinfo=dt.timezone(dt.timedelta(hours=1)))):
        planned = await db.drop_periods(Login, before=before, dry_run=True)
        assert planned.tables == ("KeptLogins20240228",)
    with db.observe() as seen:
        dropped = await db.drop_periods(Login, before=dt.datetime(2024, 3, 1, tzinfo=UTC))

    assert dropped == DroppedPeriods(("KeptLogins20240228", "KeptLogins20240229"))
    assert [request.operation for request in seen.requests] == ["list-tables", "delete-table", "delete-table"]
    assert await db.tables() == [
        "KeptLogins", "KeptLogins20240301", "KeptLogins20240302", "KeptLogins20249999", "KeptLoginsOld",
    ]  # fmt: skip
    assert [login.at for login in await db.select(Login).where(Login.user == "a").allow_scan().all()] == [
        NOON + 3 * DAY,
        NOON + 2 * DAY,
    ]
    assert str(dropped) == "2 tables (KeptLogins20240228, KeptLogins20240229), 0 blobs"


async def test_months_and_numbers_are_dropped(db: Database) -> None:
    """A bound is of the type of the field; a month stays while one of its days does, and a number is kept itself."""
    for day in (dt.date(2023, 12, 31), dt.date(2024, 1, 31), dt.date(2024, 2, 1)):
        await db.insert(Bill(shop="a", day=day))
    for number in (1, 2, 999):
        await db.insert(Batch(number=number, item="x"))

    assert (await db.drop_periods(Bill, before=dt.date(2024, 1, 31))).tables == ("KeptBills202312",)
    assert (await db.drop_periods(Bill, before=dt.date(2024, 2, 1))).tables == ("KeptBills202401",)
    assert (await db.drop_periods(Batch, before=2)).tables == ("KeptBatches001",)
    assert (await db.drop_periods(Batch, before=999)).tables == ("KeptBatches002",)


async def test_what_is_not_dropped(db: Database) -> None:
    """Bounds of another type, plain models, scopes, and what reads one table are rejected by name."""
    with pytest.raises(EncodeError, match="needs an aware datetime"):
        await db.drop_periods(Login, before=dt.datetime(2024, 1, 1))  # noqa: DTZ001
    with pytest.raises(EncodeError, match=r"before: .* is rejected: Bill\.\w+ needs a date, got"):
        await db.drop_periods(Bill, before=NOON)
    with pytest.raises(ModelError, match="a model has a table for each period by a template"):
        await db.drop_periods(Plain, before=NOON)
    with pytest.raises(AccessDenied, match="whole table"):
        await db.scope(user="a").drop_periods(Login, before=NOON)
    with pytest.raises(ModelError, match=r"drop_periods\(\)"):
        await db.drop_table(Login)
    with pytest.raises(ModelError, match=r"audit\(Login\) is rejected: Login has a table .*; leave Login out"):
        await db.audit(Plain, Login)
    with pytest.raises(
        ModelError, match=r"worker\(Login, Bill\) is rejected: .* have a table .*; leave Login, Bill out"
    ):
        db.worker(Plain, Login, Bill)


async def test_what_works_on_one_table_is_refused(db: Database) -> None:
    """Rewrites, shared runs, archives, workers, policies and workflows are rejected by the name of the model."""
    login = Login(at=NOON)
    await db.insert(login)
    calls: list[Callable[[], Any]] = [
        lambda: rewrite(db, Login),
        lambda: db.build_index(Login.by_outcome),
        lambda: db.archive(login, to=Plain),
        lambda: db.archive(login, to=BlobArchive("archives", Login)),
        lambda: db.worker(Login),
        lambda: db.policies(Login),
        lambda: workflow("follow", version=1)(FollowLogin),
    ]
    for call in calls:
        with pytest.raises((ModelError, NotSupported), match=r"Login.* a table for each period"):
            await call()

    assert await db.tables() == ["KeptLogins20240228"]


class FollowLogin(Workflow[Login]):
    async def greet(self, login: Login) -> None: ...


@pytest.mark.parametrize("dry_run", [True, False])
async def test_blobs_of_a_period_go_with_it(db: Database, dry_run: bool) -> None:
    """The blobs whose names begin with the dropped periods go, before the tables; those of other logs stay."""
    await db.insert(Login(at=NOON))
    await db.insert(Hourly(at=NOON))
    for name in ("logins", "others"):
        async with LogStream(db, name) as log:
            for hours in (-13, 0, 1, 12):
                await log.write({"n": hours}, at=NOON + dt.timedelta(hours=hours))

    by_hour = await db.drop_periods(Hourly, before=NOON + DAY, blobs="logs/logins", dry_run=dry_run)
    by_day = await db.drop_periods(Login, before=NOON + DAY, blobs="logs/logins/", dry_run=dry_run)
    names = [blob.name for blob in (await db.blobs.list_blobs("logs")).blobs]

    assert (by_hour.blobs, by_day.blobs) == ((1, 2) if dry_run else (1, 1))
    assert len(names) == (8 if dry_run else 6)
    assert (await db.tables() == []) is not dry_run
    if not dry_run:
        assert [name for name in names if name.startswith("logins/")] == [
            "logins/2024/02/27/2300/000001.log",
            "logins/2024/02/29/0000/000001.log",
        ]


async def test_blobs_that_are_not_there(db: Database) -> None:
    """No container is no blob; and what names no blobs is rejected."""
    await db.insert(Login(at=NOON))

    for odd in ("logs", "logs/", "/x", "LOGS/x", 7):
        with pytest.raises(ModelError, match="blobs="):
            await db.drop_periods(Login, before=NOON + DAY, blobs=odd)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ModelError, match="for a model with a table for each period of time"):
        await db.drop_periods(Batch, before=1, blobs="logs/x")
    assert (await db.drop_periods(Login, before=NOON + DAY, blobs="logs/x")).blobs == 0


async def test_somebody_else_drops_first(db: Database) -> None:
    """A table that is gone when it is to be deleted counts as dropped; one that is being deleted too."""
    faults = Faults(db)
    await db.insert(Login(at=NOON - DAY))
    await db.insert(Login(at=NOON))

    with faults.fail_next("delete-table", with_=404), faults.fail_next("delete-table", with_="TableBeingDeleted"):
        dropped = await db.drop_periods(Login, before=NOON + DAY)

    assert len(dropped.tables) == 2


async def test_tokens_open_one_period(tmp_path: Path) -> None:
    """A token for rows of a period names its table; it makes no table, and a span is computed instead of listed."""
    url = f"local:{tmp_path}/a.tables"
    async with connect(url) as db:
        await db.insert(Attempt(at=NOON))
        hour = dt.timedelta(hours=1)
        token = await db.grant(
            Attempt, "raud", hour, start={"user": "a"}, end={"user": "a", "at": NOON - NOON.hour * hour}
        )
        assert token.explanation.table == "KeptAttempts20240228"
        for start, end in (({}, {}), ({"user": "a", "at": NOON}, {"user": "a", "at": NOON - DAY})):
            with pytest.raises(ModelError, match="a token opens one table, and each period has its own"):
                await db.grant(Attempt, "r", hour, start=start, end=end)
        async with connect(url, sas=token) as mine:
            await mine.insert(Attempt(at=NOON + hour))
            span = Attempt.user == "a", Attempt.at >= NOON - hour, Attempt.at < NOON + hour
            assert [login.at for login in await mine.select(Attempt).where(*span).all()] == [NOON]
            with pytest.raises((AccessDenied, TableNotFound)):
                await mine.insert(Attempt(at=NOON + DAY))
            with pytest.raises(NotSupported, match=r"set both bounds of Attempt\.at"):
                await mine.select(Attempt).where(Attempt.user == "a", Attempt.at < NOON).all()
