"""
Logs: no signature stands in the access log or in the log of errors, however the URL with it was mistaken.
"""

import html
import io
import json
import logging
from urllib.parse import quote

import aiohttp
import pytest

from tableorm.protocol import redaction
from tableorm.protocol.redaction import without_signature
from tableorm_local.server import serve
from tableorm_local.server.dispatch import Service
from tableorm_local.server.front.access_log import show_target
from tests.local.server.client import Wire, root_of

SECRET = "S3cr3t+S1gnatur3/abc="
SENT = quote(SECRET, safe="")
PARTS = ("S3cr3t", "S1gnatur3")

MISTAKES = [
    f"/a/Tab?sv=1&sig={SENT}",
    f"/a/Tab?sv=1&amp;sig={SENT}&amp;se=2",
    f"/a/Tab?sv=1&amp;amp;sig={SENT}",
    f"/a/Tab%3Fsv=1&sig={SENT}",
    f"/a/Tab%3Fsv%3D1%26sig%3D{SENT}",
    f"/a/Tab?sv=1&%73ig={SENT}",
    f"/a/Tab?sv=1&%2573ig={SENT}",
    f"/a/Tab?sv=1&%252573ig%25253D{SENT}",
    "/a/Tab?" + "%" + "25" * 300 + f"73ig={SENT}",
    f"/a/Tab?sv=1%2526sig%253D{quote(SENT)}",
    f"/a/Tab?sv=1;sig={SENT}",
    f"/a/Tab;sig={SENT}",
    f"/a/Tab?sv=1??sig={SENT}",
    f"/a/Tab?sv=1? sig ={SENT}",
    f"/a/Tab?sv=1&+SIG+={SENT}",
    f"/a/Tab?sv=1&SiG={SECRET}",
    f"/a/Tab#sig={SENT}",
    f"/a/Tab?url=https%3A%2F%2Fx%2FT%3Fsig%3D{quote(SENT)}",
    f"/a/Tab?sig%09={SENT}",
    f"/a/Tab?%2%3573ig={SENT}",
    f"/a/Tab?sv=1&sig=&sig={SENT}",
    f"/a/Tab?sv=1&#x26;sig&#61;{SENT}",
    f"/a/Tab?sv=1%00sig={SENT}",
    f"/a/Tab?sv=1\\u0026sig={SENT}",
    f"/a/Tab?sig:{SENT}",
    f"/a/Tab?x=%26%23{'9' * 4_301}&%2573ig={SENT}",
    f"/a/Tab?x=1&#{'0' * 4_301}115;ig={SENT}",
    f"http://x/a/Tab?sig={SENT}",
]


@pytest.mark.parametrize("target", MISTAKES)
def test_no_signature_is_shown(target: str) -> None:
    """Whatever stands before it, and however often it is encoded, the signature is left out, and the rest is shown."""
    shown = without_signature(target)

    assert not any(part in shown for part in PARTS), shown
    assert "REDACTED" in shown
    assert "a/Tab" in shown or "%" not in shown


def test_what_is_no_signature_is_shown_as_it_was_sent() -> None:
    """A target without a signature is not changed, nor is anything else of one that has a signature where it should."""
    plain = "/a/Tab(PartitionKey='50%25',RowKey='x%26amp%3B')?$filter=A%20eq%20'%2526'&timeout=3"

    assert without_signature(plain) == plain
    assert without_signature(f"{plain}&sig={SENT}&se=2") == f"{plain}&sig=REDACTED&se=2"


@pytest.mark.parametrize("levels", [1, 8, 40, 4_000])
def test_a_target_that_is_encoded_often_is_read_in_bounded_time(levels: int) -> None:
    """However often a signature is encoded, it is found or the target is not shown."""
    sent = f"/a/Tab?%{'25' * levels}73ig={SENT}"
    mixed = "/a/Tab?" + "%2%35" * levels + f"73ig={SENT}"
    for target in (sent, mixed):
        assert not any(part in without_signature(target) for part in PARTS)


@pytest.mark.parametrize("where", ["?sv=1&amp;sig=", "%3Fsv=1&%2573ig=", ";sig="])
async def test_the_access_log_shows_no_signature(where: str) -> None:
    """The entry of a request with a mistaken URL has no signature."""
    log = io.BytesIO()
    async with serve(None, port=0, access_log=log) as server:
        wire = await Wire.connect(server)
        wire.writer.write(f"GET /devstoreaccount1/Tab{where}{SENT} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert await wire.status() >= 400
        await wire.close()

    assert not any(part in log.getvalue().decode() for part in PARTS)
    assert "REDACTED" in json.loads(log.getvalue())["url"]


async def test_the_log_of_errors_shows_no_signature(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, session: aiohttp.ClientSession
) -> None:
    """An unexpected error whose text quotes the target is logged with its traceback, without the signature."""

    def fail(*_: object) -> None:
        raise LookupError(f"cannot read {'/a/Tab?%2573ig='}{SENT}")

    monkeypatch.setattr(Service, "answer", fail)
    async with (
        serve(None, port=0) as server,
        session.get(f"{root_of(server)}/devstoreaccount1/Tab?sig={SENT}") as reply,
    ):
        assert reply.status == 500

    text = "\n".join(logging.Formatter().format(record) for record in caplog.records)
    assert "LookupError: cannot read /a/Tab?sig=REDACTED" in text
    assert not any(part in text for part in PARTS)


LONG_NUMBER = f"/devstoreaccount1/Tab()?x=%26%23{'9' * 4_400}&sig={SENT}"


async def test_no_target_keeps_its_request_out_of_the_access_log(caplog: pytest.LogCaptureFixture) -> None:
    """A target that names a character by thousands of digits has its entry, like any other, and no signature in it."""
    log = io.BytesIO()
    async with serve(None, port=0, access_log=log) as server:
        wire = await Wire.connect(server)
        wire.writer.write(f"GET {LONG_NUMBER} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert await wire.status() == 403
        await wire.close()

    entry = json.loads(log.getvalue())
    assert entry["status"] == 403
    assert entry["url"].startswith("/devstoreaccount1/Tab()?x=") and SENT not in entry["url"]
    assert caplog.records == []


def test_an_error_that_quotes_such_a_target_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The log of errors takes such a text too, without what it quotes."""
    logging.getLogger("tableorm.server").error("cannot read %s", LONG_NUMBER)

    (message,) = caplog.messages
    assert message.endswith("sig=REDACTED")


async def test_a_long_target_is_decoded_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a target of 60 KB only as much is decoded as the log could show, however often it is encoded."""
    sizes = list[int]()

    def count(text: str) -> str:
        sizes.append(len(text))
        return html.unescape(text)

    monkeypatch.setattr(redaction, "unescape", count)
    target = "/a?&" + "amp;" * 9 + "&a" * 30_000 + f"&sig={SENT}"

    shown = show_target(target)

    assert shown.startswith("/a?&") and SENT not in shown
    assert 0 < sum(sizes) <= len(target)
