"""
Logs: neither signature nor key stands in the access log or in the log of errors, however the URL with it was mistaken.
"""

import base64
import html
import io
import json
import logging
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest

from tableorm.protocol import redaction
from tableorm.protocol.redaction import without_secrets
from tableorm_local.server import serve
from tableorm_local.server.dispatch import Service
from tableorm_local.server.front.access_log import show_target
from tableorm_local.server.security.accounts import Account, Accounts
from tests.local.server.client import Wire, root_of

SECRET = "S3cr3t+S1gnatur3/abc="
SENT = quote(SECRET, safe="")
KEY = base64.b64encode(bytes(range(64))).decode()
PARTS = ("S3cr3t", "S1gnatur3", *(KEY[n : n + 8] for n in range(0, 88, 8)))

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
    f'/a/Tab?sig="{SECRET}"',
    f"/a/Tab?sig='{SENT}'",
    f"/a/Tab?%73ig=%22{SENT}",
    f'/a/Tab?{{"sig":"{SECRET}","sv":1}}',
    f'/a/Tab?{{\\"sig\\": \\"{SECRET}\\"}}',
    f"/a/Tab?sig[]={SENT}",
    f"/a/Tab?s%00ig={SENT}",
    f"/a/Tab?s%0aig={SENT}",
    f"/a/Tab?Authorization=SharedKey a:{SENT}",
    f"/a/Tab?x=SharedKeyLite%20a:{SENT}",
    f"http://account:{KEY}@host/a/Tab",
    f"http://{KEY}@host/a/Tab",
    f"/a/Tab;AccountKey={KEY}",
    f"/a/Tab?AccountKey={SENT}",
    f"/a/Tab?x={KEY}",
    f"/a/Tab?x={quote(KEY, safe='')}",
    f"/a/Tab?x={quote(quote(KEY, safe=''))}",
    f"/a/Tab?x={base64.urlsafe_b64encode(bytes(range(64))).decode().rstrip('=')}",
]


@pytest.mark.parametrize("target", MISTAKES)
def test_no_signature_is_shown(target: str) -> None:
    """Whatever stands before it, and however often it is encoded, the signature is left out, and the rest is shown."""
    shown = without_secrets(target)

    assert not any(part in shown for part in PARTS), shown
    assert "REDACTED" in shown
    assert "a/Tab" in shown or "%" not in shown


def test_what_is_no_signature_is_shown_as_it_was_sent() -> None:
    """A target without a signature is not changed, nor is anything else of one that has a signature where it should."""
    plain = "/a/Tab(PartitionKey='50%25',RowKey='x%26amp%3B')?$filter=A%20eq%20'%2526'&timeout=3"

    assert without_secrets(plain) == plain
    assert without_secrets(f"{plain}&sig={SENT}&se=2") == f"{plain}&sig=REDACTED&se=2"


def test_the_path_of_a_file_is_shown() -> None:
    """A path of many words is no key, though all of its characters may stand in one."""
    text = "cannot read /var/lib/tableorm/accounts/payroll_and_pensions/hr.tables"

    assert without_secrets(text) == text


@pytest.mark.parametrize("levels", [1, 8, 40, 4_000])
def test_a_target_that_is_encoded_often_is_read_in_bounded_time(levels: int) -> None:
    """However often a signature is encoded, it is found or the target is not shown."""
    sent = f"/a/Tab?%{'25' * levels}73ig={SENT}"
    mixed = "/a/Tab?" + "%2%35" * levels + f"73ig={SENT}"
    for target in (sent, mixed):
        assert not any(part in without_secrets(target) for part in PARTS)


async def logged(*targets: str, **headers: str) -> list[dict[str, Any]]:
    """The entries of the access log for these targets, in any order."""
    log = io.BytesIO()
    async with serve(None, port=0, access_log=log) as server:
        for target in targets:
            wire = await Wire.connect(server)
            lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()]
            wire.writer.write(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n{''.join(lines)}\r\n".encode())
            assert await wire.status() >= 400
            await wire.close()
    return list(map(json.loads, log.getvalue().splitlines()))


ROOT = "/devstoreaccount1"
TARGETS = [
    *(target.replace(" ", "+").replace("/a/Tab", f"{ROOT}/Tab") for target in MISTAKES),
    f"{ROOT}/Tab?{KEY}",
    f"{ROOT}/Tab?{SENT}={SENT}",
    f"{ROOT}/Tab?timeout={SENT}&$top={KEY}&comp={SECRET}&sv={KEY}",
    f"{ROOT}/Tab?$filter=A%20eq%20'{SENT}'&$select={SECRET}&NextPartitionKey={SENT}",
    f"{ROOT}/{KEY}",
    f"{ROOT}/{SENT}",
    f"{ROOT}/{KEY[:44]}",  # what may be the name of a table
    f"{ROOT}/{KEY[:44]}(PartitionKey='a',RowKey='b')",
    f"{ROOT}/{KEY[:44]}/Tab",
    f"{ROOT}/Tables('{KEY[:44]}')",
    f"{ROOT}/Tab/{KEY}",
    f"{ROOT}/Tab/sv=1&{SENT}",
    f"{ROOT}/Tab,{SECRET}",
    f"{ROOT}/Tables('{SECRET}')",
    f"{ROOT}/Tab(PartitionKey='a',RowKey='{KEY}')",
    f"{ROOT}/Tab(PartitionKey='sv=1&sig={SENT}',RowKey='b')",
    f"{ROOT}/Tab(PartitionKey='{SENT}',{SECRET}='b')",
    f"/{KEY}",
    f"/{SECRET}{ROOT}",
    f"/other/{SECRET}",
    f"http://account:{KEY}@host{ROOT}/Tab",
]


async def test_the_access_log_shows_no_secret() -> None:
    """Whatever place of a target a signature or a key is in, the entry of the request does not show it."""
    entries = await logged(*TARGETS)

    assert len(entries) == len(TARGETS)
    assert [text for text in map(json.dumps, entries) if any(part in text for part in PARTS)] == []


@pytest.mark.parametrize("value", [f'sig="{SECRET}"', f"x/1.0 {KEY}", f"SharedKey a:{KEY}", f"a=b;{SECRET}", KEY])
async def test_the_access_log_shows_no_secret_of_a_header(value: str) -> None:
    """Headers that are logged show none either."""
    (entry,) = await logged(f"{ROOT}/Tab", User_Agent=value, x_ms_client_request_id=value.replace(" ", "_"))

    assert not any(part in json.dumps(entry) for part in PARTS)


SHOWN = {
    f"{ROOT}/Tab": f"{ROOT}/Tab",
    f"{ROOT}/Tab()?%24filter=A%20eq%20'x'&timeout=3&%24top=5": f"{ROOT}/Tab?$filter=REDACTED&timeout=3&$top=5",
    f"{ROOT}/Tab?comp=acl&se=2030-01-01T00%3A00Z&sp=raud": f"{ROOT}/Tab?comp=acl&se=2030-01-01T00:00Z&sp=raud",
    f"{ROOT}/Tab?spk=a&x=1&sig={SENT}": f"{ROOT}/Tab?spk=REDACTED&REDACTED&sig=REDACTED",
    f"{ROOT}/Tab(PartitionKey=%27a%20b%27,RowKey='it''s')": f"{ROOT}/Tab(PartitionKey='a%20b',RowKey='it%27%27s')",
    f"{ROOT}/Tables('Tab')": f"{ROOT}/Tables('Tab')",
    f"{ROOT}/$batch": f"{ROOT}/$batch",
    f"{ROOT}/?restype=service&comp=properties": f"{ROOT}/?restype=service&comp=properties",
    f"http://localhost{ROOT}/Tables": f"{ROOT}/Tables",
    f"{ROOT}/Tab/more": f"{ROOT}/Tab/REDACTED",
    f"{ROOT}/Tab;more": f"{ROOT}/REDACTED",
    "/other/Tab": "/REDACTED",
}


async def test_the_access_log_shows_what_was_asked_for() -> None:
    """An entry has the account, the table, the keys, and those parameters that tell what was asked for."""
    entries = await logged(*SHOWN)

    assert dict(zip(SHOWN, [entry["url"] for entry in entries], strict=True)) == SHOWN
    (entry,) = await logged(f"{ROOT}/Tab", User_Agent="azsdk-python-data-tables/12.4.0 Python/3.11 (Linux-6.1)")
    assert entry["agent"] == "azsdk-python-data-tables/12.4.0 Python/3.11 (Linux-6.1)"


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

    (record,) = caplog.records
    text = logging.Formatter().format(record)
    assert not text.endswith("\n")
    assert "LookupError: cannot read /a/Tab?sig=REDACTED" in text
    assert not any(part in text for part in PARTS)


LONG_NUMBER = f"/devstoreaccount1/Tab()?x=%26%23{'9' * 4_400}&sig={SENT}"


async def test_no_target_keeps_its_request_out_of_the_access_log(caplog: pytest.LogCaptureFixture) -> None:
    """A target that names a character by thousands of digits has its entry, like any other, and no signature in it."""
    log = io.BytesIO()
    async with serve(None, port=0, access_log=log) as server:
        wire = await Wire.connect(server, f"GET {LONG_NUMBER} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert await wire.status() == 403
        await wire.close()

    entry = json.loads(log.getvalue())
    assert entry["status"] == 403
    assert entry["url"] == "/devstoreaccount1/Tab?REDACTED"
    assert caplog.records == []


def test_an_error_that_quotes_such_a_target_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The log of errors takes such a text too, without what it quotes."""
    logging.getLogger("tableorm.server").error("cannot read %s", LONG_NUMBER)

    (message,) = caplog.messages
    assert message.endswith("sig=REDACTED")


def test_an_error_without_an_exception_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Who logs an exception where there is none still gets the message, without what it quotes."""
    logging.getLogger("tableorm.server").error("cannot read sig=%s", SENT, exc_info=(None, None, None))

    assert caplog.messages == ["cannot read sig=REDACTED"]


def test_a_long_text_is_decoded_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of 60 KB is read ten times at most, however often it is encoded."""
    sizes = list[int]()

    def count(text: str) -> str:
        sizes.append(len(text))
        return html.unescape(text)

    monkeypatch.setattr(redaction, "unescape", count)
    text = "/a?&" + "amp;" * 12 + "&a" * 30_000 + f"&sig={SENT}"

    assert without_secrets(text).startswith("REDACTED")
    assert len(sizes) <= 10


def test_a_target_of_many_parameters_is_shown_in_part() -> None:
    """However many parameters a target has, its entry is not much longer than it: the rest is shown as one of them."""
    accounts = Accounts([Account.development()])
    target = "/devstoreaccount1/Tab?" + "&".join(["$top=1"] * 3 + [""] * 3_000)

    shown = show_target(accounts.find, "localhost", target)

    assert shown.startswith("/devstoreaccount1/Tab?$top=1&$top=1&$top=1&REDACTED")
    assert len(shown) < 1_000
