"""
What a client decompresses, decodes, searches and parses of an answer, and of what others may have written into rows: no
more than an answer of the service, or a property, can have, and by no codec that the server names.
"""

import codecs
import datetime as dt
import json
import re
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from html import unescape
from typing import Any
from uuid import UUID

import msgspec
import pytest

from tableorm import AccessDenied, Database, DecodeError, Mapped, PropertyBag, TableOrmError, Throttled, field
from tableorm.derived.feed import rows as feed_rows
from tableorm.models.manifest import manifest_of
from tableorm.models.marker_rows import CHANGE_KIND
from tableorm.outbox.decision import decision_of
from tableorm.protocol import redaction
from tests.azure.stub import KEY, Answer, row_answer
from tests.security.world import Keyed, Thing, client_of, client_of_bytes, gzipped, memory_below

# A page has 4 MiB of rows; escapes and annotations may make some of that longer.
FAR_TOO_MUCH = 96 * 1024 * 1024


async def test_a_small_answer_does_not_become_large() -> None:
    """An answer of 100 KB that decompresses to 96 MiB is rejected, not decompressed in one piece and believed."""
    compress = zlib.compressobj(9, zlib.DEFLATED, 31)
    body = compress.compress(b'{"value":[') + compress.compress(b" " * FAR_TOO_MUCH) + compress.compress(b"]}")
    body += compress.flush()
    async with client_of(Answer(200, {"Content-Encoding": "gzip"}, body)) as (db, _):
        with pytest.raises(TableOrmError):
            await db.select(Thing).where(Thing.p == "a").all()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, b'{"a":' * 3000),
        (200, b'{"a":' + b"[" * 100_000),
        (200, json.dumps({"PartitionKey": "a", "RowKey": "b", "g": 5, "g@odata.type": "Edm.Guid"}).encode()),
    ],
    ids=["deep error", "deep row", "guid that is a number"],
)
async def test_a_strange_answer_raises_an_error_of_ours(status: int, body: bytes) -> None:
    """JSON that nests deeply or has another type raises TableOrmError: else a write would not be known as in doubt."""
    async with client_of(Answer(status, {"Content-Type": "application/json"}, body)) as (db, _):
        with pytest.raises(TableOrmError):
            await db.get(Thing, p="a", r="b")


CALLS: dict[str, Callable[[Database], Awaitable[object]]] = {
    "tables": lambda db: db.tables(),
    "queues": lambda db: db.queues.list_queues(),
    "blobs": lambda db: db.blobs.delete("container", "name"),
}
ENTITIES = f'<!DOCTYPE q [<!ENTITY a "{"x" * 280}">]><Error><Code>{"&a;" * 130_000}</Code><Message>m</Message></Error>'
BODIES = {
    "utf-16-le": ENTITIES.encode("utf-16-le"),
    "utf-16-be": ENTITIES.encode("utf-16-be"),
    "utf-7": ENTITIES.replace("<!", "+ADwAIQ-").replace("&", "+ACY-").encode(),
}


@pytest.mark.one_of(3)
@pytest.mark.parametrize("named", [True, False], ids=["named", "not named"])
@pytest.mark.parametrize("charset", list(BODIES))
@pytest.mark.parametrize("what", list(CALLS))
async def test_entities_that_a_charset_hides_are_not_expanded(what: str, charset: str, *, named: bool) -> None:
    """A refusal of some hundred bytes in gzip that is not in UTF-8, whether it says so or not, stays small."""
    kind = f"application/xml; charset={charset}" if named else "application/xml"
    headers = {"Content-Type": kind, "Content-Encoding": "gzip"}
    async with client_of(Answer(400, headers, gzipped(BODIES[charset]))) as (db, _):
        with memory_below(20_000_000), pytest.raises(TableOrmError):
            await CALLS[what](db)


@pytest.mark.parametrize("kind", ["application/json", "application/xml", "text/html"])
@pytest.mark.parametrize("what", list(CALLS))
async def test_an_answer_is_not_decoded_by_the_codec_that_it_names(what: str, kind: str) -> None:
    """Python's codec `punycode` takes time with the square of the length: the client looks up no such name."""
    asked = list[str]()

    def find(name: str) -> codecs.CodecInfo | None:
        asked.append(name)
        return None

    codecs.register(find)
    try:
        answer = Answer(400, {"Content-Type": f"{kind}; charset={what}-{kind[-3:]}"}, b"b-a9")
        async with client_of(answer) as (db, _):
            with pytest.raises(TableOrmError):
                await CALLS[what](db)
    finally:
        codecs.unregister(find)
    assert not asked


async def test_entities_of_xml_are_not_expanded() -> None:
    """An answer of some hundred bytes in gzip, 400 KB of references to an entity, does not become 37 MB of text."""
    inner = f"<Queues><Queue><Name>{'&a;' * 130_000}</Name></Queue></Queues><NextMarker/>"
    body = (
        f'<!DOCTYPE q [<!ENTITY a "{"x" * 280}">]><EnumerationResults ServiceEndpoint="">{inner}</EnumerationResults>'
    )
    headers = {"Content-Type": "application/xml", "Content-Encoding": "gzip"}
    async with client_of(Answer(200, headers, gzipped(body.encode()))) as (db, _):
        with memory_below(20_000_000), pytest.raises(TableOrmError, match="document type"):
            await db.queues.list_queues()


async def test_a_blob_is_no_longer_than_was_asked_for() -> None:
    """A range of 4 MiB that a server answers with 40 MB is rejected, and not collected in memory first."""

    async def answer(head: bytes) -> AsyncIterator[bytes]:
        yield BLOB_HEAD
        for _ in range(40):
            yield b"f4240\r\n" + bytes(1_000_000) + b"\r\n"

    async with client_of_bytes(answer, key=KEY) as db:
        with memory_below(20_000_000), pytest.raises(TableOrmError, match="longer than the 4194304 bytes"):
            async with db.blobs.get("container", "name") as stream:
                async for _ in stream.chunks:
                    pass


BLOB_HEAD = (
    b"HTTP/1.1 206 Partial Content\r\nContent-Type: application/octet-stream\r\nx-ms-blob-type: BlockBlob\r\n"
    b'ETag: "a"\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\nContent-Range: bytes 0-4194303/4194304\r\n'
    b"Transfer-Encoding: chunked\r\n\r\n"
)


class Doc(Keyed, table="Docs", partition_key="{p}", row_key="{r}"):
    items: Mapped[list[Any]] = field(factory=list)


class Counted(Keyed, table="Counted", partition_key="{p}", row_key="{r}", kind=None):
    n: Mapped[int]


class Dated(Keyed, table="Counted", partition_key="{p}", row_key="{r}", kind=None):
    n: Mapped[dt.datetime]


class Named(Keyed, table="Counted", partition_key="{p}", row_key="{r}", kind=None):
    n: Mapped[UUID]


@pytest.mark.parametrize("what", ["refusal of a read", "list of queues in UTF-16"])  # the former holds
async def test_a_long_answer_is_not_looked_through(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A refusal of some hundred bytes in gzip, which says 300,000 characters, is shortened before it is searched for
    signatures: its references of HTML are decoded one by one, ten times over.
    """
    looked = 0

    def count(text: str) -> str:
        nonlocal looked
        looked += len(text)
        return unescape(text)

    monkeypatch.setattr(redaction, "unescape", count)
    if what == "refusal of a read":
        text = "&a;" * 100_000
        packed = gzipped(json.dumps({"odata.error": {"code": "InvalidInput", "message": {"value": text}}}).encode())
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        answer = Answer(400, headers, packed)
    else:
        text = f'<!DOCTYPE q [<!ENTITY a "x">]><EnumerationResults>{"&a;" * 100_000}</EnumerationResults>'
        headers = {"Content-Type": "application/xml; charset=utf-16", "Content-Encoding": "gzip"}
        answer = Answer(200, headers, gzipped(text.encode("utf-16")))
    async with client_of(answer) as (db, _):
        with pytest.raises(TableOrmError):
            await (db.get(Thing, p="p", r="r") if what == "refusal of a read" else db.queues.list_queues())
    assert looked < 100_000


@pytest.mark.parametrize(
    "members",
    [
        {"n@odata.type": "Edm." + "x" * 100_000, "n": "1"},
        {"n@odata.type": "Edm.Double", "n": "x" * 100_000},
        {"n@odata.type": "Edm.Int64", "n": "9" * 100_000},
        {"n@odata.type": "Edm.DateTime", "n": "2" * 100_000},
        {"n@odata.type": "Edm.Guid", "n": "x" * 100_000},
        {"n": ["x" * 100_000]},
        {"n": "\ud800" + "x" * 100_000},
    ],
)
async def test_what_a_row_says_does_not_fill_the_error(members: dict[str, Any]) -> None:
    """The error of a value that cannot be read quotes no more than its start, however long it or its type is."""
    async with client_of(row_answer(id="a", **members)) as (db, _):
        bag = await db.get(PropertyBag.key("Counted", "p", "r"))
        for model in (Counted, Dated, Named):
            with pytest.raises(DecodeError) as caught:
                await db.get(model, p="p", r="r")
            assert len(str(caught.value)) < 500
    with pytest.raises(DecodeError) as caught:
        bag["n"]
    assert len(str(caught.value)) < 500


async def test_json_in_a_property_does_not_become_many_objects() -> None:
    """JSON in a property is parsed if it has 32,768 characters, as many as a String can have, and not with more."""
    text = "[" + "1," * 16_000 + "1]"
    long = "[" + "[]," * 300_000 + "[]]"
    items = iter([text.ljust(32_768), text.ljust(32_769), long])
    async with client_of(lambda _: row_answer(EntityType="Doc", items=next(items))) as (db, _):
        assert (await db.get(Doc, p="p", r="r")).items == [1] * 16_001
        with pytest.raises(DecodeError, match="JSON text of 32,769 characters"):
            await db.get(Doc, p="p", r="r")
        with memory_below(10 * len(long)), pytest.raises(DecodeError, match="JSON text of 900,004 characters"):
            await db.get(Doc, p="p", r="r")


def test_a_manifest_is_as_long_as_a_string() -> None:
    """A manifest of 32,768 characters is read, and a longer one is damage, which is not parsed."""
    row = {"PartitionKey": "p", "RowKey": "r", "EntityType": "Doc"}
    manifest = json.dumps({"a": "x" * (32_768 - 9)})
    assert len(manifest) == 32_768
    assert list(manifest_of({**row, "_ix": manifest})) == ["a"]
    with pytest.raises(DecodeError, match="which is not a manifest"):
        manifest_of({**row, "_ix": manifest + " "})


async def test_the_bytes_of_a_blob_are_not_looked_at() -> None:
    """A blob may be XML of any number of elements."""
    content = b"<a/>" * 100_000
    span = f"bytes 0-{len(content) - 1}/{len(content)}"
    headers = {"Content-Type": "application/xml", "x-ms-blob-type": "BlockBlob", "Content-Range": span}
    headers |= {"ETag": '"a"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
    async with client_of(Answer(206, headers, content)) as (db, _):
        found = await db.blobs.read("container", "name")
    assert found == content


@pytest.mark.parametrize(("status", "error"), [(403, AccessDenied), (503, Throttled)])
async def test_a_page_of_a_proxy_is_told_by_its_status(status: int, error: type[Exception]) -> None:
    """A refusal that is not the service's, is what its status says."""
    page = "<html>" + '<div class="a" id="b"><a href="c" class="d">e</a></div>' * 400 + "</html>"
    async with client_of(Answer(status, {"Content-Type": "text/html"}, page.encode())) as (db, _):
        with pytest.raises(error):
            await db.queues.list_queues()


def test_a_change_of_a_feed_does_not_become_many_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Together its pieces are no longer than a row can be; otherwise they are not parsed, and the row is damaged."""
    parsed: list[str] = []
    monkeypatch.setattr(feed_rows, "_decode", parsed.append)
    monkeypatch.setattr(feed_rows, "_is_feed", bool)
    for length, times in ((600_000, 0), (60_000, 1)):
        row = {"PartitionKey": "p", "RowKey": "r", "EntityType": CHANGE_KIND, "Feed": "a", "Changes": "[" * length}
        with pytest.raises(DecodeError, match="is not a change of a change feed"):
            feed_rows.parse_change(row)
        assert len(parsed) == times


@pytest.mark.parametrize("name", ["Work", "Progress"])
def test_a_decision_row_does_not_become_many_objects(name: str) -> None:
    """Neither of its JSON texts is parsed if it is longer than a property can be."""
    work = msgspec.json.encode({"format": 1, "works": []}).decode()
    row = {"PartitionKey": "p", "RowKey": "~o_" + "a" * 12, "State": "committed", "Work": work, "Progress": "[]"}
    row[name] += " " * 40_000
    with pytest.raises(DecodeError, match="it is longer than a String"):
        decision_of(row)


async def test_lists_are_asked_for_in_pages_that_are_parsed_quickly() -> None:
    """However many items the service would give at once, no more than 500 are asked for."""
    empty = b"<EnumerationResults><Queues/><Containers/><Blobs/></EnumerationResults>"
    async with client_of(Answer(200, {"Content-Type": "application/xml"}, empty)) as (db, stub):
        await db.queues.list_queues()
        await db.blobs.list_containers()
        await db.blobs.list_blobs("container")
        await db.blobs.list_blobs("container", limit=7)

    asked = [re.search(r"maxresults=([0-9]+)", request.target) for request in stub.requests]
    assert [found and found[1] for found in asked] == ["500", "500", "500", "7"]
