"""
What archives are declared with, what blobs of them hold, who may archive, and what it costs.
"""

import datetime as dt
import json
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from tableorm import (
    AccessDenied,
    BlobArchive,
    Conflict,
    Count,
    Database,
    DatabaseArchive,
    DecodeError,
    Entity,
    Index,
    LimitExceeded,
    Mapped,
    ModelError,
    NotRead,
    NotSupported,
    Outcome,
    TableOrmError,
    connect,
    field,
)
from tableorm.connection.connection import connection_of
from tableorm.outbox.bell import OUTBOX
from tableorm.outbox.overview import Pending, find_pending
from tableorm.testing import temporary_database
from tableorm.writes.archive import carry_out_archives
from tableorm.writes.archive_copy import kind_of
from tests.azurite import Azurite
from tests.commandline import in_database, run_command
from tests.databases import database_fixture
from tests.outbox.archives import HOUR
from tests.outbox.network import drain
from tests.rows import merge_row

pytestmark = pytest.mark.usefixtures("quick_workers")


class Shop(Entity, table="ArchiveUses", partition_key="{shop}", row_key="shop"):
    shop: Mapped[str]
    bills: Mapped[int] = field(default=0, maintained=True)


class InShop(Entity, partition_key="{shop}", abstract=True):
    shop: Mapped[str]
    id: Mapped[str]


class Bill(InShop, table="ArchiveUses", row_key="bill_{id}", write_token=True):
    sum: Mapped[float] = field(default=1.5)

    of_shop = Count(lambda: Shop.bills, shop="{shop}")


class Plain(InShop, table="ArchiveUses", row_key="p_{id}"): ...


class Base(InShop, table="ArchiveUses", row_key="b_{id}", abstract=True): ...


class Kindless(InShop, table="ArchiveKindless", row_key="k_{id}", kind=None): ...


class Told(
    Entity, table="ArchiveTold", partition_key="{shop}", row_key="k_{id}", discriminator=lambda row: row.get("Id") == 1
):
    shop: Mapped[str]
    id: Mapped[int]


def open_nothing() -> Any:
    raise NotSupported("this machine has no cold storage")


BILLS, PLAIN = BlobArchive("old-bills", Bill), BlobArchive("old-plain", Plain)


db = database_fixture(Shop)


async def insert_plain(db: Database, shop: str = "a", id: str = "p") -> Plain:  # noqa: A002 - the field
    plain = Plain(shop=shop, id=id)
    await db.insert(plain)
    return plain


async def insert_bill(db: Database) -> Bill:
    """Insert a bill, and its shop."""
    await db.insert(Shop(shop="a"))
    bill = Bill(shop="a", id="7")
    await db.insert(bill)
    return bill


async def pending(db: Database) -> list[Pending]:
    return [each async for each in find_pending(connection_of(db), "ArchiveUses")]


async def names_of(db: Database, container: str, prefix: str = "") -> list[str]:
    return [blob.name for blob in (await db.blobs.list_blobs(container, prefix)).blobs]


# Declarations


def test_archives_that_are_refused() -> None:
    """An archive has a name, and a model whose rows say what they are; for a database they also have write tokens."""
    with pytest.raises(ModelError, match=r"BlobArchive\('Old_Bills'\) is rejected: .* a container name is lower case"):
        BlobArchive("Old_Bills", Bill)
    with pytest.raises(ModelError, match=r"DatabaseArchive\('1'\) is rejected: a name has up to 63 letters"):
        DatabaseArchive("1", Bill, open_nothing)
    with pytest.raises(ModelError, match="Base is abstract; declare an archive for each of its concrete classes"):
        BlobArchive("old", Base)
    with pytest.raises(ModelError, match="Kindless has rows that do not say of which model they are"):
        BlobArchive("old", Kindless)
    with pytest.raises(ModelError, match="Told has rows that do not say of which model they are; give it a kind, told"):
        BlobArchive("old", Told)
    with pytest.raises(ModelError, match=r"declare class Plain\(\.\.\., write_token=True\)"):
        DatabaseArchive("cold", Plain, open_nothing)


async def test_entities_that_are_refused(db: Database) -> None:
    """An archive takes entities of its model, whose keys make the name of a blob, and no other fields."""
    await db.insert(Shop(shop="a"))
    plain, long = await insert_plain(db), await insert_plain(db, "s" * 500, "i" * 510)
    with pytest.raises(
        ModelError, match="cannot be archived to 'old-bills', which is for Bill; declare an archive for"
    ):
        await db.archive(cast("Any", plain), to=BILLS)
    with pytest.raises(ModelError, match=r"archive\(to='old-plain', year=\.\.\.\) is rejected"):
        await db.archive(plain, to=cast("Any", PLAIN), year=2026)
    with pytest.raises(LimitExceeded, match=r"archive of Plain .* characters, 1 to 1024 are allowed"):
        await db.archive(long, to=PLAIN)
    with pytest.raises(ModelError, match="a bag has no model"):
        await db.archive(cast("Any", "x"), to=PLAIN)
    assert await pending(db) == []


async def test_what_an_index_has_given_is_not_archived(db: Database) -> None:
    """It has no ETag, so nobody knows whether it is the present entity."""

    class Tagged(InShop, table="ArchiveTags", row_key="tagged_{id}", write_token=True):
        by_id = Index(row_key="by_{id}", unique=True)

    await db.create_tables(Tagged)
    await db.insert(Tagged(shop="a", id="1"))
    found = await db.get(Tagged.by_id, shop="a", id="1")
    with pytest.raises(NotRead, match="archive of Tagged"):
        await db.archive(found, to=BlobArchive("tagged", Tagged))


async def test_workers_that_are_refused(db: Database) -> None:
    """Two archives of one name cannot be told apart by messages; blobs need a database that has them."""
    with pytest.raises(ModelError, match="two archives have one name, 'old-bills'"):
        db.worker(BILLS, BlobArchive("old-bills", Plain))
    assert db.worker(BILLS, BILLS) is not None


# What is there afterwards


async def test_a_blob_and_back(db: Database) -> None:
    """A blob is JSON with the row as the service has it; its entity can be inserted again."""
    bill = await insert_bill(db)
    row = {"PartitionKey": "a", "RowKey": "bill_7", "Old": "2", "Old@odata.type": "Edm.Int64"}
    await merge_row(db, "ArchiveUses", row)
    bill = await db.get(Bill, shop="a", id="7")
    await db.archive(bill, to=BILLS)
    await drain(db, Bill, BILLS)
    (name,) = await names_of(db, "old-bills", BILLS.prefix(Bill.key(shop="a", id="7")))
    content = await db.blobs.read("old-bills", name)
    stored = json.loads(content)
    back = BILLS.load(content)
    await db.insert(back)

    assert name.startswith("ArchiveUses/a/bill_7/") and name.endswith(".json")
    assert stored.keys() == {"format", "table", "row"} and (stored["format"], stored["table"]) == (1, "ArchiveUses")
    assert stored["row"] == {
        "PartitionKey": "a",
        "RowKey": "bill_7",
        "EntityType": "Bill",
        "sum": 1.5,
        "Old": "2",
        "Old@odata.type": "Edm.Int64",
        "Timestamp": stored["row"]["Timestamp"],
        "odata.etag": stored["row"]["odata.etag"],
    }
    assert back == bill and dict(back.extra) == {"Old": 2}
    assert await db.get(Bill, shop="a", id="7") == bill
    assert (await db.get(Shop, shop="a")).bills == 1


def test_blobs_that_cannot_be_read() -> None:
    """What is no blob of an archive, of another model, or of a newer program, is rejected."""
    row = {"PartitionKey": "a", "RowKey": "p", "EntityType": "Plain", "odata.etag": "e", "Timestamp": "t"}
    for content in (b"{}", b'{"format": 1, "of others": ' + b"[" * 100_000):
        with pytest.raises(DecodeError, match="of a blob cannot be read"):
            BILLS.load(content)
    with pytest.raises(DecodeError, match="of a blob is not of Bill; give the archive its model"):
        BILLS.load(json.dumps({"format": 1, "table": "ArchiveUses", "row": row}).encode())
    with pytest.raises(NotSupported, match="the format 2, and this program knows 1"):
        BILLS.load(json.dumps({"format": 2, "table": "ArchiveUses", "row": row}).encode())


@pytest.mark.parametrize(("shop", "id"), [("", "x"), ("a.", "b."), ("50%", "%25"), ("ä ö", "ü+&"), ("..", ".")])
async def test_names_of_blobs(db: Database, shop: str, id: str) -> None:  # noqa: A002 - the field
    """Each key makes the name of a blob, also keys that are empty, end with a dot, or have signs of URLs."""
    plain = await insert_plain(db, shop, id)
    await db.archive(plain, to=PLAIN)
    await drain(db, PLAIN)

    (name,) = await names_of(db, "old-plain", PLAIN.prefix(plain.key))
    assert PLAIN.load(await db.blobs.read("old-plain", name)) == plain
    assert await db.get_or_none(plain.key) is None


async def test_an_entity_that_others_need(db: Database) -> None:
    """It cannot be deleted, so it is not copied either, and the decision row says why."""
    shops = BlobArchive("old-shops", Shop)
    await insert_bill(db)
    await db.archive(await db.get(Shop, shop="a"), to=shops)
    worker = await drain(db, shops, tries=1)
    (left,) = await pending(db)

    assert worker.counts == {Outcome.DROPPED: 1}
    assert str(left.decision.error).startswith(Conflict.__name__) and "Shop" in str(left.decision.error)
    assert await db.blobs.list_containers() == []


@pytest.mark.parametrize("error", [NotSupported, AccessDenied])
async def test_an_archive_out_of_reach(db: Database, error: type[TableOrmError]) -> None:
    """What refuses the copy fails, and is shown; the message is not left to other workers."""

    def open_nothing() -> Any:
        raise error("this machine has no cold storage")

    bill = await insert_bill(db)
    cold = DatabaseArchive("cold", Bill, open_nothing)
    await db.archive(bill, to=cold)
    worker = await drain(db, cold, Bill, tries=1)
    (left,) = await pending(db)

    assert left.decision.error == (
        f"StepFailed: archive of Bill ('a', 'bill_7') in table ArchiveUses to 'cold': {error.__name__}: this machine "
        "has no cold storage"
    )
    assert worker.counts == {Outcome.DROPPED: 1}


class Elsewhere(InShop, table="ArchiveElsewhere", row_key="e_{id}"): ...


@pytest.mark.parametrize("target", [Plain, BlobArchive("old-plain", Elsewhere)])
async def test_unknown_archives_are_left_to_others(db: Database, target: Any) -> None:
    """A worker without the archive, or that has it for rows of another table, leaves it to others."""
    plain = await insert_plain(db)
    await db.archive(plain, to=PLAIN)
    worker = await drain(db, target)

    assert worker.counts == {Outcome.LEFT: 1}
    (left,) = await pending(db)
    with pytest.raises(NotSupported) as caught:
        await carry_out_archives(connection_of(db), "ArchiveElsewhere", {kind_of(PLAIN): PLAIN}, left.decision)
    assert str(caught.value) == (
        f"the decision row {left.decision.token} of table ArchiveElsewhere starts the 'archive old-plain:1', which is "
        "for rows of ArchiveUses; leave it to a program that has it in ArchiveElsewhere"
    )


# Who may archive


async def test_a_scope_archives_its_own(db: Database) -> None:
    """A scope archives its entities, and no others."""
    mine = db.scope(Plain, shop="a")
    own, other = await insert_plain(db), await insert_plain(db, "b")
    await mine.archive(own, to=PLAIN)
    with pytest.raises(AccessDenied):
        await mine.archive(other, to=PLAIN)
    await drain(db, PLAIN)

    assert [each.shop for each in await db.select(Plain).allow_scan().all()] == ["b"]


async def test_a_token_that_reaches_one_table(tmp_path: Path) -> None:
    """A database that such a token opens cannot archive, which is said before anything is sent."""
    url = f"local:{tmp_path / 'uses.tables'}"
    plain = Plain(shop="a", id="p")
    async with connect(url) as db:
        await db.create_tables(Plain)
        await db.insert(plain)
        token = str(await db.grant(Plain, "raud", HOUR))
    async with connect(url, sas=token) as limited:
        found, before = await limited.get(Plain, shop="a", id="p"), limited.stats.requests
        with pytest.raises(AccessDenied, match=r"the archive old-plain:1 follows it.* for table ArchiveUses alone"):
            await limited.archive(found, to=PLAIN)
        assert limited.stats.requests == before


# Backends


async def test_what_an_archive_costs(db: Database) -> None:
    """The caller puts a message, sends a transaction and shows the message; a worker takes it, and sends six more."""
    first, plain = await insert_plain(db, id="o"), await insert_plain(db)
    await db.archive(first, to=PLAIN)  # makes the queue and the container
    await drain(db, PLAIN)
    with db.observe() as seen:
        await db.archive(plain, to=PLAIN)
        await drain(db, PLAIN)

    looks = {"take-messages", "peek-messages", "queue-length"}
    sent = Counter(each.operation for each in seen.requests if each.operation not in looks)
    assert (sent.pop("transaction"), sent.pop("get"), sent.total()) == (2, 2, 5)
    assert sent.keys() == {"put-message", "renew-message", "put-blob", "delete", "delete-message"}
    assert [each.table for each in seen.requests if each.operation == "put-message"] == [OUTBOX]


async def test_archives_on_azurite(azurite: Azurite) -> None:
    """Blobs and another database, as the service has them: entities go there with all that is derived from them."""
    async with (
        temporary_database(azurite.connection_string, Bill) as db,
        temporary_database(azurite.connection_string, Bill) as other,
    ):

        @asynccontextmanager
        async def open_other() -> AsyncGenerator[Database]:
            yield other

        container = f"old-{dt.datetime.now(dt.UTC):%H%M%S%f}"
        blobs, cold = BlobArchive(container, Bill), DatabaseArchive("cold", Bill, open_other)
        for each in (db, other):
            await each.insert(Shop(shop="a."))
        bills = [Bill(shop="a.", id=f"50% ä{number}") for number in range(2)]
        for bill in bills:
            await db.insert(bill)
        await db.archive(bills[0], to=blobs)
        await db.archive(bills[1], to=cold)
        worker = await drain(db, Bill, blobs, cold)
        (name,) = await names_of(db, container)

        assert worker.counts == {Outcome.DONE: 2}
        assert blobs.load(await db.blobs.read(container, name)) == bills[0]
        assert await other.get(Bill, shop="a.", id="50% ä1") == bills[1]
        assert ((await db.get(Shop, shop="a.")).bills, (await other.get(Shop, shop="a.")).bills) == (0, 1)
        assert await db.select(Bill).where(Bill.shop == "a.").all() == []


def test_a_worker_of_the_command_line(tmp_path: Path) -> None:
    """`tableorm worker` takes archives beside models and workflows, and nothing else that is no class."""
    url = f"local:{tmp_path}/uses.tables"

    async def begin(db: Database) -> None:
        await db.create_tables(Plain)
        await db.archive(await insert_plain(db), to=PLAIN)

    in_database(url, begin)
    done = run_command("worker", url, f"{__name__}:PLAIN", "--drain", "--json")

    assert (json.loads(done.stdout), done.returncode) == ({"done": 1}, 0)
    assert run_command("worker", url, f"{__name__}:names_of").returncode == 2
