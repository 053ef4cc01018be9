"""
Hosts and origins: with the published key the server serves this machine under its own names, and no foreign web page.

Everyone can sign for the development account, also a web page: by a name that it lets stand for 127.0.0.1, or by a
request that browsers send without asking first.
"""

import base64

import aiohttp
import pytest

from tableorm.protocol.sas import AccountSas, sign_sas
from tableorm.protocol.shared_key import decode_key
from tableorm_local.server import DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Account, Server, serve
from tests.local.server.client import Api, root_of

KEY = base64.b64encode(bytes(64)).decode()
RULES = """<StorageServiceProperties><Cors><CorsRule><AllowedOrigins>https://app.example</AllowedOrigins>
<AllowedMethods>GET,POST</AllowedMethods><MaxAgeInSeconds>60</MaxAgeInSeconds><ExposedHeaders></ExposedHeaders>
<AllowedHeaders>*</AllowedHeaders></CorsRule></Cors></StorageServiceProperties>"""


def token() -> str:
    """A token for everything, which any page can sign with the published key."""
    sas = AccountSas(sv="2019-02-02", ss="t", srt="sco", sp="rwdlacu", se="2099-01-01T00:00:00Z")
    return sign_sas(sas, DEVELOPMENT_ACCOUNT, decode_key(DEVELOPMENT_KEY))


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LocalHost:10002",
        "127.0.0.1:1",
        "127.8.9.1",
        "[::1]:80",
        "devstoreaccount1.table.core.localhost",
        "localhost.",
    ],
)
async def test_names_of_this_machine(api: Api, host: str) -> None:
    """Names that stand for this machine wherever they are looked up are good."""
    location = "" if host.startswith("devstore") else f"/{DEVELOPMENT_ACCOUNT}"
    async with api.session.get(f"{api.root}{location}/Tables?{token()}", headers={"Host": host}) as reply:
        assert reply.status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:10002",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "10.0.0.1",
        "0.0.0.0",
        "[::2]",
        "[::1].evil.example",
        "127.0.0.1:80:evil.example",
        "127.0.0.1:x",
    ],
)
@pytest.mark.parametrize("path", [f"/{DEVELOPMENT_ACCOUNT}/Tables", "/metrics"])
async def test_other_names_are_refused(api: Api, host: str, path: str) -> None:
    """A name that may stand for another machine tomorrow, or did yesterday, is rejected with the remedy."""
    query = f"?{token()}" if "Tables" in path else ""
    async with api.session.get(f"{api.root}{path}{query}", headers={"Host": host}) as reply:
        text = await reply.text()
    assert reply.status == (403 if "Tables" in path else 404)
    assert "Tables" not in path or "under the names of this machine alone" in text


@pytest.mark.parametrize("host", ["evil.example", "10.0.0.1:10002", "devstoreaccount1.table.core.windows.net", ""])
async def test_whether_the_server_runs_is_told_under_any_name(api: Api, host: str) -> None:
    """A probe gives the address of a container or a balancer, and learns no more than that the server runs."""
    async with api.session.get(f"{api.root}/healthz", headers={"Host": host}) as reply:
        assert (reply.status, await reply.text()) == (200, "ok\n")


async def test_the_account_in_another_host_is_refused(api: Api) -> None:
    """A host that names the account is rejected like any other, unless it is of this machine."""
    for host in ("devstoreaccount1.table.evil.example", "devstoreaccount1.table.core.windows.net"):
        async with api.session.get(f"{api.root}/Tables?{token()}", headers={"Host": host}) as reply:
            assert (reply.status, reply.headers["x-ms-error-code"]) == (403, "AuthorizationFailure")


FOREIGN = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://localhost:3000"},
    {"Origin": "https://127.0.0.1:{port}"},
    {"Origin": "http://evil.example\xff"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": " Cross-Site"},
    {"Origin": "http://127.0.0.1:{port}", "Sec-Fetch-Site": "cross-site"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
async def test_a_foreign_page_is_refused(server: Server, api: Api, headers: dict[str, str]) -> None:
    """What a page of another origin sends is rejected, and changes nothing, also a POST without Content-Type."""
    sent = {name: value.format(port=server.port) for name, value in headers.items()}
    query = token()
    refused = [
        await api(
            "POST", "/Tables", b'{"TableName":"Made"}', query=query, scheme=None, headers=sent | {"Content-Type": ""}
        ),
        await api("GET", "/Tables", query=query, scheme=None, headers=sent),
        await api("DELETE", "/Tables('Tab')", query=query, scheme=None, headers=sent),
        await api("GET", "/Tables", headers=sent),
    ]
    assert {(reply.status, reply.code) for reply in refused} == {(403, "AuthorizationFailure")}
    assert [row["TableName"] for row in (await api("GET", "/Tables")).rows] == ["Tab"]


@pytest.mark.parametrize("site", ["same-origin", "none", "same-site"])
async def test_other_requests_of_browsers_are_good(server: Server, api: Api, site: str) -> None:
    """What the address bar and pages of the server's own origin send is answered."""
    headers = {"Sec-Fetch-Site": site}
    assert (await api("GET", "/Tables", headers=headers)).status == 200
    origin = {"Origin": f"http://127.0.0.1:{server.port}"}
    assert (await api("GET", "/Tables", headers=headers | origin)).status == 200


async def test_rules_of_cors_let_pages_in(api: Api) -> None:
    """An origin that the rules of CORS allow is answered, for the verbs of its rule alone."""
    assert (await api("PUT", "/", RULES.encode(), query="restype=service&comp=properties")).status == 202
    page = {"Origin": "https://app.example", "Sec-Fetch-Site": "cross-site"}
    reply = await api("GET", "/Tables", headers=page)
    assert (reply.status, reply.headers["Access-Control-Allow-Origin"]) == (200, "https://app.example")
    assert (await api("POST", "/Tables", {"TableName": "Made"}, headers=page)).status == 201
    assert (await api("DELETE", "/Tables('Made')", headers=page)).code == "AuthorizationFailure"
    assert (await api("GET", "/Tables", headers=page | {"Origin": "https://evil.example"})).status == 403
    assert (await api("GET", "/Tables", headers={"Sec-Fetch-Site": "cross-site"})).status == 403


async def test_a_rule_for_every_origin_lets_every_page_in(api: Api) -> None:
    """With a rule for `*` a request of another site needs no origin, as one for an image has none."""
    every = RULES.replace("https://app.example", "*").encode()
    assert (await api("PUT", "/", every, query="restype=service&comp=properties")).status == 202
    assert (await api("GET", "/Tables", headers={"Sec-Fetch-Site": "cross-site"})).status == 200


@pytest.mark.parametrize(
    ("host", "is_open", "status"),
    [
        ("127.0.0.1", False, 200),
        ("tables.localhost", False, 200),
        ("evil.example", False, 404),
        ("evil.example", True, 200),
    ],
)
async def test_metrics_of_accounts_with_keys_of_their_own(
    session: aiohttp.ClientSession,
    host: str,
    status: int,
    is_open: bool,
) -> None:
    """Metrics are for clients of this machine that name it: a page could let a name of its own stand for 127.0.0.1."""
    accounts = [Account(name="staff", keys=[KEY])]
    async with serve(None, port=0, accounts=accounts, open_metrics=is_open) as server:
        async with session.get(f"{root_of(server)}/metrics", headers={"Host": host}) as reply:
            assert reply.status == status
        async with session.get(f"{root_of(server)}/healthz", headers={"Host": host}) as reply:
            assert reply.status == 200


async def test_an_account_with_a_key_of_its_own_has_any_name(session: aiohttp.ClientSession) -> None:
    """A page cannot sign with a key that is not published, so such an account is served under any name."""
    async with serve(None, port=0, accounts=[Account(name="staff", keys=[KEY])]) as server:
        api = Api(session, root_of(server), "staff", KEY)
        headers = {"Host": "tables.example", "Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
        assert (await api("GET", "/Tables", headers=headers)).status == 200
        server.replace_keys({"staff": [DEVELOPMENT_KEY]})
        public = Api(session, root_of(server), "staff", DEVELOPMENT_KEY)
        assert (await public("GET", "/Tables", headers=headers)).status == 403
        assert (await public("GET", "/Tables")).status == 200
