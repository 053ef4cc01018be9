"""
What a client parses of a hostile server's answer: a few kilobytes of gzip do not become millions of objects, each of
which takes time in which nothing else runs and no time-out ends the call.
"""

import json
import re
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from tableorm import AccessDenied, Database, DecodeError, RetryPolicy, TableOrmError, Throttled, connect
from tableorm.derived.feed import rows as feed_rows
from tableorm.models.marker_rows import CHANGE_KIND
from tableorm.outbox.decision import decision_of
from tableorm.protocol.codes import Fault
from tableorm.stores import Operation, Verb
from tableorm_azure import faults
from tableorm_azure.answers import LONGEST_ANSWER, find_excess, longest_answer
from tests.azure.stub import KEY, Answer, Request, Stub

Call = Callable[[Database], Awaitable[object]]


async def read_blob(db: Database) -> None:
    async with db.blobs.get("container", "name"):
        pass


async def list_tables(db: Database) -> None:
    await db.tables()


async def transact(db: Database) -> None:
    rows = [{"PartitionKey": "p", "RowKey": row_key} for row_key in "ab"]
    await db.store.transact("Tab", [Operation(Verb.INSERT, row) for row in rows])


XML: dict[str, Call] = {
    "queues": lambda db: db.queues.list_queues(),
    "containers": lambda db: db.blobs.list_containers(),
    "blobs": lambda db: db.blobs.list_blobs("container"),
    "messages": lambda db: db.queues.take("queue", 32),
    "peeked": lambda db: db.queues.peek("queue", 32),
    "length": lambda db: db.queues.length("queue"),
    "put": lambda db: db.queues.put("queue", b"x"),
    "policies": lambda db: db.policies("Tab").list(),
    "uploaded": lambda db: db.blobs.put("container", "name", b"x"),
}
ROOTS = {"queues": "Queues", "containers": "Containers", "blobs": "Blobs"}
CROWDS = {
    "elements": "<a/>" * 700_000,
    "items": "<Blob/>" * 100_000,
    "nested items": "<Blob><Name>a</Name><Properties/><Tags><TagSet>" + "<a/>" * 20_000 + "</TagSet></Tags></Blob>",
    "levels": "<a>" * 100_000 + "</a>" * 100_000,
    "attributes": "<a " + " ".join(f'b{number}=""' for number in range(50_000)) + "/>",
    "namespace": f'<a xmlns="{"n" * 200_000}">{"<b/>" * 500}</a>',
    "short namespace": f'<Blob xmlns="{"n" * 900}">{"<a/>" * 400}</Blob>' * 100,
    "line ends": "<a>" + "\n" * 4_500_000 + "</a>",
}


def gzip(body: bytes, kind: str, status: int = 200) -> Answer:
    compress = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = compress.compress(body) + compress.flush()
    headers = {"Content-Type": kind, "Content-Encoding": "gzip", "ETag": '"a"'}
    return Answer(status, headers, packed)


def xml(call: str, inner: str) -> bytes:
    inner = f"<{ROOTS[call]}>{inner}</{ROOTS[call]}>" if call in ROOTS else inner
    return f'<?xml version="1.0"?><EnumerationResults ServiceEndpoint="">{inner}</EnumerationResults>'.encode()


async def measure(answer: Answer, call: Call, match: str) -> int:
    """Return the bytes that the client took, at most, for an answer that it refuses."""
    async with Stub() as stub:
        stub.handler = lambda _: answer
        async with connect(
            stub.url, key=KEY, timeout=5, retry=RetryPolicy(attempts=1), queues=stub.url, blobs=stub.url
        ) as db:
            tracemalloc.start()
            try:
                with pytest.raises((TableOrmError, Fault), match=match):
                    await call(db)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
    return peak


@pytest.mark.parametrize("call", list(XML))
async def test_xml_does_not_become_many_elements(call: str) -> None:
    """An answer of 3 KB in gzip, of 700,000 elements, is refused before the SDK parses it, whatever was asked."""
    body = xml(call, CROWDS["elements"])

    assert await measure(gzip(body, "application/xml"), XML[call], "more elements than any") < 5 * len(body)


@pytest.mark.parametrize("status", [400, 404, 503])
async def test_a_refusal_does_not_become_many_elements(status: int) -> None:
    """A refusal is as small as any, also where the answer would be a blob, which is not parsed."""
    body = f"<Error>{'<a/>' * 100_000}</Error>".encode()

    for call in (*XML.values(), read_blob):
        assert await measure(gzip(body, "application/xml", status), call, r"\S") < 5 * len(body)


@pytest.mark.parametrize("crowd", [each for each in CROWDS if each != "elements"])
async def test_a_list_has_nothing_that_takes_a_parser_long(crowd: str) -> None:
    """Neither items, levels, attributes, names of namespaces nor pieces of text are more than those of the service."""
    body = xml("blobs", CROWDS[crowd])

    assert await measure(gzip(body, "application/xml"), XML["blobs"], "answer has more") < 10_000_000


@pytest.mark.parametrize("kind", ["application/json", "application/xml", "text/xml+json"])
@pytest.mark.parametrize("value", ["[]", "{}", "1", '"\\n\\n\\n\\n"'])
async def test_json_does_not_become_many_values(kind: str, value: str) -> None:
    """A list of tables of very many values is refused, also as JSON that is called XML, which the SDK parses too."""
    body = b'{"value":[' + f"{value},".encode() * 100_000 + b"1]}"

    assert await measure(gzip(body, kind), list_tables, "more values than any") < 5 * len(body)


@pytest.mark.parametrize(
    "call",
    [transact, XML["messages"], XML["put"], read_blob, list_tables],
    ids=["rows", "take", "put", "blob", "tables"],
)
async def test_an_answer_is_no_longer_than_one_to_such_a_request(call: Call) -> None:
    """Answers to all but reads of rows and blobs are not read to the length of a page of rows."""
    answer = gzip(b" " * 20_000_000, "application/xml", 404 if call is read_blob else 200)

    assert await measure(answer, call, "is longer than") < 20_000_000


BLOB = (
    "<Blob><Name>{}</Name><Properties>"
    + "".join(f"<Property-{number}>Mon, 01 Jan 2024 00:00:00 GMT</Property-{number}>\r\n" for number in range(40))
    + "<Content-MD5>AAAAAAAAAAAAAAAAAAAAAA==</Content-MD5></Properties><Metadata>"
    + "<a>=</a>" * 80
    + "</Metadata></Blob>"
)
MESSAGE = (
    "<QueueMessage><MessageId>1</MessageId><PopReceipt>x==</PopReceipt><MessageText>{}</MessageText></QueueMessage>"
)
TABLE = {"odata.type": "a:b", "odata.id": "https://a/b(1,2)", "odata.editLink": "T('a')", "TableName": "Tab"}


@pytest.mark.parametrize(
    ("url", "status", "body"),
    [
        ("http://h/a/c?restype=container&comp=list", 200, xml("blobs", BLOB.format("x=y&amp;z") * 500)),
        ("http://h/a/q/messages?numofmessages=32", 200, xml("", MESSAGE.format("\r\n" * 32_768) * 32)),
        ("http://h/a/q/messages?numofmessages=32", 200, xml("", MESSAGE.format("&quot;" * 65_536) * 32)),
        ("http://h/a/q/messages", 200, xml("", MESSAGE.format('&lt;a xmlns="http://x" b="c"&gt;' * 2000))),
        ("http://h/a/q/messages", 200, xml("", MESSAGE.format('{"a": [1, 2], "b": "=\\n="}' * 2500))),
        ("http://h/a/Tables", 200, json.dumps({"value": [TABLE] * 1000}).encode()),
        ("http://h/a/c/b", 502, b"<!DOCTYPE html><html>" + b'<p class="a">Bad gateway</p>\n' * 90 + b"</html>"),
        ("http://h/a/c/b", 201, b""),
    ],
    ids=["blobs", "line ends", "quotes", "markup", "json", "tables", "gateway", "nothing"],
)
def test_the_largest_answers_of_the_service_are_parsed(url: str, status: int, body: bytes) -> None:
    """Full pages with much metadata, messages of nothing but line ends, and a gateway's page are not refused."""
    assert find_excess(body, url, status) == ""


async def test_the_bytes_of_a_blob_are_not_looked_at() -> None:
    """A blob may be XML of any number of elements."""
    content = b"<a/>" * 100_000

    def answer(request: Request) -> Answer:
        span = f"bytes 0-{len(content) - 1}/{len(content)}"
        headers = {"Content-Type": "application/xml", "x-ms-blob-type": "BlockBlob", "Content-Range": span}
        return Answer(206, {**headers, "ETag": '"a"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}, content)

    async with Stub() as stub:
        stub.handler = answer
        async with connect(stub.url, key=KEY, timeout=5, blobs=stub.url) as db:
            found = await db.blobs.read("container", "name")
    assert found == content


def test_a_container_may_have_the_name_of_messages() -> None:
    """A list of its blobs may be as long as that of any other container."""
    blobs = "<Blob><Name>a</Name><Properties>" + "<a/>" * 60 + "</Properties></Blob>"
    body = f"<EnumerationResults><Blobs>{blobs * 400}</Blobs></EnumerationResults>".encode()
    url = "http://host/account/messages?restype=container&comp=list"

    assert find_excess(body, url, 200) == ""
    assert find_excess(body, "http://host/account/queue/messages?numofmessages=32", 200) == "elements"
    assert longest_answer("GET", url, 200) == LONGEST_ANSWER > longest_answer("GET", "http://h/a/q/messages", 200)


@pytest.mark.parametrize(("status", "error"), [(403, AccessDenied), (503, Throttled)])
async def test_a_page_of_a_proxy_is_told_by_its_status(status: int, error: type[Exception]) -> None:
    """A refusal that is not the service's, and has more than the SDK shall parse, is what its status says."""
    page = "<html>" + '<div class="a" id="b"><a href="c" class="d">e</a></div>' * 400 + "</html>"
    async with Stub() as stub:
        stub.answers = [Answer(status, {"Content-Type": "text/html"}, page.encode())]
        async with connect(stub.url, key=KEY, queues=stub.url, retry=RetryPolicy(attempts=1)) as db:
            with pytest.raises(error):
                await db.queues.list_queues()


def test_an_error_that_quotes_an_answer_is_described_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets are looked for in the beginning of its text, of which a part is shown."""
    lengths: list[int] = []

    def look(text: str) -> str:
        lengths.append(len(text))
        return text

    monkeypatch.setattr(faults, "without_named_secrets", look)
    fault = faults.fault_of_error(ValueError("x" * 1_000_000), write=False)

    assert len(fault.message) < 400
    assert max(lengths) <= 16 * 1024


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
    async with Stub() as stub:
        empty = xml("", "<Queues/><Containers/><Blobs/>")
        stub.answers = [Answer(200, {"Content-Type": "application/xml"}, empty)]
        async with connect(stub.url, key=KEY, queues=stub.url, blobs=stub.url) as db:
            await db.queues.list_queues()
            await db.blobs.list_containers()
            await db.blobs.list_blobs("container")
            await db.blobs.list_blobs("container", limit=7)

    asked = [re.search(r"maxresults=([0-9]+)", request.target) for request in stub.requests]
    assert [found and found[1] for found in asked] == ["500", "500", "500", "7"]
