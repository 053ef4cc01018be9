"""
Who may do what: Shared Key, tokens of accounts and tables, stored policies, the secondary location.
"""

import base64
import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import attrs
import pytest

from tableorm.protocol.sas import AccountSas, TableSas, sign_sas
from tableorm.protocol.shared_key import Scheme, decode_key
from tableorm_local.engine import AccessRecords
from tableorm_local.server import DEVELOPMENT_KEY, Account, Server, serve
from tests.local.server.client import KEYS, Api, Wire, head, root_of

ONE = "/Tab(PartitionKey='p',RowKey='r')"


@pytest.mark.parametrize("scheme", Scheme)
async def test_both_schemes(api: Api, scheme: Scheme) -> None:
    """SharedKey and SharedKeyLite both sign, whatever the path and the query hold."""
    row = {"PartitionKey": "a b'c", "RowKey": "ä+%"}
    assert (await api("POST", "/Tab", row, scheme=scheme)).status == 201

    path = "/Tab(PartitionKey='a%20b%27%27c',RowKey='%C3%A4+%25')"
    assert (await api("GET", path, scheme=scheme, query="$select=RowKey")).status == 200
    assert (await api("GET", "/Tab", scheme=scheme, query="comp=acl")).status == 200


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"key": KEYS[0]}, 403, "AuthenticationFailed"),
        ({"account": "devstoreaccount2", "location": "devstoreaccount1"}, 403, "AuthenticationFailed"),
        ({"location": "nobody"}, 404, "ResourceNotFound"),
    ],
)
async def test_wrong_signers(api: Api, changes: dict[str, Any], status: int, code: str) -> None:
    """Another key or account is rejected."""
    reply = await attrs.evolve(api, **changes)("GET", "/Tables")

    assert (reply.status, reply.code) == (status, code)


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 403, "AuthenticationFailed"),
        ({"x_ms_version": "2019-12-12"}, 401, "NoAuthenticationInformation"),
        ({"Authorization": "SharedKey devstoreaccount1:c2ln"}, 403, "AuthenticationFailed"),
        ({"Authorization": "SharedKey devstoreaccount1:c2ln", "x_ms_date": "yesterday"}, 403, "AuthenticationFailed"),
        ({"Authorization": "Bearer abc"}, 400, "InvalidAuthenticationInfo"),
        ({"Authorization": "SharedKey devstoreaccount1"}, 400, "InvalidAuthenticationInfo"),
        ({"Authorization": "SharedKey :x"}, 400, "InvalidAuthenticationInfo"),
    ],
)
async def test_missing_or_malformed_credentials(api: Api, headers: dict[str, str], status: int, code: str) -> None:
    """What is no signature is rejected as the service does; an XML operation is answered in XML."""
    reply = await api("GET", "/Tables", scheme=None, headers=headers)
    assert (reply.status, reply.code) == (status, code)

    reply = await api("GET", "/Tab", scheme=None, query="comp=acl", headers=headers)
    assert (reply.status, reply.code, reply.headers["Content-Type"]) == (status, code, "application/xml")


@pytest.mark.parametrize(("more", "status"), [((), 200), (("x-ms-date: yesterday",), 403)])
async def test_the_date_of_a_request(server: Server, more: tuple[str, ...], status: int) -> None:
    """It may stand in `Date`, as in other services; `x-ms-date` counts where there are both."""
    request = head("GET", "/Tables", *more).replace(b"\r\nx-ms-date: ", b"\r\nDate: ", 1)

    assert await Wire.ask(server, request) == status


async def test_signature_covers_the_sum_of_the_body(api: Api) -> None:
    """A client may send Content-MD5, which SharedKey signs."""
    row = {"PartitionKey": "p", "RowKey": "r"}

    assert (await api("POST", "/Tab", row, Content_MD5="0CyhZQ4Ns+LBcGpbR9DYTg==")).status == 201


async def test_accounts_and_rotation(tmp_path_factory: pytest.TempPathFactory, session: aiohttp.ClientSession) -> None:
    """Each account has its data and two keys; a key that is replaced is no good from then on."""
    folder = tmp_path_factory.mktemp("data")
    accounts = [Account(name="first", keys=KEYS[:2]), Account(name="second", keys=KEYS[2:])]
    async with serve(folder, port=0, accounts=accounts) as server:
        one, other = (Api(session, root_of(server), "first", key) for key in KEYS[:2])
        second = Api(session, root_of(server), "second", KEYS[2])
        assert (await one("POST", "/Tables", {"TableName": "Tab"})).status == 201
        assert len((await other("GET", "/Tables")).rows) == 1
        assert (await second("GET", "/Tables")).rows == []
        assert (await attrs.evolve(second, location="first")("GET", "/Tables")).status == 403

        server.replace_keys({"first": [KEYS[1]]})
        assert (await one("GET", "/Tables")).status == 403
        assert (await other("GET", "/Tables")).status == 200
        with pytest.raises(ValueError, match="no account third"):
            server.replace_keys({"third": KEYS[:1]})
    assert {path.name for path in folder.iterdir()} >= {"first.tables", "second.tables"}


async def test_data_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None and ":memory:" are memory; the URL that `connect` takes is rejected, and no file is made of any of them."""
    monkeypatch.chdir(tmp_path)
    for url in ("local::memory:", "local:x.tables"):
        with pytest.raises(ValueError, match=f"the data '{url}' is a URL; give what follows 'local:'"):
            serve(url, port=0)
    async with serve(":memory:", port=0):
        pass

    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240 - a test may look at its files


async def test_development_key_stays_here() -> None:
    """The published key is rejected where other machines could connect, also later."""
    with pytest.raises(ValueError, match="the development key is published"):
        serve(None, host="0.0.0.0", port=0)
    disguised = Account(name="mine", keys=[KEYS[0], DEVELOPMENT_KEY])
    with pytest.raises(ValueError, match="the development key is published"):
        serve(None, host="::", port=0, accounts=[disguised])
    async with serve(None, host="0.0.0.0", port=0, accounts=[Account(name="mine", keys=[KEYS[0]])]) as server:
        with pytest.raises(
            ValueError, match="the development key is published; it is rejected where other machines can"
        ):
            server.replace_keys({"mine": [DEVELOPMENT_KEY]})
        server.replace_keys({"mine": [KEYS[1]]})
    async with serve(None, port=0, accounts=[Account(name="mine", keys=[KEYS[0]])]) as server:
        server.replace_keys({"mine": [DEVELOPMENT_KEY]})


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        *((name, KEYS[:1]) for name in ("ab", "a" * 25, "Upper", "a-b", "metrics", "healthz")),
        *(("good", keys) for keys in ([], KEYS, ["not base64!"])),
    ],
)
def test_accounts_that_cannot_be(name: str, keys: list[str]) -> None:
    """A bad name, no key, three, or no base64: refused without showing the key."""
    with pytest.raises(ValueError, match=r"account") as caught:
        Account(name=name, keys=keys)
    assert not any(key in str(caught.value) for key in keys)
    assert repr(Account(name="good", keys=KEYS[:1])) == "Account(name='good')"
    assert [len(Account(name="a" * length, keys=KEYS[:2]).name) for length in (3, 24)] == [3, 24]


# The secondary location


async def test_secondary_reads_only(api: Api) -> None:
    """The secondary location answers reads and statistics, and refuses every write."""
    await api("POST", "/Tab", {"PartitionKey": "p", "RowKey": "r"})
    secondary = attrs.evolve(api, location="devstoreaccount1-secondary")

    assert (await secondary("GET", ONE)).status == 200
    stats = await secondary("GET", "/", query="restype=service&comp=stats")
    assert b"<Status>live</Status>" in stats.body
    for verb, path in (("POST", "/Tab"), ("PUT", ONE), ("DELETE", ONE), ("POST", "/Tables"), ("POST", "/$batch")):
        reply = await secondary(verb, path, {})
        assert (reply.status, reply.code) == (403, "InsufficientAccountPermissions")
        assert "Write operations are not allowed." in reply.message


async def test_secondary_signed_as_the_primary(api: Api) -> None:
    """Clients that fail over after signing send the primary's signature, some a malformed path."""
    secondary = attrs.evolve(api, location="devstoreaccount1-secondary")

    assert (await secondary("GET", "/Tab()", signed_path="/devstoreaccount1/Tab()")).status == 200
    stats = await secondary(
        "GET", "/devstoreaccount1/", query="restype=service&comp=stats", signed_path="/devstoreaccount1/"
    )
    assert stats.status == 200


# Tokens


def moment(minutes: float) -> str:
    # Far enough: tests are collected long before they run.
    return (dt.datetime.now(dt.UTC) + dt.timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


def table_token(**changes: str | None) -> str:
    given: dict[str, Any] = {"sv": "2019-02-02", "tn": "Tab", "se": moment(1440), "sp": "raud"} | changes
    return sign_sas(TableSas(**given), "devstoreaccount1", decode_key(DEVELOPMENT_KEY))


def account_token(**changes: str | None) -> str:
    given: dict[str, Any] = {"sv": "2019-02-02", "ss": "t", "srt": "sco", "sp": "rwdlacu", "se": moment(1440)} | changes
    return sign_sas(AccountSas(**given), "devstoreaccount1", decode_key(DEVELOPMENT_KEY))


@pytest.fixture
async def filled(api: Api) -> Api:
    """The table with an entity."""
    await api("POST", "/Tab", {"PartitionKey": "p", "RowKey": "r", "A": 0})
    return api


async def test_policies_are_not_for_tokens(filled: Api) -> None:
    """No token of an account reads or sets the policies of a table."""
    query = f"comp=acl&{account_token()}"

    assert (await filled("GET", "/Tab", scheme=None, query=query)).status == 403
    assert (await filled("PUT", "/Tab", b"", scheme=None, query=query)).status == 403


@pytest.mark.parametrize("sip", ["127.0.0.1", "127.0.0.0-127.0.0.9"])
async def test_tokens_that_are_good(filled: Api, monkeypatch: pytest.MonkeyPatch, sip: str) -> None:
    """The right address, both protocols, any letter case of the table; no policy is read for who names none."""
    monkeypatch.setattr(AccessRecords, "policy", None)
    token = table_token(sip=sip, spr="https,http", tn="tAB", st=moment(-1))

    assert (await filled("GET", ONE, scheme=None, query=token)).status == 200


RANGES: dict[str, dict[str, str]] = {
    "open": {},
    "partition": {"spk": "p", "epk": "p"},
    "rows": {"spk": "p", "srk": "c", "epk": "p", "erk": "e"},
    "across": {"spk": "o", "srk": "c", "epk": "q", "erk": "b"},
    "from": {"spk": "p", "srk": "c"},
    "until": {"epk": "p", "erk": "c"},
    "until-partition": {"epk": "p"},
}


def inside(keys: tuple[str, str], bounds: Mapping[str, str]) -> bool:
    """What the reference says, as tuples."""
    if "spk" in bounds and keys < (bounds["spk"], bounds.get("srk", "")):
        return False
    return "epk" not in bounds or keys <= (bounds["epk"], bounds.get("erk", "\uffff"))


POLICY = (
    "<SignedIdentifiers><SignedIdentifier><Id>{}</Id><AccessPolicy>{}</AccessPolicy></SignedIdentifier>"
    "</SignedIdentifiers>"
)


async def test_stored_policy(filled: Api) -> None:
    """A policy supplies what the token lacks; changing or removing it takes effect at once."""

    async def try_token(name: str, expires: float, token: str) -> int:
        policy = f"<Expiry>{moment(expires)}</Expiry><Permission>r</Permission>"
        assert (await filled("PUT", "/Tab", POLICY.format(name, policy).encode(), query="comp=acl")).status == 204
        return (await filled("GET", ONE, scheme=None, query=token)).status

    token = table_token(si="reader", sp=None, se=None)
    assert await try_token("reader", 1440, token) == 200
    assert (await filled("DELETE", ONE, scheme=None, query=token, If_Match="*")).status == 403
    assert await try_token("reader", 1440, table_token(si="reader", sp="r", se=None)) == 403
    assert await try_token("reader", -1, token) == 403
    assert await try_token("other", 1440, token) == 403


async def test_a_continuation_does_not_leave_the_range(api: Api) -> None:
    """Whoever makes up a continuation gets no row outside of the token's range."""
    for row in "abcd":
        await api("POST", "/Tab", {"PartitionKey": "p", "RowKey": row})
    start = await api("GET", "/Tab()", query="$top=1")
    where = f"NextPartitionKey={start.headers['x-ms-continuation-NextPartitionKey']}"

    found = await api("GET", "/Tab()", scheme=None, query=f"{where}&{table_token(spk='p', srk='c')}")
    assert [row["RowKey"] for row in found.rows] == ["c", "d"]


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize(
    "more", ["", "&$filter=RowKey%20ne%20'd'", "&$filter=RowKey%20lt%20'c'", "&$filter=A%20eq%201"]
)
async def test_a_continuation_shows_no_key_outside_the_range(api: Api, name: str, more: str) -> None:
    """Continuations can be read by whoever gets them, so none has the key of a row that the token does not open."""
    bounds = RANGES[name]
    for partition in "nopqr":
        for row in "bcdef":
            await api("POST", "/Tab", {"PartitionKey": partition, "RowKey": row})
    query, shown = f"$top=1&{table_token(**bounds)}{more}", set[tuple[str, str]]()
    headers = (await api("GET", "/Tab()", scheme=None, query=query)).headers
    while token := headers.get("x-ms-continuation-NextPartitionKey"):
        text = token.split("!")[2]
        key = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))[5:]
        partition_key, _, row_key = key.replace(b"\1", b"\0").partition(b"\0")
        shown.add((partition_key.decode(), row_key.rstrip(b"\0").decode()))
        headers = (await api("GET", "/Tab()", scheme=None, query=f"{query}&NextPartitionKey={token}")).headers

    assert {at for at in shown if not inside(at, bounds | {"srk": ""})} == set()
