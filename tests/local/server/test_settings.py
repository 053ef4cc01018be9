"""
What a server is made of: data, addresses, accounts, limits, rules of CORS and metrics.
"""

import base64
import os
import socket
from pathlib import Path

import pytest

from tableorm.protocol.codes import Code, Fault
from tableorm_local.engine import Engine
from tableorm_local.server import DEVELOPMENT_KEY, Account, serve
from tableorm_local.server.operations.service_properties import read_cors_rules
from tableorm_local.server.security.accounts import Accounts, is_loopback, read_keys
from tableorm_local.server.security.browsers import check_browser, names_this_machine
from tableorm_local.server.security.cors import CorsRule, answer_preflight, headers_of
from tableorm_local.server.serving import bind, data_files

KEYS = [base64.b64encode(bytes([number]) * 64).decode() for number in range(3)]


def test_the_data_of_accounts(tmp_path: Path) -> None:
    """A folder has a file for each account, a file is that of a single one, and no name or `:memory:` is memory."""
    file = tmp_path / "data.tables"
    assert data_files(None, ["a", "b"]) == data_files(":memory:", ["a", "b"]) == {"a": None, "b": None}
    assert data_files(file, ["a"]) == data_files(str(file), ["a"]) == {"a": file}
    assert data_files(tmp_path, ["a"]) == {"a": tmp_path / "a.tables"}
    assert data_files(tmp_path, ["a", "b"]) == {"a": tmp_path / "a.tables", "b": tmp_path / "b.tables"}
    with pytest.raises(ValueError, match="is not a folder, and there are 2 accounts"):
        data_files(file, ["a", "b"])
    with pytest.raises(ValueError, match="the data has no name"):
        data_files("", ["a"])
    with pytest.raises(ValueError, match="is a URL; give what follows 'local:'"):
        data_files("local:data.tables", ["a"])


def test_the_urls_of_a_server() -> None:
    """Before it runs the URLs have the port that was asked for; an address of IPv6 stands in brackets."""
    accounts = [Account(name=name, keys=KEYS[:1]) for name in ("first", "second")]
    server = serve(None, host="::1", port=5, accounts=accounts)

    assert (server.port, server.url) == (5, "http://[::1]:5/first")
    assert server.urls == ["http://[::1]:5/first", "http://[::1]:5/second"]
    assert serve(None).url == "http://127.0.0.1:10002/devstoreaccount1"
    server.replace_certificate("none", None)  # there is none to replace
    with pytest.raises(ValueError, match="a private key alone is not enough"):
        serve(None, cert_key="key.pem")


def test_keys_are_replaced_together_or_not() -> None:
    """If one of several accounts does not exist, or has a key that cannot be used, none is changed."""
    accounts = Accounts([Account(name=name, keys=KEYS[:1]) for name in ("first", "second")])
    mistakes: list[dict[str, list[str]]] = [
        {"first": KEYS[1:], "third": KEYS[:1]},
        {"first": KEYS[1:], "second": ["?"]},
        {"first": []},
    ]
    for wrong in mistakes:
        with pytest.raises(ValueError):  # noqa: PT011 - each for another reason
            accounts.replace_keys(wrong)
        assert [accounts.keys(name) for name in accounts.names] == [(bytes(64),)] * 2
    accounts.replace_keys({"second": KEYS[1:]})
    assert [len(accounts.keys(name)) for name in ("first", "second")] == [1, 2]
    assert not accounts.any_public
    accounts.replace_keys({"second": [KEYS[0], DEVELOPMENT_KEY]})
    assert [accounts.is_public(name) for name in ("first", "second")] == [False, True]
    assert accounts.any_public


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("# {0}\n\n", 0),
        ("{0}\n", 1),
        (" {0} \n# {2}\n\n{1}", 2),
        ("{0}\n{1}\n{2}", 3),
        ("?", 1),
        ("\udcff", 0),
    ],
)
def test_files_of_keys(tmp_path: Path, text: str, count: int) -> None:
    """A key stands in a line; blank lines and remarks do not count; the problem names the file, and shows no key."""
    path = tmp_path / "keys"
    path.write_bytes(text.format(*KEYS).encode("utf-8", "surrogateescape"))
    if count in (1, 2) and text != "?":
        assert read_keys(path) == tuple(KEYS[:count])
        return
    with pytest.raises(ValueError, match=f"^{path}: ") as caught:
        read_keys(path)
    assert not any(key in str(caught.value) for key in KEYS)


@pytest.mark.parametrize(
    ("host", "is_here"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("[::1]", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("example.org", False),
        ("", False),
    ],
)
def test_addresses_of_this_machine(host: str, is_here: bool) -> None:
    """Only loopback addresses are out of reach of other machines; a header may have a port, and a dot at its end."""
    assert is_loopback(host) is is_here
    if host != "::1":
        assert names_this_machine(host) is is_here
        assert names_this_machine(f"{host}:1") is is_here
    assert names_this_machine("a.LOCALHOST.:1")
    assert not names_this_machine("localhost.example.org")
    assert not names_this_machine("example.org@localhost")


@pytest.mark.parametrize(
    ("headers", "allowed", "said"),
    [
        ({}, False, None),
        ({"Origin": "http://localhost:1"}, False, None),
        ({"Origin": "HTTP://LOCALHOST:1"}, False, None),
        ({"Origin": "https://localhost:1"}, False, "need a rule of CORS"),
        ({"Origin": "http://localhost:2"}, False, "need a rule of CORS"),
        ({"Origin": "https://a.example"}, False, "need a rule of CORS (got 'https://a.example')"),
        ({"Origin": "https://a.example"}, True, None),
        ({"Sec-Fetch-Site": "same-origin"}, False, None),
        ({"Sec-Fetch-Site": " Cross-Site"}, False, "need a rule of CORS (got 'another site')"),
        ({"Sec-Fetch-Site": "cross-site"}, True, None),
        ({"Host": "a.example"}, True, "names of this machine alone, such as 127.0.0.1 and localhost (got 'a.example')"),
        ({"Host": ""}, True, "names of this machine alone, such as 127.0.0.1 and localhost (got '')"),
        ({"Host": None}, True, "names of this machine alone, such as 127.0.0.1 and localhost (got '')"),
        ({"Host": "x" * 81}, True, f"(got '{'x' * 80}')"),
        ({"Origin": "x" * 81}, False, f"(got '{'x' * 80}')"),
    ],
)
def test_pages_of_other_origins(headers: dict[str, str | None], allowed: bool, said: str | None) -> None:
    """A request is refused if its host is no name of this machine, or if a page of another origin sends it."""
    both = {"Host": "localhost:1"} | headers
    given = {name: value for name, value in both.items() if value is not None}
    if said is None:
        check_browser("acc", "http", given, allowed=allowed)
        return
    with pytest.raises(Fault) as caught:
        check_browser("acc", "http", given, allowed=allowed)
    assert caught.value.code == Code.AUTHORIZATION_FAILURE
    assert "The key of the account acc is published" in caught.value.message
    assert said in caught.value.message


def rule(
    origins: str = "https://a.example", methods: str = "GET", headers: str = "", exposed: str = "", max_age: int = 5
) -> CorsRule:
    texts = (tuple(filter(None, each.split(","))) for each in (origins, methods, headers, exposed))
    names = dict(zip(("origins", "methods", "headers", "exposed"), texts, strict=True))
    return CorsRule(**names, max_age=max_age)


def test_the_first_rule_that_allows_counts() -> None:
    """The rules are tried in order, by origin, method and every header; their ages and headers are their own."""
    asked = {"Origin": "https://a.example", "Access-Control-Request-Method": "PUT"}
    rules = [
        rule("https://b.example", "PUT", max_age=1),
        rule(methods="GET,POST", max_age=2),
        rule(methods="PUT", headers="x-a", max_age=3),
        rule(methods="PUT", headers="x-a,X-B*", exposed="x-c,x-d", max_age=4),
        rule("*", "PUT", "*", max_age=5),
    ]
    ages = {
        names: answer_preflight(rules, asked | {"Access-Control-Request-Headers": names}).headers
        for names in ("", "X-A", "x-a, x-bc", "x-b", " x-a,,x-e ")
    }

    assert [given["Access-Control-Max-Age"] for given in ages.values()] == ["3", "3", "4", "4", "5"]
    assert [given.get("Access-Control-Allow-Headers") for given in ages.values()] == [None, *list(ages)[1:]]
    assert [given.get("Vary") for given in ages.values()] == ["Origin"] * 4 + [None]
    assert headers_of(rules[3:], "https://a.example", "PUT") == {
        "Access-Control-Allow-Origin": "https://a.example",
        "Access-Control-Allow-Credentials": "true",
        "Access-Control-Expose-Headers": "x-c,x-d",
        "Vary": "Origin",
    }
    assert headers_of(rules, "https://c.example", "PUT") == {"Access-Control-Allow-Origin": "*"}
    assert headers_of(rules, "https://c.example", "GET") == {}
    with pytest.raises(Fault) as caught:
        answer_preflight(rules[:4], asked | {"Access-Control-Request-Headers": "x-e"})
    assert caught.value.code == Code.CORS_PREFLIGHT_FAILURE
    assert caught.value.message == (
        "CORS not enabled or no matching rule found for this request. The service has 4 rules; none allows PUT from "
        "'https://a.example' with these headers."
    )
    with pytest.raises(Fault) as caught:
        answer_preflight([], {"Origin": "o" * 201, "Access-Control-Request-Method": "M" * 21})
    assert caught.value.message.endswith(f"none allows {'M' * 20} from '{'o' * 200}' with these headers.")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "https://a.example"},
        {"Access-Control-Request-Method": "GET"},
        {"Origin": "https://ä.example", "Access-Control-Request-Method": "GET"},
        {"Origin": "https://a.example", "Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "ä"},
    ],
)
def test_preflights_that_are_none(headers: dict[str, str]) -> None:
    """A preflight has an origin and a method, and can be sent back."""
    with pytest.raises(Fault, match="needs the headers Origin and Access-Control-Request-Method") as caught:
        answer_preflight([rule("*", "GET", "*")], headers)
    assert caught.value.code == Code.INVALID_HEADER_VALUE


@pytest.mark.parametrize(
    "stored",
    [b"{", b'{"cors": 1}', b'{"sections": {"\xff": {}}}', b'{"more": ' + b"[" * 16_000],
    ids=["cut", "other", "bytes", "deep"],
)
async def test_properties_that_are_damaged(stored: bytes) -> None:
    """Whoever needs them is told so, whatever is wrong with what the file holds."""
    engine = Engine(None)
    await engine.open()
    await engine.settings.put("service", stored)
    with pytest.raises(Fault, match="The stored properties of the service are damaged"):
        await read_cors_rules(engine)
    await engine.close()


@pytest.mark.skipif(os.name != "posix", reason="capability: elsewhere a port is free at once")
def test_a_server_that_is_started_again_gets_its_port() -> None:
    """Connections that the server has closed keep the port for a minute from others, and not from a server."""
    listener = bind("127.0.0.1", 0, share=False)
    listener.listen()
    address = listener.getsockname()
    with socket.create_connection(address) as client:
        accepted, _ = listener.accept()
        accepted.close()
        assert client.recv(1) == b""
    listener.close()

    again = bind(*address, share=False)
    again.close()


def test_a_port_is_shared_only_if_that_is_asked_for() -> None:
    """Two servers may listen at one address if both say so; otherwise the second one is refused."""
    first = bind("127.0.0.1", 0, share=True)
    port = first.getsockname()[1]
    second = bind("127.0.0.1", port, share=True)
    for each in (first, second):
        each.listen()
    with pytest.raises(OSError, match="in use"):
        bind("127.0.0.1", port, share=False)
    for each in (first, second):
        each.close()
