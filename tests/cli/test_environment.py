"""
What a command takes from the environment: the URL, and the credentials, which then stand in no list of processes.
"""

import logging
import sys
from types import ModuleType
from typing import Any, Self

import pytest

from tableorm import RetryPolicy, connect
from tableorm.cli import arguments
from tests.commandline import insert_all
from tests.commandline import run_command as tableorm

AZURE = "https://acc.table.core.windows.net"
KEY = "c2VjcmV0LXNlY3JldC1zZWNyZXQ="


@pytest.fixture(autouse=True)
def empty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TABLEORM_URL", "TABLEORM_KEY", "TABLEORM_SAS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def url(tmp_path: object) -> str:
    """A database with one table and no rows."""
    url = f"local:{tmp_path}/hr.tables"
    insert_all(url, "Directory")
    return url


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `connect` is asked for; the database is another one, which is empty."""
    asked: dict[str, Any] = {}

    def note(url: str, **options: Any) -> Any:
        assert options.pop("retry").attempts < RetryPolicy().attempts  # somebody waits at the prompt
        asked.update(options, url=url)
        return connect("local::memory:")

    monkeypatch.setattr(arguments, "connect", note)
    return asked


class AmbientCredential:
    """Stands for `DefaultAzureCredential`, which would ask the machine."""

    closed = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        AmbientCredential.closed += 1


@pytest.fixture
def ambient(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("azure.identity.aio")
    module.DefaultAzureCredential = AmbientCredential
    monkeypatch.setitem(sys.modules, "azure.identity.aio", module)


def test_the_url_may_be_left_out(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command goes to TABLEORM_URL where no URL is given, and to the URL where one is."""
    monkeypatch.setenv("TABLEORM_URL", url)

    listed, shown, audited = (
        tableorm("tables"),
        tableorm("show", "--limit", "3", "Directory"),
        tableorm("audit", "tests.cli.models:Employee", "tests.cli.models:Manager"),
    )

    assert (listed.stdout, listed.returncode) == ("Directory\n", 0)
    assert (shown.stdout, shown.returncode) == ("", 0)
    assert (audited.returncode, audited.stderr) == (0, "")
    assert tableorm("tables", "local::memory:").stdout == ""
    assert tableorm("show", "local::memory:", "Directory").returncode == 1


def test_a_url_in_place_of_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection string where the table belongs is not shown, since there is a key in it."""
    monkeypatch.setenv("TABLEORM_URL", "local::memory:")

    done = tableorm("show", f"AccountName=acc;AccountKey={KEY}")

    assert done.returncode == 2
    assert "show: TABLE is missing" in done.stderr
    assert KEY not in done.stderr


@pytest.mark.parametrize(("name", "option"), [("TABLEORM_KEY", "key"), ("TABLEORM_SAS", "sas")])
def test_credentials(asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch, name: str, option: str) -> None:
    """A key or a token of the environment opens the URL of the environment, and a URL that is given alone."""
    monkeypatch.setenv(name, KEY)
    assert tableorm("tables", AZURE).returncode == 0
    assert asked == {"url": AZURE, "prefix": "", option: KEY}

    asked.clear()
    monkeypatch.setenv("TABLEORM_URL", AZURE)
    assert tableorm("tables").returncode == 0
    assert asked == {"url": AZURE, "prefix": "", option: KEY}


def test_credentials_stay_with_their_url(asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that stands beside TABLEORM_URL is not sent to another host."""
    monkeypatch.setenv("TABLEORM_URL", AZURE)
    monkeypatch.setenv("TABLEORM_SAS", "sig=abc")

    assert tableorm("tables", "http://tables.example.org/acc").returncode == 0

    assert asked == {"url": "http://tables.example.org/acc", "prefix": ""}


@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        ({"TABLEORM_URL": AZURE, "TABLEORM_KEY": KEY, "TABLEORM_SAS": "sig=abc"}, "key and sas; give one of them"),
        ({"TABLEORM_URL": f"{AZURE}?sig=abc", "TABLEORM_KEY": KEY}, "key and the URL's SAS; give one of them"),
    ],
)
def test_two_credentials(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], problem: str) -> None:
    """Two credentials are rejected in one line, which says where each of them stands and shows neither."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    done = tableorm("tables")

    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert problem in done.stderr
    assert "key is TABLEORM_KEY, sas is TABLEORM_SAS" in done.stderr
    assert KEY not in done.stderr


@pytest.mark.usefixtures("ambient")
def test_the_identity_of_the_machine(asked: dict[str, Any]) -> None:
    """A URL of Azure without a credential is opened by DefaultAzureCredential, which is closed afterwards."""
    AmbientCredential.closed = 0

    assert tableorm("tables", AZURE).returncode == 0

    assert isinstance(asked["credential"], AmbientCredential)
    assert AmbientCredential.closed == 1


@pytest.mark.usefixtures("ambient")
@pytest.mark.parametrize(
    "url",
    [
        "http://acc.table.core.windows.net",
        "https://acc.table.core.windows.net.example.org",
        "https://tables.example.org/acc",
        "https://acc.table.core.windows.net?sig=abc",
        f"AccountName=acc;AccountKey={KEY}",
        "AccountName=acc;TableEndpoint=https://acc.table.core.windows.net;BlobEndpoint=https://example.org",
        "http://127.0.0.1:10002/devstoreaccount1",
        "https://",
        "local::memory:",
    ],
)
def test_the_identity_of_the_machine_goes_to_azure_alone(asked: dict[str, Any], url: str) -> None:
    """No token of the machine is sent to a host that is not Azure's, without TLS, or beside a credential."""
    tableorm("tables", url)

    assert "credential" not in asked


QUEUES = "https://acc.queue.core.windows.net"


@pytest.mark.usefixtures("ambient")
@pytest.mark.parametrize("credential", ["TABLEORM_SAS", "TABLEORM_KEY", "the identity"])
@pytest.mark.parametrize(
    ("option", "place"),
    [
        ("--queues", "https://other.example.org/acc"),
        ("--blobs", "https://other.example.org/acc"),
        ("--queues", "http://acc.queue.core.windows.net"),
        ("--queues", "HTTPS://acc.table.core.windows.net.example.org"),
        ("--queues", "https://acc.table.core.windows.net:443@other.example.org/acc"),
        ("--queues", "AccountName=acc;QueueEndpoint=https://other.example.org/acc"),
    ],
)
def test_another_host_gets_no_credential(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch, credential: str, option: str, place: str
) -> None:
    """What opens the database is not sent to queues or blobs elsewhere that have no credential of their own."""
    monkeypatch.setenv("TABLEORM_URL", AZURE)
    if credential != "the identity":
        monkeypatch.setenv(credential, KEY if credential.endswith("KEY") else "sv=2019-02-02&sig=abc")

    done = tableorm("tables", option, place)

    assert (done.returncode, asked) == (1, {})
    assert f"{option} names another host" in done.stderr


@pytest.mark.usefixtures("ambient")
@pytest.mark.parametrize(
    ("url", "queues"),
    [
        (AZURE, QUEUES),
        ("https://acc.table.cosmos.azure.com", QUEUES),
        ("http://127.0.0.1:10002/devstoreaccount1", "http://127.0.0.1:10001/devstoreaccount1"),
        (AZURE, "local::memory:"),
        (AZURE, "https://other.example.org/acc?sv=2019-02-02&sig=def"),
        (AZURE, f"AccountName=acc;AccountKey={KEY};QueueEndpoint=https://other.example.org/acc"),
    ],
)
def test_queues_that_may_be_opened(asked: dict[str, Any], url: str, queues: str) -> None:
    """Queues of Azure get the identity of the machine, those of the same host its key, and others use their own."""
    assert tableorm("tables", url, "--queues", queues).returncode == 0
    assert asked["queues"] == queues


def test_nobody_is_logged_in(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A login that fails is one line, which says how to log in, and not what each kind of credential has tried."""
    from azure.core.exceptions import ClientAuthenticationError

    class LoggedOut(AmbientCredential):
        async def get_token(self, *scopes: str, **options: Any) -> Any:
            logging.getLogger("azure.identity.aio").warning("Attempted credentials: ...")
            raise ClientAuthenticationError("DefaultAzureCredential failed to retrieve a token.\nAttempted:\n\tEnv...")

        get_token_info = get_token

    module: Any = ModuleType("azure.identity.aio")
    module.DefaultAzureCredential = LoggedOut
    monkeypatch.setitem(sys.modules, "azure.identity.aio", module)

    done = tableorm("tables", "https://nobodyishere.table.core.windows.net")

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert caplog.text == ""
    assert "nobody is logged in to Azure here; run `az login`, or set TABLEORM_KEY or TABLEORM_SAS" in done.stderr
