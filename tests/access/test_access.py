"""
Tokens for rows: granted by fields, used instead of a key, refused before the wire, on every backend alike.
"""

import datetime as dt
import pickle
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables import generate_table_sas

from tableorm import (
    AccessDenied,
    Database,
    Entity,
    Grant,
    Index,
    Mapped,
    ModelError,
    NotSupported,
    PropertyBag,
    TransactionFailed,
    connect,
    field,
)
from tableorm.protocol.sas import AccountSas, TableSas, parse_sas, sign_sas
from tableorm.protocol.shared_key import decode_key
from tableorm.stores import Clock
from tableorm_local import Account, serve
from tableorm_local.server import DEVELOPMENT_KEY
from tests.access.conftest import Employee, World, rows
from tests.access.test_scope import Party
from tests.azure.stub import Token
from tests.local.server.client import KEYS

EMPLOYEE = Employee.key(department="Sales", id=1)


HOUR = dt.timedelta(hours=1)
LONG_AGO, LATER = dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(2099, 1, 1, tzinfo=dt.UTC)


async def grant_reads(db: Database, **options: Any) -> Grant:
    """Grant to read employees for an hour."""
    return await db.grant(Employee, "r", HOUR, **options)


async def test_refusals_come_before_the_wire(world: World) -> None:
    """What the token does not allow is rejected by name, without a request; a query shows what is in the range."""
    start, end = {"department": "Sales", "id": 100}, {"department": "Sales", "id": 199}
    token = await world.owner.grant(Employee, "ra", HOUR, start=start, end=end)
    async with world.open(token) as mine:
        ken = Employee(id=110)
        await mine.insert(ken)
        refused: list[tuple[Awaitable[Any], str]] = [
            (mine.get(Employee, department="HR", id=150), r"\('HR', 'empid_000150'\) is not in the range"),
            (mine.get(Employee, department="Sales", id=99), r"from \('Sales', 'empid_000100'\) to \('Sales', 'empid_"),
            (mine.insert(Employee(id=201)), r"insert of Employee .*is not in the range"),
            (mine.upsert(Employee(id=150)), "needs 'au'; the token allows 'ra'"),
            (mine.save(ken.evolve(age=7)), "update an entity needs 'u'; the token allows 'ra'"),
            (mine.delete(ken), "delete an entity needs 'd'"),
            (mine.create_tables(Employee), "create a table; the token is for entities of the table 'Directory'"),
            (mine.drop_table("Directory"), "deletion of table 'Directory' .*; the token is for"),
            (mine.tables(), "list tables; the token is for"),
            (mine.get(PropertyBag.key("Other", "Sales", "x")), "the token is for entities of the table 'Directory'"),
        ]
        for call, message in refused:
            with pytest.raises(AccessDenied, match=message):
                await call
        with pytest.raises(TransactionFailed, match=r"operation 1: .* is not in the range") as caught:
            async with mine.transaction() as tx:
                tx.insert(Employee(id=111))
                tx.insert(Employee(id=300))
        assert caught.value.index == 1 and isinstance(caught.value.__cause__, AccessDenied)
        assert await rows(mine) == [("Sales", f"empid_{number:06d}") for number in (100, 110, 150, 199)]
        assert await mine.select(Employee).where(Employee.department == "HR").all() == []
        await mine.ping()
        with pytest.raises(NotSupported, match=r"grant: .*a shared access signature"):
            await grant_reads(mine)
        with pytest.raises(NotSupported):
            _ = mine.queues


async def test_every_verb_with_all_rights(world: World) -> None:
    """A token of a partition serves reads, writes and, where the server takes them, transactions and bulk."""
    sales = {"department": "Sales"}
    token = await world.owner.grant(Employee, "dura", HOUR, start=sales, end=sales)
    assert "&sp=raud&spk=Sales&epk=Sales&sig=" in token
    async with world.open(token) as mine:
        assert len(await rows(mine)) == 6
        ken = Employee(id=10)
        await mine.insert(ken)
        ken.age = 24
        await mine.save(ken)
        await mine.replace(ken)
        await mine.upsert(ken, mode="replace")
        await mine.delete(ken, if_match="*")
        if world.name == "azurite":
            return  # it refuses a table's token at /$batch
        async with mine.transaction() as tx:
            tx.insert(Employee(id=11))
            tx.upsert(Employee(id=12))
        async with mine.bulk(errors="report") as bulk:
            await bulk.upsert(Employee(id=13))
            await bulk.upsert(Employee(department="HR", id=13))
        assert (bulk.report.written, bulk.report.failures) == (1, 1)
        assert isinstance(bulk.report.failed[0].error, AccessDenied)
        report = await mine.select(Employee).where(Employee.department == "Sales").delete()
        assert report.written == 8


async def test_what_a_grant_opens_is_told(db: Database) -> None:
    """Rows of other kinds in the range are covered; other keys, tables, blobs and missing rights are not."""
    sales = {"department": "Sales"}
    token = await db.grant(Employee, "ru", HOUR, start=sales, end=sales)
    explanation = token.explain()
    copy: Grant = pickle.loads(pickle.dumps(token))

    assert (type(copy), copy, copy.explain()) == (Grant, str(token), explanation)
    assert (explanation.table, explanation.permissions) == ("Directory", "ru")
    assert "of any kind, not only of Employee" in explanation.covers[0]
    told = " ".join(token.not_covered)
    for each in ("other keys", "other tables", "queues and blobs", "upsert: it needs 'a' and 'u'"):
        assert each in told
    assert "they need 'u'" not in told and "they need 'r'" not in told
    assert str(explanation).startswith("ru on table Directory, from partition 'Sales' to partition 'Sales', until 2")
    assert "sig=" not in repr(token) and "sig=" in str(token)


class Guest(Entity, table="Guests", partition_key="{hotel}", row_key="guest_{id:06d}"):
    hotel: Mapped[str]
    id: Mapped[int]
    name: Mapped[str] = field(default="")

    by_name = Index(partition_key="name_{name}", row_key="named_{hotel}_{id:06d}", consistency="eventual")
    of_all = Index(table="AllGuests", partition_key="all", row_key="{name}_{hotel}_{id:06d}", consistency="eventual")


async def test_a_grant_tells_of_eventual_indexes(db: Database) -> None:
    """A grant of a partition leaves out entries of others; one of a whole table the entries that are in another."""
    hotel = {"hotel": "Ritz"}
    partition = " ".join((await db.grant(Guest, "raud", HOUR, start=hotel, end=hotel)).not_covered)
    whole = " ".join((await db.grant(Guest, "raud", HOUR)).not_covered)

    for told in (partition, whole):
        assert "moves to another partition or table, archives and workflows, which send messages" in told
    assert "what is kept for Guest.by_name, Guest.of_all in table AllGuests, where its keys are not in" in partition
    assert "what is kept for Guest.of_all in table AllGuests, where its keys are not in the range" in whole
    for told in (partition, whole):
        assert "the queue that tells workers of changes, which writes need because of Guest.by_name, Guest.of" in told


async def test_a_grant_names_tables_as_the_store_does() -> None:
    """With a prefix, the tables of entries have it as that of the rows has."""
    async with connect("local::memory:", prefix="dev") as db:
        explanation = (await db.grant(Guest, "raud", HOUR)).explain()

    assert explanation.table == "devGuests"
    assert "Guest.of_all in table devAllGuests" in str(explanation)


class Member(Entity, table="Members", partition_key="{club}", row_key="member_{id:06d}"):
    club: Mapped[str]
    id: Mapped[int]
    email: Mapped[str | None] = field(default=None)
    by_email = Index(row_key="email_{email}", unique=True)


async def test_a_grant_tells_of_copies_outside(tmp_path: Path) -> None:
    """An index is named if its copies need not be in the range; what needs them is rejected, and nothing done."""
    one, club = {"club": "chess", "id": 7}, {"club": "chess"}
    async with connect(f"local:{tmp_path}/a.tables") as db:
        await db.create_tables(Member)
        narrow = await db.grant(Member, "raud", HOUR, start=one, end=one)
        for whole in (await db.grant(Member, "raud", HOUR, start=club, end=club), await db.grant(Member, "raud", HOUR)):
            assert "by_email" not in str(whole.explain())
            async with connect(f"local:{tmp_path}/a.tables", sas=whole) as theirs:
                await theirs.upsert(Member(club="chess", id=8, email="a@b"))
        assert "what is kept for Member.by_email, where its keys are not in the range" in str(narrow.explain())
        async with connect(f"local:{tmp_path}/a.tables", sas=narrow) as theirs:
            await theirs.insert(Member(club="chess", id=7))
            with pytest.raises(AccessDenied, match="email_x@y"):
                await theirs.upsert(Member(club="chess", id=7, email="x@y"))
        assert [member.email for member in await db.select(Member).allow_scan().all()] == [None, "a@b"]


async def test_a_grant_is_given_again(tmp_path: Path) -> None:
    """The same rights get the same token until shortly before it expires; other rights, and another key, another."""
    async with connect(f"local:{tmp_path}/a.tables") as db:
        token = await grant_reads(db)
        assert await grant_reads(db) is token
        others = [
            await db.grant(Employee, "ra", HOUR),
            await db.grant(Employee, "r", 2 * HOUR),
            await grant_reads(db, start={"department": "HR"}),
            await grant_reads(db, ip="127.0.0.1"),
            await grant_reads(db, protocol="https"),
        ]
        assert len({token, *others}) == 6
    credential = AzureNamedKeyCredential("acc", KEYS[0])
    async with connect("https://acc.table.core.windows.net", credential=credential) as db:
        first = await grant_reads(db)
        credential.update("acc", KEYS[1])
        assert await grant_reads(db) != first
    assert token.expires_at is not None
    assert dt.timedelta(minutes=59) < token.expires_at - dt.datetime.now(dt.UTC) <= HOUR


async def test_a_grant_that_soon_expires_is_not_given_again(db: Database, tableorm_clock: Clock) -> None:
    """With less than five minutes left, or a tenth of a short time, a new token is signed."""
    tableorm_clock.freeze(dt.datetime(2030, 1, 1, tzinfo=dt.UTC))
    token, short = await grant_reads(db), await db.grant(Employee, "r", HOUR / 60)
    tableorm_clock.advance(dt.timedelta(seconds=53))
    assert await grant_reads(db) is token
    assert await db.grant(Employee, "r", HOUR / 60) is short
    tableorm_clock.advance(dt.timedelta(seconds=2))
    assert await db.grant(Employee, "r", HOUR / 60) != short
    tableorm_clock.advance(dt.timedelta(minutes=56))
    assert await grant_reads(db) != token


async def test_a_grant_is_the_token_of_the_sdk() -> None:
    """Text and signature are those that azure-data-tables makes of the same rights."""
    make: Any = generate_table_sas
    async with connect("local::memory:", account="staff", key=KEYS[0]) as db:
        token = await db.grant(
            Employee,
            "rd",
            HOUR,
            start={"department": "A/B é", "id": 1},
            end={"department": "Zoé", "id": 2},
            ip="10.0.0.1-10.0.0.9",
            protocol="https",
        )
    theirs: str = make(
        AzureNamedKeyCredential("staff", KEYS[0]),
        "Directory",
        permission="rd",
        expiry=token.expires_at,
        start_pk="A^2FB é",
        start_rk="empid_000001",
        end_pk="Zoé",
        end_rk="empid_000002",
        ip_address_or_range="10.0.0.1-10.0.0.9",
        protocol="https",
    )

    assert parse_sas(token) == parse_sas(theirs)


async def test_a_table_by_name(db: Database) -> None:
    """Without a model the range is in stored keys."""
    start, end = {"PartitionKey": "a", "RowKey": "b"}, {"PartitionKey": "c"}
    token = await db.grant("Directory", "r", HOUR, start=start, end=end)
    assert "&spk=a&srk=b&epk=c&sig=" in token
    for side, message in (
        ({"department": "a"}, "'department' is rejected"),
        ({"RowKey": "a"}, "ends at RowKey 'a' without a PartitionKey"),
    ):
        with pytest.raises(ModelError, match=message):
            await db.grant("Directory", "r", HOUR, end=side)
    with pytest.raises(ModelError, match=r"grant\(a\): The specified resource name length"):
        await db.grant("a", "r", HOUR)


class Note(Entity, table="Notes", partition_key="{tenant}_{topic}", row_key="{at:ticks_desc}_{n}"):
    tenant: Mapped[str]
    topic: Mapped[str]
    at: Mapped[dt.datetime]
    n: Mapped[int]


class Item(Entity, table="Items", partition_key="{id:spread(16)}", row_key="{id}"):
    id: Mapped[str]


class Mixed(Entity, table="Mixed", partition_key="{name}{n:03d}", row_key="x"):
    name: Mapped[str]
    n: Mapped[int]


NEW, OLD = dt.datetime(2024, 2, 2, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
IN_NOTE = {"tenant": "acme", "topic": "x"}


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (Employee, {"start": {"id": 7}}, "start has 'id' without 'department'"),
        (Employee, {"end": {"department": "a", "name": "b"}}, "end has 'name', which is not a key field"),
        (Employee, {"start": {"department": "b"}, "end": {"department": "a"}}, "the end comes before the start"),
        (Employee, {"start": {"department": "a", "id": -1}}, "-1"),
        (Employee, {"end": {"department": ""}}, "epk is empty"),
        (Employee, {"permissions": "rx"}, "permissions='rx' is rejected"),
        (Employee, {"permissions": ""}, "permissions='' is rejected"),
        (Employee, {"permissions": None}, "needs permissions, or the stored access policy"),
        (Employee, {"expires_in": None}, "needs expires_in, or the stored access policy"),
        (Employee, {"expires_in": dt.timedelta(0)}, "give a timedelta of a second at least"),
        (Employee, {"expires_in": 3600}, "expires_in=3600 is rejected; give a timedelta of a second at least"),
        (Employee, {"expires_in": dt.timedelta.max}, "is rejected"),
        (Employee, {"ip": "nowhere"}, "sip 'nowhere' is not an address"),
        (Employee, {"policy": ""}, "policy='' is rejected; pass a string, or omit it"),
        (Employee, {"ip": ""}, "ip='' is rejected"),
        ("Directory", {"start": {"PartitionKey": None}}, "PartitionKey=None is rejected; give the text of a key"),
        ("Directory", {"end": {"PartitionKey": "a", "RowKey": 7}}, "RowKey=7 is rejected"),
        (Note, {"start": {**IN_NOTE, "at": OLD}, "end": {**IN_NOTE, "at": NEW}}, "ticks_desc reverse that order"),
        (Note, {"start": {**IN_NOTE, "at": NEW, "n": 1}, "end": {**IN_NOTE, "at": NEW, "n": 2}}, "do not sort as"),
        (Item, {"start": {"id": "a"}, "end": {"id": "b"}}, "give the same 'id' in start and end"),
        (Mixed, {"start": {"name": "a"}, "end": {"name": "a"}}, "may be those of a longer value too"),
        (
            Party,
            {"start": {"country": "SE", "tenant": "a"}},
            "the kinds of the model have keys of their own; give one of",
        ),
        (Entity, {}, "Entity"),
    ],
)
async def test_grants_that_cannot_be(
    db: Database, model: type[Entity] | str, options: dict[str, Any], message: str
) -> None:
    """What would be useless or more than was asked for is rejected, naming what is wrong."""
    given: dict[str, Any] = {"permissions": "r", "expires_in": HOUR} | options
    with pytest.raises(ModelError, match=message):
        await db.grant(model, **given)


async def test_a_file_and_its_server_take_each_others_tokens(tmp_path: Path) -> None:
    """A token of who has the file open is good at a server of it, for the account of that name, and none other."""
    path = tmp_path / "hr.tables"
    account = Account(name="staff", keys=KEYS[:1])
    async with connect(f"local:{path}", account="staff") as db, serve(path, port=0, accounts=[account]) as server:
        await db.create_tables(Employee)
        await db.insert(Employee(id=1))
        token = await grant_reads(db)
        async with connect(server.url, sas=token) as mine:
            assert await mine.exists(EMPLOYEE)
        async with connect(server.url, key=KEYS[0]) as owner:
            theirs = await grant_reads(owner)
        assert theirs != token
        async with connect(f"local:{path}", account="staff", key=KEYS[0], sas=theirs) as mine:
            assert await mine.exists(EMPLOYEE)
        others: list[dict[str, Any]] = [
            {"account": "staff"},
            {"account": "other", "key": KEYS[0]},
            {"account": "staff", "key": KEYS[1]},
        ]
        for options in others:
            async with connect(f"local:{path}", sas=theirs, **options) as mine:
                with pytest.raises(AccessDenied, match="Signature did not match"):
                    await mine.exists(EMPLOYEE)


async def test_the_published_key_opens_no_file(tmp_path: Path) -> None:
    """In process, what anyone can sign is rejected: a file has a key of its own."""
    path = tmp_path / "hr.tables"
    async with connect(f"local:{path}") as db:
        await db.create_tables(Employee)
        await grant_reads(db)
    forged = sign_sas(
        TableSas(sv="2019-02-02", tn="Directory", sp="r", se="2999-01-01"),
        "devstoreaccount1",
        decode_key(DEVELOPMENT_KEY),
    )
    async with connect(f"local:{path}", sas=forged) as mine:
        with pytest.raises(AccessDenied, match="Signature did not match"):
            await mine.get(EMPLOYEE)


async def test_a_token_of_an_account_in_process(tmp_path: Path) -> None:
    """It opens all tables for what its letters say, as at a server; there are no queues and blobs."""
    path = tmp_path / "hr.tables"
    async with connect(f"local:{path}", account="staff", key=KEYS[0]) as db:
        await db.create_tables(Employee)
    given = {"sv": "2019-02-02", "ss": "t", "srt": "co", "sp": "rlac", "se": "2099-01-01"}
    sas = sign_sas(AccountSas(**given), "staff", decode_key(KEYS[0]))
    async with connect(f"local:{path}", account="staff", key=KEYS[0], sas=sas) as mine:
        await mine.create_tables(Note)
        assert await mine.tables() == ["Directory", "Notes"]
        await mine.insert(Employee(id=1))
        assert len(await rows(mine)) == 1
        with pytest.raises(AccessDenied, match="update an entity needs 'u'; the token allows 'rlac'"):
            await mine.save((await mine.get(EMPLOYEE)).evolve(age=7))
        with pytest.raises(AccessDenied, match="delete a table needs 'd'"):
            await mine.drop_table("Notes")
        for store in ("queues", "blobs"):
            with pytest.raises(NotSupported, match=f"which opens tables, not {store}"):
                getattr(mine, store)


async def test_addresses_and_protocols_in_process(tmp_path: Path) -> None:
    """A call in process comes from this machine, and nobody can listen to it."""
    path = tmp_path / "hr.tables"
    async with connect(f"local:{path}") as db:
        await db.create_tables(Employee)
        good = [
            await grant_reads(db, ip="127.0.0.1"),
            await grant_reads(db, protocol="https"),
        ]
        bad = await grant_reads(db, ip="10.0.0.1-10.0.0.9")
    for token in good:
        async with connect(f"local:{path}", sas=token) as mine:
            assert await rows(mine) == []
    async with connect(f"local:{path}", sas=bad) as mine:
        with pytest.raises(AccessDenied, match="using this source IP"):
            await rows(mine)


@pytest.mark.parametrize("text", ["?{}", "{}\n", " ?{} "])
async def test_a_token_as_it_was_copied(world: World, text: str) -> None:
    """With its question mark, and with the line end of a file that it was read from."""
    token = await grant_reads(world.owner)
    copied = text.format(token)

    async def supplied() -> str:
        return copied

    for sas in (copied, supplied):
        async with world.open(sas) as mine:
            assert await mine.exists(Employee, department="Sales", id=100)


@pytest.mark.parametrize(
    ("sas", "error", "message"),
    [
        ("sv=2019-02-02&sig=x", AccessDenied, "ss is missing in an account's token"),
        ("", AccessDenied, "sig, the signature, is missing"),
        (7, TypeError, "sas is int: give a token as str, or an async function"),
    ],
)
async def test_what_is_no_token(tmp_path: Path, sas: Any, error: type[Exception], message: str) -> None:
    """It is rejected by what is wrong with it, at the latest when it is used."""
    async with connect(f"local:{tmp_path}/hr.tables") as db:
        await db.create_tables(Employee)
    with pytest.raises(error, match=message):
        async with connect(f"local:{tmp_path}/hr.tables", sas=sas) as mine:
            await mine.get(EMPLOYEE)


def test_options_that_cannot_be() -> None:
    """An account or key that cannot be used, and a token for a database that nobody else can have."""
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("local:x.tables", {"account": "No"}, "account=... is not 3 to 24 lower case letters and digits"),
        ("local:x.tables", {"key": "not base64!"}, "key=...: "),
        ("local::memory:", {"sas": "x"}, "is a new database"),
    ]
    for url, options, message in cases:
        with pytest.raises(NotSupported, match=message) as caught:
            connect(url, **options)
        assert "not base64!" not in str(caught.value)


async def test_who_cannot_grant() -> None:
    """Without a key of the account there is nothing to sign with; the message says which credential was given."""
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("https://acc.table.core.windows.net", {"credential": Token()}, "opened with a token credential"),
        ("https://acc.table.core.windows.net", {"sas": "sv=2019-02-02&sig=a"}, "with a shared access signature"),
        ("https://acc.table.cosmos.azure.com", {"key": KEYS[0]}, "Cosmos DB has no shared access signatures"),
    ]
    for url, options, message in cases:
        async with connect(url, **options) as db:
            with pytest.raises(NotSupported, match=message):
                await grant_reads(db)
    async with connect("https://acc.table.cosmos.azure.com", key=KEYS[0]) as db:
        with pytest.raises(NotSupported, match="Cosmos DB has no stored access policies"):
            await db.policies(Employee).list()


# Tokens that are supplied


def supply(db: Database, calls: list[str], **options: Any) -> Callable[[], Awaitable[str]]:
    """A function that supplies tokens of two policies, one after the other."""

    async def supplier() -> str:
        policy = ("first", "second")[min(len(calls), 1)]
        calls.append(policy)
        return await db.grant(Employee, policy=policy, **options)

    return supplier


async def test_a_token_that_ends_amid_a_scan_is_replaced(world: World) -> None:
    """The next page asks for another token, and goes on where the last one ended."""
    policies = world.owner.policies(Employee)
    for name in ("first", "second"):
        # Azurite takes no policy that lacks one of the three.
        await policies.set(name, "rau", starts_at=LONG_AGO, expires_at=LATER)
    calls: list[str] = []
    async with world.open(supply(world.owner, calls)) as mine:
        query = mine.select(Employee).allow_scan()
        first = await query.page(size=4)
        await policies.revoke("first")
        second = await query.page(size=4, cursor=first.cursor)
        await mine.upsert(Employee(id=1))

    assert calls == ["first", "second"]
    assert [e.id for e in first.items + second.items] == [99, 100, 150, 199, 200, 99, 100, 150]


async def test_a_token_is_asked_for_once_by_all(world: World) -> None:
    """Requests at the same time wait for one call of the function; one that has expired is replaced before use."""
    calls: list[str] = []

    async def supplier() -> str:
        calls.append("")
        token = await grant_reads(world.owner)
        return f"?{token}"

    async with world.open(supplier) as mine:
        keys = [Employee.key(department="Sales", id=number) for number in (99, 100, 150, 199)]
        assert None not in await mine.get_many(keys)
    assert len(calls) == 1


async def test_a_token_about_to_expire_is_replaced_first(world: World) -> None:
    """By its own time, without asking the service."""
    good = await grant_reads(world.owner)
    token, _ = parse_sas(good)
    assert isinstance(token, TableSas)
    old = good.replace(str(token.se).replace(":", "%3A"), "2020-01-01T00%3A00%3A00Z")
    given = [old, good]

    async def supplier() -> str:
        return given.pop(0)

    async with world.open(supplier) as mine:
        assert await mine.exists(Employee, department="Sales", id=99)
    assert given == []


async def test_what_the_function_raises_is_raised(world: World) -> None:
    """Also that it returns no token."""

    async def broken() -> str:
        raise OSError("the broker is down")

    async def empty() -> Any:
        return None

    async with world.open(broken) as mine:
        with pytest.raises(OSError, match="the broker is down"):
            await mine.get(Employee, department="Sales", id=99)
    async with world.open(empty) as mine:
        with pytest.raises(TypeError, match="returned NoneType, not a token"):
            await mine.get(Employee, department="Sales", id=99)


async def test_a_refusal_ends_when_there_is_no_other_token(world: World) -> None:
    """A function that gives the same bad token again is asked once more, and no further."""
    good = await grant_reads(world.owner)
    calls: list[str] = []

    async def supplier() -> str:
        calls.append("")
        return good.replace("sig=", "sig=A")

    async with world.open(supplier) as mine:
        with pytest.raises(AccessDenied):
            await mine.get(Employee, department="Sales", id=99)
    assert len(calls) == 2
