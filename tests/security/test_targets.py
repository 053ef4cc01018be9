"""
Targets of requests: what anybody may send there takes no longer to read than to copy.
"""

import encodings.idna
import gzip
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest

from tableorm.protocol.codes import Code, Fault
from tableorm_local.server import Server
from tableorm_local.server.wire import addressing, options
from tableorm_local.server.wire.addressing import Place, part_path, place_of
from tests.local.server.client import Api, Wire, head
from tests.security.test_bodies import BATCH, batch_of


@pytest.mark.parametrize("text", ["%", "%4", "%zz", "%%41", "%41%-1", "%" * 20_000])
async def test_percent_signs_that_begin_no_escape_are_not_decoded(
    server: Server, api: Api, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """A target with such a percent sign is rejected: to decode 59,000 of them took 20 ms, in path and query each."""
    decoded = list[str]()

    def note(module: Any, name: str) -> None:
        decode = getattr(module, name)

        def noted(given: Any, **how: Any) -> Any:
            decoded.append(str(given)[:80])
            return decode(given, **how)

        monkeypatch.setattr(module, name, noted)

    note(options, "parse_qsl")
    note(addressing, "unquote_to_bytes")
    for target in (f"/{text}", f"/Tab()?a={text}", f"/Tab()?{text}"):
        wire = await Wire.connect(server, head("GET", target))
        assert await wire.status() == 400
        await wire.close()

    assert decoded == []


@pytest.mark.parametrize("table", ["%54ab", "Tab%28%29"])
async def test_percent_signs_that_begin_an_escape_are_decoded(server: Server, api: Api, table: str) -> None:
    """A target may have any character as an escape."""
    wire = await Wire.connect(server, head("GET", f"/{table}"))
    assert await wire.status() == 200
    await wire.close()


# Marks in an order that is not the normal one: to put 8,000 of them in order takes 0.2 seconds.
MARKS = "\u0344" * 1_500 + "\u0316" * 1_500
HOSTS = [MARKS, "xn--" + "b" * 5_000, "%CC%84" * 1_000]


@pytest.fixture
def normalised(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that somebody brings into a normal form, as comparing names of machines needs."""
    found = list[str]()
    normalize, nameprep = unicodedata.normalize, encodings.idna.nameprep

    def note(form: Any, text: str) -> str:
        found.append(text[:20])
        return normalize(form, text)

    def note_name(label: str) -> str:
        found.append(label[:20])
        return nameprep(label)

    monkeypatch.setattr(unicodedata, "normalize", note)
    monkeypatch.setattr(encodings.idna, "nameprep", note_name)
    return found


@pytest.mark.parametrize(
    "host", [*HOSTS, "\u0316\u0344", "\u212a", "h" * 254, "h:1:2", "h:123456", "a@h", "[::1", "a]b", ""]
)
def test_a_host_in_a_url_has_only_what_names_of_machines_have(normalised: list[str], host: str) -> None:
    """The host in a target, or in the URL of a part, is not looked at further if it cannot be the name of a machine."""
    place = Place(account="a", secondary=False, path="/a/$batch", resource_path="/$batch", root="http://h/a")
    readers: list[Callable[[str], object]] = [
        lambda url: place_of(lambda name: (name, False), "http", "h", url),
        lambda url: part_path(place, url),
    ]
    for read in readers:
        with pytest.raises(Fault) as refused:
            read(f"http://{host}/a/Tab")
        assert refused.value.code == Code.INVALID_URI

    assert normalised == []


@pytest.mark.parametrize("is_query", [False, True], ids=["write", "query"])
async def test_the_host_in_a_part_is_not_normalised(api: Api, normalised: list[str], *, is_query: bool) -> None:
    """The host in the URL of a part is read by its bytes: 16 KiB of marks kept the event loop busy for 0.2 seconds."""
    url = f"http://{MARKS}/Tab(PartitionKey='p',RowKey='{is_query}')"
    if is_query:
        part = f"Content-Type: application/http\r\n\r\nGET {url} HTTP/1.1\r\n\r\n"
        body = b"--b\r\n" + part.encode() + b"\r\n--b--\r\n"
    else:
        body = batch_of([f"PUT {url} HTTP/1.1\r\n\r\n{{}}".encode()])
    reply = await api("POST", "/$batch", gzip.compress(body), headers=BATCH)

    assert reply.status == 202
    assert b"x-ms-error-code: InvalidUri" in reply.body
    assert normalised == []


@pytest.mark.parametrize("host", HOSTS, ids=["marks", "encoded", "escaped"])
@pytest.mark.parametrize(
    "sent",
    [
        "GET /{} HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /devstoreaccount1/Tab()?sv={} HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /devstoreaccount1/Tab HTTP/1.1\r\nHost: {}\r\n\r\n",
        "GET /devstoreaccount1/Tab HTTP/1.1\r\nHost: localhost\r\nOrigin: http://{}\r\n\r\n",
        "OPTIONS /devstoreaccount1/Tab HTTP/1.1\r\nHost: h\r\nAccess-Control-Request-Method: GET\r\nOrigin: {}\r\n\r\n",
        "GET /devstoreaccount1/Tab HTTP/1.1\r\nHost: localhost\r\nx-ms-date: {}\r\n\r\n",
        "GET /devstoreaccount1/Tab HTTP/1.1\r\nHost: localhost\r\nAuthorization: SharedKey {}:a\r\n\r\n",
    ],
    ids=["path", "query", "host", "origin", "preflight", "date", "authorization"],
)
@pytest.mark.usefixtures("api")
async def test_nothing_in_a_head_is_normalised(server: Server, normalised: list[str], sent: str, host: str) -> None:
    """What the head of a request has, but the host of an absolute URL, is brought into no normal form."""
    wire = await Wire.connect(server, sent.format(host).encode())
    status = await wire.status()
    await wire.close()

    assert 400 <= status < 500
    assert normalised == []
