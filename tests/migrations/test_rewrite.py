"""
`rewrite`: rows of older versions become rows of the current one, while others read and write.
"""

import datetime as dt

from tableorm import (
    Database,
    Entity,
    Index,
    IndexOf,
    Mapped,
    PropertyBag,
    field,
    upgrade,
    utc_now,
)
from tableorm.protocol.edm import text_from_datetime
from tableorm.stores import Operation, RowPage, RowQuery, Verb
from tableorm_migrations import rewrite
from tests.database.between import Between

TABLE = "Members"


class MemberV1(Entity, table=TABLE, kind="Member", partition_key="{team}", row_key="member_{id:04d}"):
    team: Mapped[str]
    id: Mapped[int]
    name: Mapped[str]


class Member(Entity, table=TABLE, version=2, partition_key="{team}", row_key="member_{id:04d}"):
    team: Mapped[str]
    id: Mapped[int]
    first_name: Mapped[str]
    last_name: Mapped[str | None] = field(default=None)
    by_name = Index(row_key="name_{first_name}_{id:04d}")


class Guest(Entity, table=TABLE, partition_key="{team}", row_key="guest_{id:04d}"):
    team: Mapped[str]
    id: Mapped[int]


@upgrade(Member, from_version=1)
def split_name(bag: PropertyBag) -> PropertyBag:
    first, _, last = str(bag.pop("name")).partition(" ")
    bag["first_name"] = first
    if last:
        bag["last_name"] = last
    return bag


async def fill(db: Database, teams: int, size: int) -> None:
    await db.create_tables(Member)
    async with db.bulk(errors="report") as bulk:
        for team in range(teams):
            for number in range(size):
                await bulk.insert(MemberV1(team=f"t{team}", id=number, name=f"Ann{number} Li"))
            await bulk.insert(Guest(team=f"t{team}", id=1))
            await bulk.insert(Member(team=f"t{team}", id=9000, first_name="New"))
    assert bulk.report.failures == 0


async def stored(db: Database) -> dict[tuple[str, str], dict[str, object]]:
    found: dict[tuple[str, str], dict[str, object]] = {}
    continuation: str | None = None
    while True:
        page = await db.store.query(TABLE, RowQuery(), 1000, continuation)
        found |= {(row["PartitionKey"], row["RowKey"]): row for row in page.rows}
        continuation = page.continuation
        if continuation is None:
            return found


async def test_every_old_row_gets_the_current_version(db: Database) -> None:
    """With all that is derived from it; rows of the current version, and of other kinds, are not touched."""
    await fill(db, 3, 40)
    before = await stored(db)

    report = await rewrite(db, Member)

    after = await stored(db)
    assert (report.entities, report.written, report.failed, report.complete) == (123, 120, 0, True)
    members = {key: row for key, row in after.items() if key[1].startswith("member_")}
    assert {row["EntityType"] for row in members.values()} == {"Member:2"}
    assert all("name" not in row for row in members.values())
    untouched = [key for key in before if "guest_" in key[1] or "_9000" in key[1]]
    assert {key: after[key] for key in untouched} == {key: before[key] for key in untouched}
    index: IndexOf[Member] = Member.by_name
    found = await db.get(index, team="t1", first_name="Ann7", id=7)
    assert (found.last_name, (await db.audit(Member)).clean) == ("Li", True)


class Racing(Between):
    """A store in which an old program writes to a row right after a page with rows was read."""

    raced = False

    def __init__(self, changes: dict[str, object]) -> None:
        super().__init__()
        self.changes = changes

    async def query(self, table: str, query: RowQuery, limit: int = 1000, continuation: str | None = None) -> RowPage:
        page = await super().query(table, query, limit, continuation)
        if page.rows and not self.raced:
            self.raced = True
            await self.inner.tables.write(table, Operation(Verb.MERGE, self.changes, "*"))
        return page


async def test_a_row_that_changes_meanwhile_is_read_again() -> None:
    """What an old program has written since the page was read is kept, and upgraded."""
    async with Database(Racing({"PartitionKey": "t0", "RowKey": "member_0001", "name": "Bob Wu"})) as db:
        await fill(db, 1, 3)

        report = await rewrite(db, Member)

        assert (report.written, report.complete) == (3, True)
        assert (await db.get(Member, team="t0", id=1)).first_name == "Bob"


class OfferV1(Entity, table="Offers", kind="Offer", partition_key="{shop}", row_key="offer_{id:04d}"):
    shop: Mapped[str]
    id: Mapped[int]
    expires: Mapped[dt.datetime | None] = field(default=None, expiry=True)


class Offer(Entity, table="Offers", version=2, partition_key="{shop}", row_key="offer_{id:04d}"):
    shop: Mapped[str]
    id: Mapped[int]
    expires: Mapped[dt.datetime | None] = field(default=None, expiry=True)


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
    async with Database(Racing(ended)) as db:
        await db.create_tables(Offer)
        for number, expires in enumerate([now, now + dt.timedelta(hours=1), None]):
            await db.insert(OfferV1(shop="pens", id=number, expires=expires))

        report = await rewrite(db, Offer)

        rows = (await db.store.query("Offers", RowQuery(), 1000, None)).rows
        assert [row["EntityType"] for row in rows] == ["Offer:2"] * 3
        assert (report.written, report.complete) == (3, True)
        assert (await db.sweep(Offer)).deleted == 2
