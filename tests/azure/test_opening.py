"""
What `connect` makes of URLs, connection strings and credentials.
"""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.data.tables import AccountSasPermissions, ResourceTypes, generate_account_sas

from scripts.docs_pages import ROOT
from tableorm import (
    AccessDenied,
    AccountNotFound,
    Database,
    Entity,
    Mapped,
    ModelError,
    NotSupported,
    TransactionFailed,
    connect,
)
from tableorm.connection.connection import connection_of
from tableorm.database import connect as opening
from tableorm.stores import Backend
from tableorm_azure import AzureBackend
from tableorm_azure.endpoints import EMULATOR_KEY, Account, handles, parse
from tableorm_local import serve
from tests.azurite import KEY, Azurite
from tests.database.between import Between

LOCAL = "http://127.0.0.1"
CLOUD = {service: f"https://acc.{service}.core.windows.net" for service in ("table", "queue", "blob")}


KEYED = Account(name="acc", **CLOUD, key="a2V5")


def account(place: str, **options: Any) -> Account:
    """An account whose services are at places that differ by a word."""
    return Account(name="acc", **{service: place.format(service) for service in CLOUD}, **options)


def emulator_on(host: str) -> Account:
    ports = {"table": 10002, "queue": 10001, "blob": 10000}
    places = {service: f"{host}:{port}/devstoreaccount1" for service, port in ports.items()}
    return Account(name="devstoreaccount1", key=EMULATOR_KEY, **places)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://acc.table.core.windows.net", Account(name="acc", **CLOUD)),
        (
            "https://acc.table.core.chinacloudapi.cn?sv=1&sig=2",
            account("https://acc.{}.core.chinacloudapi.cn", sas="sv=1&sig=2"),
        ),
        (
            "https://acc.table.cosmos.azure.com:443/",
            Account(name="acc", table="https://acc.table.cosmos.azure.com"),
        ),
        ("HTTPS://ACC.Table.Core.Windows.net", Account(name="acc", **CLOUD)),
        ("https://acc.z13.table.storage.azure.net", account("https://acc.z13.{}.storage.azure.net")),
        ("https://acc.privatelink.table.core.windows.net", account("https://acc.privatelink.{}.core.windows.net")),
        ("https://acc-secondary.table.core.windows.net", account("https://acc-secondary.{}.core.windows.net")),
        (
            "https://my-acc.table.cosmosdb.azure.com",
            Account(name="my-acc", table="https://my-acc.table.cosmosdb.azure.com"),
        ),
        (
            "http://127.0.0.1:10002/devstoreaccount1",
            Account(name="devstoreaccount1", table=f"{LOCAL}:10002/devstoreaccount1"),
        ),
        ("https://tables.example.org", Account(name="", table="https://tables.example.org")),
        ("http://tables.example.org:80/acc/", Account(name="acc", table="http://tables.example.org/acc")),
        ("http://[::80]:/acc", Account(name="acc", table="http://[::80]/acc")),
        ("http://tables.example.org:443/acc", Account(name="acc", table="http://tables.example.org:443/acc")),
        ("AccountName=acc;AccountKey=a2V5", KEYED),
        ("DefaultEndpointsProtocol=HTTPS;AccountName=acc;AccountKey=a2V5", KEYED),
        ("DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=a2V5;", KEYED),
        (
            "AccountName=acc;AccountKey=a2V5;TableEndpoint=https://acc.table.cosmos.azure.com:443/;",
            Account(name="acc", table="https://acc.table.cosmos.azure.com", key="a2V5"),
        ),
        (
            "TableEndpoint=https://acc.table.core.windows.net/;SharedAccessSignature=sv=1&sig=a%3D",
            Account(name="acc", table=CLOUD["table"], sas="sv=1&sig=a%3D"),
        ),
        (
            "AccountName=acc;AccountKey=a2V5;DfsEndpoint=https://acc.dfs.core.windows.net/;WebEndpoint=https://w/",
            KEYED,
        ),
        (
            "UseDevelopmentStorage=true",
            emulator_on(LOCAL),
        ),
        (
            "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://box",
            emulator_on("http://box"),
        ),
    ],
)
def test_places(url: str, expected: Account) -> None:
    """Every style of endpoint and connection string says where tables, queues and blobs are."""
    assert handles(url)
    assert parse(url) == expected


@pytest.mark.parametrize(
    ("url", "cosmos"),
    [
        ("https://acc.table.cosmos.azure.com:443", True),
        ("https://acc.tables.cosmos.azure.com", True),
        ("https://acc.table.cosmosdb.azure.com", True),
        ("https://acc.privatelink.table.cosmos.azure.us", True),
        ("AccountName=localhost;AccountKey=a2V5;TableEndpoint=http://localhost:8902/;", True),
        ("http://localhost:10002", False),
        ("http://localhost:8902/acc", False),
        ("https://cosmos.table.core.windows.net", False),
        ("https://acc.table.core.windows.net", False),
    ],
)
def test_which_are_tables_of_cosmos(url: str, *, cosmos: bool) -> None:
    """Every name that the SDK takes for Cosmos DB's too, whose rows come in no order; and its emulator's."""
    assert parse(url).cosmos is cosmos


def test_an_endpoint_of_one_service() -> None:
    """Where the host does not tell, the argument does."""
    assert parse("http://127.0.0.1:1/acc", "queue") == Account(name="acc", queue="http://127.0.0.1:1/acc")


def test_an_endpoint_of_another_service_beside_the_tables() -> None:
    """Queues and blobs are as strict; the URL of their own service opens them, beside the embedded engine too."""
    with pytest.raises(
        ModelError, match=r"where the blobs of an account are; give the URL of its queues: https://acc.q"
    ):
        connect(CLOUD["table"], key=KEY, queues=CLOUD["blob"])
    with pytest.raises(
        ModelError, match=r"where the tables of an account are; give the URL of its blobs: https://acc.b"
    ):
        connect("local::memory:", blobs=f"{CLOUD['table']}?sig=a")
    connect("local::memory:", queues=f"{CLOUD['queue']}?sig=a", blobs=f"{CLOUD['blob']}?sig=a")
    connect(CLOUD["table"], key=KEY, queues=CLOUD["queue"], blobs=CLOUD["blob"])


@pytest.mark.parametrize("url", ["local:x", "hr.tables", "", "ftp://x", "Server=x;Password=y"])
def test_what_is_no_account(url: str) -> None:
    """Left to other backends."""
    assert not handles(url)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("https://", "has no host"),
        ("https://tables.example.org", "AzureNamedKeyCredential"),
        ("https://me:secret@acc.table.core.windows.net", "has a user"),
        ("https://acc.table.core.windows.net/Flights", "path that is not an account"),
        ("http://127.0.0.1:10002/acc/Flights", "path that is not an account"),
        (
            "https://acc.blob.core.windows.net?sig=secret",
            "where the blobs of an account are; give the URL of its tables: https://acc.table.core.windows.net$",
        ),
        ("https://acc.queue.core.windows.net", "where the queues of an account are; give the URL of its tables"),
        (
            "AccountName=acc;TableEndpoint=https://acc.blob.core.windows.net;AccountKey=secret",
            "where the blobs of an account are; give the URL of its tables",
        ),
        ("http://127.0.0.1:secret/acc", "a port that is not a number"),
        ("http://127.0.0.1:99999/acc", "a port that is not a number"),
        ("AccountName=acc;AcountKey=secret", "has 'AcountKey'"),
        ("AccountName=acc;secret", "a part without ="),
        ("SharedAccessSignature=secret", "neither AccountName nor an endpoint"),
    ],
)
def test_places_that_are_wrong(url: str, problem: str) -> None:
    """What is wrong is said, without what is secret."""
    with pytest.raises((ModelError, NotSupported), match=problem) as caught:
        connect(url, key="a2V5")

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:10002/devstoreaccount1",
        "http://localhost:10002/devstoreaccount1",
        "http://[::1]:10002/devstoreaccount1",
        "http://devstoreaccount1.table.core.localhost:10002",
    ],
)
def test_the_published_key_need_not_be_given(url: str) -> None:
    """The development account on this machine is opened by its key, which everyone knows."""
    connect(url)
    connect(url, queues="http://127.0.0.1:10001/devstoreaccount1", blobs="http://127.0.0.1:10000/devstoreaccount1")


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("https://devstoreaccount1.table.core.windows.net", {}),
        ("http://tables.example.org/devstoreaccount1", {}),
        ("http://localhost.example.org/devstoreaccount1", {}),
        ("http://127.0.0.1.example.org/devstoreaccount1", {}),
        ("http://0.0.0.0:10002/devstoreaccount1", {}),
        ("http://127.0.0.1:10002/devstoreaccount1", {"blobs": "http://example.org/devstoreaccount1"}),
        ("http://127.0.0.1:10002/staff", {}),
    ],
)
def test_the_published_key_is_for_this_machine(url: str, options: dict[str, Any]) -> None:
    """Elsewhere the development account needs its key like any other account, and the message says so."""
    with pytest.raises(ModelError, match="there is no credential for the account") as caught:
        connect(url, **options)

    assert ("is taken only where every host is this machine" in str(caught.value)) == (not url.endswith("staff"))


class Parcel(Entity, table="ParcelsOfNobody", partition_key="{city}", row_key="parcel_{id:06d}"):
    city: Mapped[str]
    id: Mapped[int]


def test_a_query_is_explained_before_anything_is_opened() -> None:
    """Nothing is sent for it, so it needs no open database, as on the embedded engine."""
    db = connect("https://account.table.core.windows.net", key=KEY)

    assert "GET ParcelsOfNobody" in str(db.select(Parcel).where(Parcel.city == "Bonn").explain())


def test_secrets_do_not_show() -> None:
    """In the repr of an account, which ends up in logs."""
    assert "a2V5" not in repr(parse("AccountName=acc;AccountKey=a2V5"))
    assert "sig" not in repr(parse("https://acc.table.core.windows.net?sv=1&sig=2"))


def test_queues_and_blobs_elsewhere() -> None:
    """Places of the same sort are served by the same backend; others by their own."""
    db = connect(
        "https://acc.table.cosmos.azure.com",
        key="a2V5",
        queues="http://h:1/acc",
        blobs="https://acc.blob.core.windows.net",
    )
    backend = connection_of(db).backend
    assert isinstance(backend, AzureBackend)
    assert backend.account == Account(
        name="acc",
        table="https://acc.table.cosmos.azure.com",
        queue="http://h:1/acc",
        blob="https://acc.blob.core.windows.net",
    )
    apart = connect("local::memory:", queues="AccountName=acc;AccountKey=a2V5")
    assert not isinstance(connection_of(apart).backend, AzureBackend)


AZURITE_QUEUES = "http://127.0.0.1:10001/devstoreaccount1"


def test_options_go_to_the_backend_that_knows_them() -> None:
    """What the backend of the tables does not know is for that of the queues or blobs, where it is another one."""
    credential = AzureNamedKeyCredential("acc", "a2V5")
    connect("local::memory:", queues=AZURITE_QUEUES, storage_api_version="2025-11-05")
    connect("local::memory:", queues=AZURITE_QUEUES, blobs="local::memory:", connections=3)
    connect("local::memory:", blobs="https://acc.blob.core.windows.net", credential=credential)
    connect(AZURITE_QUEUES.replace("10001", "10002"), blobs="local:./none.tables", create=False)
    with pytest.raises(ValueError, match="'connections' must be"):
        connect("local::memory:", queues=AZURITE_QUEUES, connections=0)


@pytest.mark.parametrize("option", ["api_version", "storage_api_version"])
async def test_a_version_that_the_sdk_does_not_know(option: str) -> None:
    """The error is one line with the names of the options, and the versions that the SDK knows."""
    options: dict[str, Any] = {option: "2099-01-01"}
    with pytest.raises(
        NotSupported,
        match=r"^connect\(\): Unsupported API version '2099-01-01'. api_version= is for tables, storage_api_version= "
        r"for queues and blobs; the SDK knows 2019-02-02, [-0-9, ]+$",
    ):
        await connect("UseDevelopmentStorage=true", **options).open()


def test_a_backend_that_names_no_options_gets_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its options may have the names of those of the other one."""
    given: dict[str, Any] = {}

    class Elsewhere(Between):
        @classmethod
        def from_url(cls, url: str, *, timeout: float, options: dict[str, Any]) -> Between:
            given.update(options)
            return cls()

    find_backend = opening.find_backend

    def find(url: str, argument: str = "url") -> type[Backend]:
        return Elsewhere if url == "x:" else find_backend(url, argument)

    monkeypatch.setattr(opening, "find_backend", find)
    connect("x:", queues=AZURITE_QUEUES, connections=0, colour=1)

    assert given == {"connections": 0, "colour": 1}


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The packages of Azure are not there: `connect` says how to install them, and opens everything else."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ("azure", "tableorm_azure")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "azure", None)

    with pytest.raises(NotSupported) as caught:
        connect("https://acc.table.core.windows.net", key="a2V5")
    connect("local::memory:")
    assert "install tableorm with its extra 'azure'" in str(caught.value)
    for page in ("docs/stores/azure.md", "docs/index.md", "README.md"):
        assert 'pip install "PATH_OF_THE_CHECKOUT[azure]"' in (ROOT / page).read_text("utf-8")


def test_a_local_file_needs_no_sdk(tmp_path: Path) -> None:
    """
    Neither the other backends nor pydantic are even imported, which would take longer than all else about opening a
    file; a model needs neither.
    """
    script = (
        "import asyncio, sys\n"
        "from tableorm import Entity, Mapped, connect, from_dict\n"
        "class A(Entity, table='Names', partition_key='p', row_key='{id}'):\n"
        "    id: Mapped[str]\n"
        "from_dict(A, {'id': 'a'})\n"
        "async def main():\n"
        "    async with connect(sys.argv[1]) as db:\n"
        "        await db.ping()\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if name.partition('.')[0] in ('azure', 'pydantic', 'tableorm_azure')])\n"
    )
    command = [sys.executable, "-c", script, f"local:{tmp_path}/test.tables"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_backend_that_is_broken_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another module that is missing is not taken for the extra."""
    (tmp_path / "broken_backend.py").write_text("import no_such_module\n", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    broken = EntryPoints([EntryPoint("azure", "broken_backend:Backend", opening.GROUP)])
    monkeypatch.setattr(opening, "_installed", lambda: broken)

    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        connect("https://acc.table.core.windows.net")


@pytest.mark.parametrize("how", ["key", "named key", "connection string", "joint"])
async def test_azurite_opens(azurite: Azurite, how: str) -> None:
    """By each way to give the account's key; the database asks and has what was given."""
    db: Database
    match how:
        case "key":
            db = connect(azurite.table, key=KEY)
        case "named key":
            db = connect(azurite.table, credential=AzureNamedKeyCredential("devstoreaccount1", KEY))
        case "joint":
            db = connect(azurite.table, key=KEY, queues=azurite.queue, blobs=azurite.blob)
        case _:
            db = connect(azurite.connection_string)
    async with db:
        await db.ping()
        if how in ("joint", "connection string"):
            assert await db.queues.list_queues("none-") == []
            assert await db.blobs.list_containers("none-") == []
        else:
            with pytest.raises(NotSupported, match="queues="):
                _ = db.queues


async def test_queues_of_azurite_beside_the_embedded_engine(azurite: Azurite) -> None:
    """Tables here, queues and blobs there."""
    async with connect("local::memory:", queues=azurite.connection_string, blobs=azurite.connection_string) as db:
        assert await db.tables() == []
        assert await db.queues.list_queues("none-") == []
        assert await db.blobs.list_containers("none-") == []


async def test_a_sas_opens_azurite(azurite: Azurite) -> None:
    """A token of the account, as an option, a credential and in the URL; a wrong one is denied."""
    make: Any = generate_account_sas
    token: str = make(
        AzureNamedKeyCredential("devstoreaccount1", KEY),
        ResourceTypes(service=True, object=True, container=True),
        AccountSasPermissions(read=True, list=True),
        datetime.now(UTC) + timedelta(hours=1),
    )
    for db in (
        connect(azurite.table, sas=token),
        connect(azurite.table, credential=AzureSasCredential(token)),
        connect(f"{azurite.table}?{token}"),
    ):
        async with db:
            await db.ping()
    async with connect(azurite.table, sas=token.replace("sig=", "sig=A")) as db:
        with pytest.raises(AccessDenied):
            await db.ping()


async def refuse_every_call(url: str) -> None:
    """Each call on an account that the server does not know names the account, and finds nothing missing."""
    async with connect(url, key=KEY) as db:
        key = Parcel.key(city="Bonn", id=1)
        for call in (
            db.create_tables(Parcel),
            db.drop_table(Parcel, missing_ok=True),
            db.get_or_none(key),
            db.exists(key),
            db.select(Parcel).where(Parcel.city == "Bonn").all(),
            db.insert(Parcel(city="Bonn", id=1)),
            db.delete(key, if_match="*", missing_ok=True),
        ):
            with pytest.raises(AccountNotFound, match="the server does not know the account; check the URL") as raised:
                await call
            assert raised.value.code == "ResourceNotFound"
        with pytest.raises(TransactionFailed, match="the server does not know the account") as failed:
            async with db.transaction() as tx:
                for number in range(2):
                    tx.insert(Parcel(city="Bonn", id=number))
        assert isinstance(failed.value.__cause__, AccountNotFound)


async def test_an_account_that_azurite_does_not_know(azurite: Azurite) -> None:
    """Azurite answers as of a row that is missing, but in XML."""
    await refuse_every_call(azurite.table.replace("devstoreaccount1", "nobody"))
    elsewhere = {
        name: getattr(azurite, name[:-1]).replace("devstoreaccount1", "nobody") for name in ("queues", "blobs")
    }
    async with connect(azurite.table, key=KEY, **elsewhere) as db:
        with pytest.raises(AccountNotFound):
            await db.queues.create_queue("parcels")
        with pytest.raises(AccountNotFound):
            await db.blobs.create_container("parcels")


async def test_an_account_that_our_server_does_not_know() -> None:
    """The server of tableorm says so in the text."""
    async with serve(None, port=0) as server:
        await refuse_every_call(server.url.replace("devstoreaccount1", "nobody"))
