"""
The wire by itself: what is read of addresses, headers, queries and frames, and what answers are made of.
"""

import json
import re
from collections.abc import Mapping
from importlib.metadata import version
from unittest.mock import Mock

import msgspec
import pytest
from multidict import CIMultiDict

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.filter_text import MAX_FILTER_LENGTH
from tableorm.stores import Row
from tableorm_local.server.wire import answers, bodies, continuations, multipart, options, xml
from tableorm_local.server.wire.addressing import (
    Kind,
    Place,
    Resource,
    entity_path,
    is_host_style,
    part_path,
    place_of,
    resource_of,
    table_path,
)
from tableorm_local.server.wire.calls import Answer, Call, Incoming, Level
from tests.local.server.client import Clock, finish

PLACE = Place(account="acc", secondary=False, path="/acc/Tab", resource_path="/Tab", root="http://h/acc")
HOSTED = Place(account="acc", secondary=False, path="/Tab", resource_path="/Tab", root="http://acc.table.h")
ENTITY = Resource(Kind.ENTITY, "Tab", partition_key="p", row_key="r")


def find(name: str) -> tuple[str, bool] | None:
    return {"acc": ("acc", False), "acc-secondary": ("acc", True)}.get(name)


def call_of(headers: Mapping[str, str] | None = None, /, **query: str) -> Call:
    """A call with these headers, and these parameters of the query."""
    named = {name if name in ("timeout", "comp") else f"${name}": value for name, value in query.items()}
    return Call(verb="GET", place=PLACE, resource=ENTITY, options=named, headers=CIMultiDict(headers or {}), body=b"")


@pytest.mark.parametrize(
    ("host", "target", "account", "secondary", "rest", "root"),
    [
        ("h:1", "/acc/Tab", "acc", False, "/Tab", "http://h:1/acc"),
        ("h", "/acc", "acc", False, "", "http://h/acc"),
        ("h", "/acc/", "acc", False, "/", "http://h/acc"),
        ("h", "/acc-secondary/Tab", "acc", True, "/Tab", "http://h/acc-secondary"),
        ("h", "/acc-secondary/acc", "acc", True, "", "http://h/acc-secondary"),
        ("h", "/acc-secondary/acc/Tab", "acc", True, "/Tab", "http://h/acc-secondary"),
        ("h", "/acc-secondary/account", "acc", True, "/account", "http://h/acc-secondary"),
        ("h", "/acc/acc", "acc", False, "/acc", "http://h/acc"),
        ("ACC.table.h", "/acc/Tab", "acc", False, "/acc/Tab", "http://ACC.table.h"),
        ("acc-secondary.table.h", "/acc", "acc", True, "/acc", "http://acc-secondary.table.h"),
        ("h", "https://other:9/acc/Tab?a=/b#c", "acc", False, "/Tab", "http://h/acc"),
        ("h", "/acc/Tab#c?d", "acc", False, "/Tab", "http://h/acc"),
        ("acc.table.h", "//other/Tab", "acc", False, "//other/Tab", "http://acc.table.h"),
        ("acc.table.h", "https://other:9/", "acc", False, "/", "http://acc.table.h"),
        ("acc.table.h", "https://other:9", "acc", False, "/", "http://acc.table.h"),
    ],
)
def test_places(host: str, target: str, account: str, secondary: bool, rest: str, root: str) -> None:
    """Host or path name the account; the rest is the path of the resource, and links begin with the root."""
    place = place_of(find, "http", host, target)

    assert (place.account, place.secondary, place.resource_path, place.root) == (account, secondary, rest, root)
    assert place.path == (target.removeprefix("https://other:9").partition("?")[0].partition("#")[0] or "/")
    assert is_host_style(host) is (".table." in host)


@pytest.mark.parametrize(
    ("host", "target", "code"),
    [
        ("", "/acc", Code.HOST_INFORMATION_NOT_PRESENT),
        ("a b", "/acc", Code.HOST_INFORMATION_NOT_PRESENT),
        ("h", "acc", Code.INVALID_URI),
        ("h", "http://[/acc", Code.INVALID_URI),
        ("h", "http:/acc", Code.INVALID_URI),
        ("h", "http:///acc", Code.INVALID_URI),
        ("h", "mailto://h/acc", Code.INVALID_URI),
        ("h", "", Code.INVALID_URI),
        ("h", "/other/Tab", Code.RESOURCE_NOT_FOUND),
        ("other.table.h", "/acc", Code.RESOURCE_NOT_FOUND),
        ("h", "https://other", Code.RESOURCE_NOT_FOUND),
    ],
)
def test_places_that_are_none(host: str, target: str, code: Code) -> None:
    """What names no account is refused with the service's code."""
    with pytest.raises(Fault) as caught:
        place_of(find, "http", host, target)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("place", "url", "path"),
    [
        (PLACE, "/acc/Tab", "/Tab"),
        (PLACE, "/acc-secondary/Tab", "/Tab"),
        (PLACE, "/acc", ""),
        (PLACE, "/account", "/account"),
        (PLACE, "/Tab?x=/acc", "/Tab"),
        (PLACE, "http://other/acc/Tab", "/Tab"),
        (PLACE, "http://h/acc", ""),
        (PLACE, "http://h/account", "/account"),
        (PLACE, "http://acc.table.h/acc", "/acc"),
        (PLACE, "HTTPS://[::1]:/acc/Tab#c?d", "/Tab"),
        (PLACE, f"http://{'h' * 253}:65535/acc/Tab?a", "/Tab"),
        (PLACE, "http://h?/acc/Tab", "/"),
        (PLACE, "http://h#/acc/Tab", "/"),
        (PLACE, "http://h:1", "/"),
        (HOSTED, "/acc", "/acc"),
        (HOSTED, "/Tab", "/Tab"),
        (HOSTED, "http://other/acc/Tab", "/Tab"),
        (HOSTED, "http://acc.table.h/acc/Tab", "/acc/Tab"),
    ],
)
def test_paths_of_parts(place: Place, url: str, path: str) -> None:
    """The account is left out where it stands in the path, and is a table's name where the host has it."""
    assert part_path(place, url) == path


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("", Resource(Kind.SERVICE)),
        ("/", Resource(Kind.SERVICE)),
        ("/Tables", Resource(Kind.TABLES)),
        ("/Tables()", Resource(Kind.TABLES)),
        ("/$batch", Resource(Kind.TRANSACTION)),
        ("/Tables('it''s')", Resource(Kind.TABLE, "it's")),
        ("/Tables(%27a%27)", Resource(Kind.TABLE, "a")),
        ("/Tab", Resource(Kind.ENTITIES, "Tab")),
        ("/Tab()", Resource(Kind.ENTITIES, "Tab")),
        ("/Tab/", Resource(Kind.ENTITIES, "Tab")),
        ("/Tab()/", Resource(Kind.ENTITIES, "Tab")),
        ("/T\udcc3\udca4", Resource(Kind.ENTITIES, "Tä")),
        ("/Tab/a/b", Resource(Kind.BELOW_TABLE, "Tab", rest="a/b")),
        ("/Tab//", Resource(Kind.BELOW_TABLE, "Tab", rest="/")),
        ("/Tab(PartitionKey='p',RowKey='r')", ENTITY),
        ("/Tab( RowKey = 'r' , PartitionKey = 'p' )", ENTITY),
        ("/Tab(PartitionKey='',RowKey='')", Resource(Kind.ENTITY, "Tab")),
        (
            "/Tab(PartitionKey='a''b',RowKey='%C3%A4%0A')",
            Resource(Kind.ENTITY, "Tab", partition_key="a'b", row_key="ä\n"),
        ),
    ],
)
def test_resources(path: str, resource: Resource) -> None:
    """A path is decoded once, then its literals are read."""
    assert resource_of(path) == resource


@pytest.mark.parametrize(
    "path", ["/()", "//", "/(PartitionKey='p',RowKey='r')", "/Tab(PartitionKey='p',PartitionKey='r')", "/Tab(x)"]
)
def test_paths_that_are_none(path: str) -> None:
    """A path that the service does not have is refused."""
    with pytest.raises(Fault, match="The path must be one of /Tables") as caught:
        resource_of(path)
    assert caught.value.code == Code.INVALID_INPUT


def test_paths_that_are_written() -> None:
    """Links have what may stand in a URL, and are read as what they were made of."""
    assert table_path("Tab") == "Tables('Tab')"
    assert entity_path("Tab", "a b-_.~!*()", "it's/%ä") == (
        "Tab(PartitionKey='a%20b-_.~!*()',RowKey='it%27%27s%2F%25%C3%A4')"
    )
    written = resource_of("/" + entity_path("Tab", "a',RowKey='", "+&?#"))
    assert (written.partition_key, written.row_key) == ("a',RowKey='", "+&?#")


@pytest.mark.parametrize("name", ["a", "ab", "abc", "abcd", "x" * 63])
def test_continuations(name: str) -> None:
    """They have the service's form, and lead to where the next page starts; blank is the first page."""
    assert continuations.entity_continuation(name) == {
        "x-ms-continuation-NextPartitionKey": f"1!{len(name)}!{name}",
        "x-ms-continuation-NextRowKey": "1!2!AA",
    }
    assert continuations.first_entity({"NextPartitionKey": f"1!{len(name)}!{name}"}) == name
    (header,) = continuations.table_continuation(name).items()
    assert header[0] == "x-ms-continuation-NextTableName"
    assert continuations.first_table({"NextTableName": header[1]}) == name
    for options_given in ({}, {"NextPartitionKey": "", "NextTableName": ""}):
        assert continuations.first_entity(options_given) is None
        assert continuations.first_table(options_given) == ""
    for wrong in (
        f"1!{len(name) + 1}!{name}",
        f"2!{len(name)}!{name}",
        f"1!{len(name)}!{name}=",
        f"{len(name)}!{name}",
    ):
        with pytest.raises(Fault, match="is malformed; send that of the page before"):
            continuations.first_entity({"NextPartitionKey": wrong})
        with pytest.raises(Fault, match="is malformed; send that of the page before"):
            continuations.first_table({"NextTableName": wrong})


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", {}),
        ("a=b&c=d", {"a": "b", "c": "d"}),
        ("a=&b", {"a": "", "b": ""}),
        ("a=1+2%2B3", {"a": "1 2+3"}),
        ("%24top=1", {"$top": "1"}),
        ("&&a=b", {"a": "b"}),
    ],
)
def test_queries(query: str, found: dict[str, str]) -> None:
    """Parameters are form-encoded; blank ones are there."""
    assert options.options_of(query) == found


@pytest.mark.parametrize(
    ("headers", "query", "found"),
    [
        ({}, {}, "2019-02-02"),
        ({}, {"sv": "2020-02-10"}, "2020-02-10"),
        ({"x-ms-version": "2021-02-12"}, {"sv": "2020-02-10"}, "2021-02-12"),
        ({"x-ms-version": ""}, {"sv": ""}, "2019-02-02"),
        ({"x-ms-version": "2013-08-15"}, {}, "2013-08-15"),
        ({"x-ms-version": "2013-08-14"}, {}, None),
        ({"x-ms-version": "2012-02-12"}, {"comp": "acl"}, "2012-02-12"),
        ({"x-ms-version": "2012-02-12"}, {"comp": "properties"}, None),
        ({"x-ms-version": "2012-02-11"}, {"comp": "acl"}, None),
        ({"x-ms-version": "2020-2-10"}, {}, None),
        ({"x-ms-version": "20200210"}, {}, None),
        ({"x-ms-version": "2020-02-30"}, {}, None),
        ({"x-ms-version": "2020-02-10x"}, {}, None),
        ({}, {"sv": "now"}, None),
    ],
)
def test_versions(headers: dict[str, str], query: dict[str, str], found: str | None) -> None:
    """The header counts, then the version of the token; there is such a date, and the operation in that version."""
    if found is not None:
        assert options.version_of(headers, query) == found
        return
    with pytest.raises(Fault, match=r"not a version of the service from 201[23]-[0-9-]{5} on") as caught:
        options.version_of(headers, query)
    assert caught.value.code == Code.INVALID_HEADER_VALUE


@pytest.mark.parametrize(
    ("verb", "methods", "found"),
    [
        ("GET", [], "GET"),
        ("POST", ["MERGE"], "MERGE"),
        ("POST", [" MERGE "], "MERGE"),
        ("POST", ["MERGE", "MERGE"], Code.XMETHOD_COUNT),
        ("PUT", ["MERGE"], Code.XMETHOD_NOT_POST),
        ("POST", ["PATCH"], Code.XMETHOD_VALUE),
    ],
)
def test_verbs(verb: str, methods: list[str], found: str) -> None:
    """`X-HTTP-Method` stands once, on a POST, and says MERGE."""
    headers = CIMultiDict([("X-HTTP-Method", method) for method in methods])
    if not isinstance(found, Code):
        assert options.effective_verb(verb, headers) == found
        return
    with pytest.raises(Fault) as caught:
        options.effective_verb(verb, headers)
    assert caught.value.code == found


@pytest.mark.parametrize(
    ("accept", "level"),
    [
        ("", Level.MINIMAL),
        ("json", Level.MINIMAL),
        ("*/*", Level.MINIMAL),
        ("application/*;q=0.5", Level.MINIMAL),
        ("application/json", Level.MINIMAL),
        ("application/json;odata=nometadata", Level.NONE),
        ('Application/JSON; charset=utf-8; OData = "FullMetadata"', Level.FULL),
        ("application/atom+xml, application/json;odata=nometadata", Level.NONE),
        ('application/json;profile="a,b;c\\"";odata=nometadata', Level.NONE),
        ('text/html;profile="application/json", application/json;odata=fullmetadata', Level.FULL),
        ("text/html, */*;q=0.1", Level.MINIMAL),
        ("application/atom+xml", Code.ATOM_NOT_SUPPORTED),
        ("application/atom+xml, text/html", Code.ATOM_NOT_SUPPORTED),
        ("text/html", Code.MEDIA_TYPE_NOT_SUPPORTED),
        ("application/json;odata=verbose", Code.MEDIA_TYPE_NOT_SUPPORTED),
    ],
)
def test_levels(accept: str, level: Level | Code) -> None:
    """The first media type that is JSON says how much metadata there is; `$format` comes before `Accept`."""
    for call in (call_of({"Accept": accept}), call_of({"Accept": "text/html"} if accept else {}, format=accept)):
        if isinstance(level, Level):
            assert options.level_of(call) is level
            continue
        with pytest.raises(Fault) as caught:
            options.level_of(call)
        assert caught.value.code == level


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", None),
        (" , ", None),
        ("*", None),
        ("A,*", None),
        ("A", ("A",)),
        (" B , A,B", ("B", "A")),
        ("A,,B", ("A", "B")),
    ],
)
def test_selected_names(text: str, names: tuple[str, ...] | None) -> None:
    """Each name counts once, in order, trimmed; a star is all."""
    assert options.select_of(call_of(select=text)) == names


@pytest.mark.parametrize(
    ("wish", "content"),
    [
        ("", None),
        ("return-content", True),
        (" Return-Content ,x", True),
        ("return-no-content", False),
        ("return-content, return-no-content", False),
        ("respond-async", None),
        pytest.param("return-content".ljust(1000), True, id="as long as may be"),
        pytest.param("return-content".ljust(1001), None, id="longer"),
    ],
)
def test_preferences(wish: str, content: bool | None) -> None:
    """Only these two words say whether there is content."""
    assert options.prefers_content(call_of({"Prefer": wish})) is content


def test_timeouts() -> None:
    """A number of seconds; none and 0 are no limit."""
    assert [options.seconds_of(call_of(timeout=text)) for text in ("", "0", "1", "007")] == [None, None, 1, 7]
    assert options.seconds_of(call_of()) is None
    for wrong in ("-1", "1.0", "x", "\u0661", " 1"):
        with pytest.raises(Fault, match="is not a number of seconds") as caught:
            options.seconds_of(call_of(timeout=wrong))
        assert caught.value.code == Code.INVALID_QUERY_PARAMETER


def test_conditions() -> None:
    """`If-Match` is one ETag or a star, trimmed."""
    tag = "W/\"datetime'2024-01-01T00%3A00%3A00Z'\""
    others = ('W/"wrong"', "W/\"datetime''2017-01-01T00%3A00%3A00Z''\"", '"strong"', 'W/""')
    given = (None, "*", " * ", tag, f" {tag}\t", *others)
    found = [options.if_match_of(call_of({} if each is None else {"If-Match": each})) for each in given]

    assert found == [None, "*", "*", tag, tag, *others]
    for wrong in ("", "W/", "W/x", 'w/"x"', '"', 'W/"x', f"{tag},{tag}", 'W/"a\x7f"'):
        with pytest.raises(Fault, match="is not one ETag") as caught:
            options.if_match_of(call_of({"If-Match": wrong}))
        assert caught.value.code == Code.INVALID_INPUT


def test_an_error_in_json_and_in_xml() -> None:
    """Both say the code, the message with the number of the operation, the name of the request and the time."""
    fault = Fault(Code.INVALID_INPUT, 'a < b & "c"\x01\ud800')
    json, xml = answers.error_answer(fault, "id", index=7), answers.error_answer(fault, "id", xml=True)
    for answer in (json, xml):
        assert (answer.status, answer.reason, dict(answer.headers)) == (
            400,
            "InvalidInput",
            {"x-ms-error-code": "InvalidInput"},
        )
    error = msgspec.json.decode(json.body)["odata.error"]
    assert (error["code"], error["message"]["lang"]) == ("InvalidInput", "en-US")
    assert re.fullmatch(
        r'7:a < b & "c"\x01\\ud800\nRequestId:id\nTime:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}Z',
        error["message"]["value"],
    )
    assert json.content_type == "application/json;odata=minimalmetadata;streaming=true;charset=utf-8"
    assert xml.body.startswith(
        b'<?xml version="1.0" encoding="utf-8"?><Error><Code>InvalidInput</Code>'
        b'<Message>a &lt; b &amp; "c"?\\ud800\nRequestId:id\nTime:'
    )
    assert xml.body.endswith(b"Z</Message></Error>")
    assert xml.content_type == "application/xml"


def test_headers_of_every_answer() -> None:
    """Who answers, to which request and in which version; that nothing is kept, or taken for another type."""
    headers = {
        "Server": f"tableorm/{version('tableorm')}",
        "x-ms-request-id": "id",
        "x-ms-version": "2019-02-02",
        "Cache-Control": "no-cache",
        "X-Content-Type-Options": "nosniff",
    }
    assert answers.standard_headers("id", "2019-02-02", None) == headers
    assert answers.standard_headers("id", "2019-02-02", "me") == headers | {"x-ms-client-request-id": "me"}


def test_headers_of_errors() -> None:
    """Who is busy says when to come again, who wants credentials says which; a code of others is an internal error."""
    busy = answers.error_answer(Fault(Code.SERVER_BUSY, ""), "id")
    stranger = answers.error_answer(Fault(Code.NO_AUTHENTICATION, ""), "id")
    odd = answers.error_answer(Fault("Odd", ""), "id")

    assert (busy.status, busy.headers["Retry-After"]) == (503, "1")
    assert (stranger.status, stranger.headers["WWW-Authenticate"]) == (401, "SharedKey")
    assert (odd.status, odd.reason) == (500, "InternalError")
    assert [len(answer.headers) for answer in (busy, stranger, odd)] == [2, 2, 1]


def test_the_answer_to_a_transaction() -> None:
    """Each answer is a part with its own head; a query has no change set around it; none leaves an empty one."""
    first = Answer(201, headers={"ETag": "e"}, body=b"{}", content_type="application/json")
    second = Answer(204)
    head = "Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\nHTTP/1.1 "
    more = "X-Content-Type-Options: nosniff\r\nCache-Control: no-cache\r\nDataServiceVersion: 3.0;\r\n"
    part = f"{head}201 Created\r\nContent-ID: a\r\n{more}ETag: e\r\nContent-Type: application/json\r\n\r\n{{}}\r\n"
    other = f"{head}204 No Content\r\n{more}\r\n\r\n"

    def write(*given: tuple[Answer, str | None], is_query: bool = False) -> str:
        body, kind = multipart.write([each for each, _ in given], [name for _, name in given], is_query=is_query)
        text = body.decode()
        outer = kind.removeprefix("multipart/mixed; boundary=")
        assert re.fullmatch(r"batchresponse_[0-9a-f-]{36}", outer)
        text = text.replace(outer, "OUT")
        inner = re.search(r"boundary=(changesetresponse_[0-9a-f-]{36})\r\n", text)
        return text if inner is None else text.replace(inner[1], "IN")

    top = "--OUT\r\nContent-Type: multipart/mixed; boundary=IN\r\n\r\n"
    assert write((first, "a"), (second, None)) == f"{top}--IN\r\n{part}--IN\r\n{other}--IN--\r\n--OUT--\r\n"
    assert write((first, "a")) == f"{top}--IN\r\n{part}--IN--\r\n--OUT--\r\n"
    assert write((first, "a"), is_query=True) == f"--OUT\r\n{part}--OUT--\r\n"
    assert write() == f"{top}--IN--\r\n--OUT--\r\n"


def read_part(part: bytes) -> multipart.Part:
    body = b"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\n" + part + b"\r\n--c--\r\n--b--\r\n"
    (found,) = finish(multipart.read("multipart/mixed; boundary=b", body)).parts
    return found


def test_a_part_of_a_transaction() -> None:
    """Its own headers and the name that its client gave it are read; of several with one name the last counts."""
    found = read_part(
        b"Content-Type: Application/HTTP; msgtype=request\r\nContent-ID: outer\r\n\r\n\r\n"
        b"PATCH /Tab?a=b HTTP/1.0 \r\nA: 1\r\nContent-ID: inner\r\na: 2\r\n \t\r\n\r\n{}\r\n"
    )
    assert (found.verb, found.url, found.content_id) == ("PATCH", "/Tab?a=b", "outer")
    assert found.headers["A"] == "2"
    assert found.body == b"\r\n{}\r\n"
    inner = read_part(b"Content-Type: application/http\n\nDELETE /Tab HTTP/1.1\nContent-ID: inner")
    assert (inner.verb, inner.content_id, inner.body) == ("DELETE", "inner", b"")
    bare = read_part(b"Content-Type: application/http\r\n\r\nGET /Tab HTTP/1.1\r\n\r\n")
    assert (bare.content_id, dict(bare.headers), bare.body) == (None, {}, b"")


@pytest.mark.parametrize(
    "part",
    [
        b"Content-Type: application/http\r\n\r\nget /Tab HTTP/1.1",
        b"Content-Type: application/http\r\n\r\nGET /Tab HTTP/2.0",
        b"Content-Type: application/http\r\n\r\nGET  /Tab HTTP/1.1",
        b"Content-Type: application/http\r\n\r\nGET /T ab HTTP/1.1",
        b"Content-Type: application/http\r\n\r\n" + b"G" * 21 + b" /Tab HTTP/1.1",
        b"Content-Type: application/http\r\nContent-ID: a b\r\n\r\nGET /Tab HTTP/1.1",
        b"Content-Type: application/https\r\n\r\nGET /Tab HTTP/1.1",
        b": application/http\r\n\r\nGET /Tab HTTP/1.1",
        b"Content-Type application/http\r\n\r\nGET /Tab HTTP/1.1",
        b"\xc3\xa4: b\r\n\r\nGET /Tab HTTP/1.1",
    ],
)
def test_parts_that_are_none(part: bytes) -> None:
    """A part without its type, or without a request line, is refused."""
    with pytest.raises(Fault, match="the transaction has ") as caught:
        read_part(part)
    assert caught.value.code == Code.INVALID_INPUT


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("select", [None, ("A", "None"), ("A",)])
def test_bytes_of_an_answer(level: Level, select: tuple[str, ...] | None) -> None:
    """What a row is counted for, beside what is stored, is at least what the answer has of it more."""
    table = "Tab"
    stored: Row = {"odata.etag": "e", "PartitionKey": "p'", "RowKey": "ä", "Timestamp": "t", "A": 1}
    row = stored if select is None else {"odata.etag": "e"} | {name: stored.get(name) for name in select}
    hidden = frozenset[str]()
    if select is not None and level is Level.FULL:
        hidden = frozenset({"PartitionKey", "RowKey"})
        row = row | {name: stored[name] for name in sorted(hidden)}
    count = bodies.make_byte_counter(table, PLACE, level, select)
    one, two = (len(finish(bodies.encode_entities([row] * times, table, PLACE, level, hidden))) for times in (1, 2))
    more = 0 if count is None else count(stored)

    assert two - one <= len(bodies.encode_json(stored)) + more + len(',"Timestamp@odata.type":"Edm.DateTime"')
    assert (count is None) is (level is not Level.FULL and select is None)
    if level is Level.FULL:
        links = {"odata.type": "acc.Tab", "odata.id": "", "odata.editLink": entity_path(table, "p'", "ä")}
        assert more >= len(bodies.encode_json(links | {"odata.id": f"http://h/acc/{links['odata.editLink']}"}))
    sent = msgspec.json.decode(finish(bodies.encode_entities([row, row], table, PLACE, level, hidden)))
    assert len(sent["value"]) == 2
    assert ("odata.metadata" in sent) is (level is not Level.NONE)
    assert not hidden & sent["value"][0].keys()


@pytest.mark.parametrize("count", [0, 1, 19, 20, 21, 39, 40, 41, 100])
def test_pages_are_encoded_whole(count: int) -> None:
    """Whatever the number of rows, all are there, in order."""
    rows: list[Row] = [
        {"odata.etag": "e", "PartitionKey": "p", "RowKey": str(n), "Timestamp": ""} for n in range(count)
    ]
    sent = msgspec.json.decode(finish(bodies.encode_entities(rows, "Tab", PLACE, Level.MINIMAL)))

    assert sent == {"odata.metadata": "http://h/acc/$metadata#Tab", "value": rows}


@pytest.mark.parametrize(
    ("value", "kind", "stored"),
    [
        (" 12 ", "Edm.Int64", "12"),
        (12, "Edm.Int64", "12"),
        ("+5", "Edm.Int32", 5),
        ("-0", "Edm.Int64", "0"),
        (str(2**63 - 1), "Edm.Int64", str(2**63 - 1)),
        (str(-(2**63)), "Edm.Int64", str(-(2**63))),
        (2**31 - 1, "Edm.Int32", 2**31 - 1),
        (-(2**31), "Edm.Int32", -(2**31)),
        (" TRUE", "Edm.Boolean", True),
        ("-Infinity", "Edm.Double", "-Infinity"),
        (" .5e1 ", "Edm.Double", 5.0),
        (2, "Edm.Double", 2.0),
        (10**308, "Edm.Double", 1e308),
        (10**309, "Edm.Double", None),
        (-(10**309), None, None),
        (2**31, None, 2.0**31),
        (-(2**31) - 1, None, -(2.0**31) - 1),
        (2**31 - 1, None, 2**31 - 1),
        (-(2**31), None, -(2**31)),
        ("AA==", "Edm.Binary", "AA=="),
        ("2024-01-01T00:00:00.1Z", "Edm.DateTime", "2024-01-01T00:00:00.1Z"),
        ("2024-01-01T00:00:00.123456789Z", "Edm.DateTime", "2024-01-01T00:00:00.1234568Z"),
        (str(2**63), "Edm.Int64", None),
        (str(-(2**63) - 1), "Edm.Int64", None),
        (2**31, "Edm.Int32", None),
        (-(2**31) - 1, "Edm.Int32", None),
        ("1" * 41, "Edm.Int64", None),
        (True, "Edm.Int32", None),
        (True, "Edm.Int64", None),
        (True, "Edm.Double", None),
        (1.5, "Edm.Int32", None),
        (1, "Edm.Boolean", None),
        ("yes", "Edm.Boolean", None),
        (1, "Edm.String", None),
        ("1e999", "Edm.Double", None),
        ("infinity", "Edm.Double", None),
        (1, "Edm.Guid", None),
        (1, "Edm.Binary", None),
        (1, "Edm.DateTime", None),
        ("x", 5, None),
    ],
    ids=lambda value: str(value)[:20],
)
def test_values_with_their_types(value: object, kind: object, stored: object) -> None:
    """A value that its type does not have is refused by the property's name; others get their canonical form."""
    body = json.dumps({"X": value, "X@odata.type": kind}).encode()  # msgspec writes no integer of so many digits
    if stored is None:
        with pytest.raises(Fault, match=r"X: .* is not an ") as caught:
            bodies.read_entity(body, ("p", "r"))
        assert caught.value.code == Code.INVALID_INPUT
        return
    row = bodies.read_entity(body, ("p", "r"))
    assert (row["X"], type(row["X"])) == (stored, type(stored))
    needs = kind in ("Edm.Int64", "Edm.Binary", "Edm.DateTime", "Edm.Guid") or stored == "-Infinity"
    assert row.get("X@odata.type") == (kind if needs else None)


def test_a_request_that_is_shown_shows_no_secret() -> None:
    """Neither what is signed nor the signature stands in the text of a request that an error may quote."""
    secret = "c2lnbmF0dXJl"
    incoming = Incoming(
        id="id",
        verb="GET",
        place=PLACE,
        query=f"sig={secret}",
        options={"sig": secret},
        headers=CIMultiDict({"Authorization": secret}),
        version="2019-02-02",
        scheme="http",
        address="10.0.0.1",
        read_body=Mock(name=secret),
    )

    assert secret not in repr(incoming)
    assert "10.0.0.1" in repr(incoming)


PART = b"Content-Type: application/http\r\n\r\nPOST /Tab HTTP/1.1\r\n\r\n"


@pytest.mark.parametrize("length", range(8))
def test_what_stands_before_a_transaction(length: int) -> None:
    """A line of any length may stand before the first delimiter, and means nothing."""
    body = b"x" * length + b"\r\n--b\r\n" + PART + b"\r\n--b--\r\n"
    assert finish(multipart.read("multipart/mixed; boundary=b", body)).is_query
    assert finish(multipart.read("multipart/mixed; boundary=b", b"x" * length + b"\r\n--b--")).parts == []


def test_which_heads_of_parts_are_kept() -> None:
    """Those of the parts of a transaction are read once if they have 200 bytes at most, as nearly all have."""
    known = multipart._parse_outer_head  # pyright: ignore[reportPrivateUsage]
    known.cache_clear()
    for length, kept in ((199, 1), (200, 2), (201, 2)):
        for _ in range(2):
            head = b"Content-Type: application/http\r\nA: ".ljust(length, b"x")
            read_part(head + b"\r\n\r\nPOST /Tab HTTP/1.1\r\n\r\n")
        assert (known.cache_info().misses, known.cache_info().currsize) == (kept, kept)


def test_a_transaction_is_read_in_steps() -> None:
    """Between two steps some 64 KiB of parts are read, whatever the size of each, so that other requests get turns."""

    def count_steps(parts: int, size: int) -> int:
        part = b"--c\r\n" + PART.ljust(size, b"x") + b"\r\n"
        body = b"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n" + parts * part + b"--c--\r\n--b--\r\n"
        return sum(1 for _ in multipart.read("multipart/mixed; boundary=b", body))

    assert count_steps(100, 100) == 0
    assert count_steps(5, 40 * 1024) == 2
    assert count_steps(5, 64 * 1024) == 4
    assert count_steps(8, 64 * 1024 - 1) == 3


@pytest.mark.parametrize(
    ("text", "names", "rest"),
    [
        (b"A: 1\r\nB: 2\r\n\r\nbody", ["B", "A"], b"body"),
        (b"A: 1\nB: 2\n \t\nbody\n\n", ["B", "A"], b"body\n\n"),
        (b"A: 1\n\r\nbody", ["A"], b"body"),
        (b"\r\nA: 1\r\n\r\nbody", [], b"A: 1\r\n\r\nbody"),
        (b"\n\nbody", [], b"body"),
        (b"A: 1", ["A"], b""),
        (b"A: 1\n \t", ["A"], b""),
        (b"", [], b""),
    ],
)
def test_the_head_of_a_part_ends_with_its_first_blank_line(text: bytes, names: list[str], rest: bytes) -> None:
    """Whatever its line ends are; a part may begin with the blank line, and then has no headers."""
    headers, content = multipart._read_headers(text)  # pyright: ignore[reportPrivateUsage]

    assert [*headers] == names
    assert content == rest


@pytest.mark.parametrize("root", ["http://127.0.0.1:10002/acc", "http://acc.table.core.localhost"])
@pytest.mark.parametrize("path", ["/T(PartitionKey='a',RowKey='b')", "/acc/T", "/T?x#y", "/T#y?x", "/"])
def test_a_url_of_the_same_place_is_read_as_one_of_another_host(root: str, path: str) -> None:
    """Most clients write the URLs of parts with the host that they speak to; that is read without parsing the URL."""
    in_path = root.endswith("/acc")
    batch = "/acc/$batch" if in_path else "/$batch"
    place = Place(account="acc", secondary=False, path=batch, resource_path="/$batch", root=root)
    other = "http://example.org/acc" if in_path else "http://acc.table.example.org"

    assert part_path(place, root + path) == part_path(place, other + path) == path.partition("?")[0].partition("#")[0]


@pytest.mark.parametrize("name", ["x@odata.types", "@odata.typex", "x@odata.type@odata"])
def test_a_name_with_an_annotation_inside_is_refused(name: str) -> None:
    """It would be taken for the type of another property by whoever reads it."""
    body = msgspec.json.encode({"PartitionKey": "p", "RowKey": "r", "x": "1", name: "Edm.String"})
    with pytest.raises(Fault, match="is invalid: it has an @") as caught:
        bodies.read_entity(body)
    assert caught.value.code == Code.PROPERTY_NAME_INVALID


def test_a_document_that_is_no_text_is_refused() -> None:
    """The error says so; a byte order mark before the text is allowed."""
    with pytest.raises(Fault, match="is not UTF-8"):
        xml.parse(b"<Root>\xff</Root>", "Root")
    assert xml.parse(b"\xef\xbb\xbf<Root>a</Root>", "Root").text == "a"


def test_what_stands_in_a_text_of_a_filter_is_not_counted() -> None:
    """A text may have any number of words and parentheses."""
    assert finish(options.read_filter(call_of(filter=f"a eq '{' or (not' * 900}'"))) is not None


def test_a_filter_that_is_too_long_is_refused() -> None:
    """The error has its length; one that is as long as may be is read."""
    longest = "a eq '" + "x" * (MAX_FILTER_LENGTH - 7) + "'"
    assert finish(options.read_filter(call_of(filter=longest))) is not None
    with pytest.raises(
        Fault, match=rf"\$filter has {MAX_FILTER_LENGTH + 1} characters, {MAX_FILTER_LENGTH} are allowed"
    ):
        finish(options.read_filter(call_of(filter=longest + " ")))


@pytest.mark.parametrize(("step", "slices"), [(0.0, 0), (0.0011, 10), (0.0021, 20)])
def test_a_page_is_encoded_in_slices_of_time(monkeypatch: pytest.MonkeyPatch, step: float, slices: int) -> None:
    """After each two milliseconds others get turns, at twenty places of a page at most."""
    monkeypatch.setattr(bodies, "time", Clock(step))
    rows: list[Row] = [{"odata.etag": "e", "PartitionKey": "p", "RowKey": str(n)} for n in range(1000)]

    assert sum(1 for _ in bodies.encode_entities(rows, "Tab", PLACE, Level.MINIMAL)) == slices
