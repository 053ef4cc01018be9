"""
Entities over HTTP: addresses, bodies at each level, what is sent back, conditional writes.
"""

from typing import Any

import pytest

from tableorm_local.engine import scan
from tests.local.server.client import FULL_METADATA, NO_METADATA, Api, Reply

ONE = "/Tab(PartitionKey='p',RowKey='r')"
STALE = "W/\"datetime'2020-01-01T00%3A00%3A00.0000000Z'\""


def entity(row_key: str = "r", /, **properties: Any) -> dict[str, Any]:
    return {"PartitionKey": "p", "RowKey": row_key, **properties}


TYPES: dict[str, Any] = {
    "Text": "ä'\"",
    "Flag": True,
    "Small": 3,
    "Real": 3.0,
    "Big": "9223372036854775807",
    "Big@odata.type": "Edm.Int64",
    "Nan": "NaN",
    "Nan@odata.type": "Edm.Double",
    "When": "2024-02-29T12:34:56.7891234Z",
    "When@odata.type": "Edm.DateTime",
    "Id": "c9da6455-213d-42c9-9a79-3e9149a57833",
    "Id@odata.type": "Edm.Guid",
    "Data": "AP8=",
    "Data@odata.type": "Edm.Binary",
}


async def test_insert_returns_the_entity(api: Api) -> None:
    """Without Prefer an insert answers 201 with the entity, its ETag and Location, and no Preference-Applied."""
    reply = await api("POST", "/Tab", entity(**TYPES))

    assert reply.status == 201
    etag = reply.etag
    root = f"{api.root}/devstoreaccount1"
    assert reply.headers["Location"] == f"{root}/Tab(PartitionKey='p',RowKey='r')"
    assert "Preference-Applied" not in reply.headers
    assert reply.headers["Content-Type"] == "application/json;odata=minimalmetadata;streaming=true;charset=utf-8"
    row = reply.json
    assert row.pop("Timestamp") in etag.replace("%3A", ":")
    assert row == {"odata.metadata": f"{root}/$metadata#Tab/@Element", "odata.etag": etag, **entity(**TYPES)}
    assert b'"Real":3.0' in reply.body


@pytest.mark.parametrize(("wish", "status"), [("return-content", 201), ("return-no-content", 204)])
async def test_prefer(api: Api, wish: str, status: int) -> None:
    """Prefer decides whether the entity is sent back, and is confirmed."""
    reply = await api("POST", "/Tab", entity(), Prefer=wish)

    assert (reply.status, reply.headers["Preference-Applied"]) == (status, wish)
    assert bool(reply.body) is (status == 201)
    assert (reply.headers.get("DataServiceId") == reply.headers["Location"]) is (status == 204)


async def test_metadata_levels(api: Api) -> None:
    """Each level says more; `$format` wins over Accept, blanks after the semicolon are legal."""
    await api("POST", "/Tab", entity("a'b c", Big="1", **{"Big@odata.type": "Edm.Int64"}))
    path = "/Tab(PartitionKey='p',RowKey='a''b%20c')"
    none = await api("GET", path, Accept="application/json; odata=nometadata")
    minimal = await api("GET", path, Accept="application/json")
    full = await api("GET", path, query="$format=application/json;odata=fullmetadata", Accept=NO_METADATA)

    assert none.json == {"PartitionKey": "p", "RowKey": "a'b c", "Timestamp": minimal.json["Timestamp"], "Big": "1"}
    root = f"{api.root}/devstoreaccount1"
    assert minimal.json == {
        "odata.metadata": f"{root}/$metadata#Tab/@Element",
        "odata.etag": minimal.etag,
        "Big@odata.type": "Edm.Int64",
        **none.json,
    }
    link = "Tab(PartitionKey='p',RowKey='a%27%27b%20c')"
    assert full.json == {
        "odata.type": "devstoreaccount1.Tab",
        "odata.id": f"{root}/{link}",
        "odata.editLink": link,
        "Timestamp@odata.type": "Edm.DateTime",
        **minimal.json,
    }
    for level, reply in (("nometadata", none), ("minimalmetadata", minimal), ("fullmetadata", full)):
        assert reply.headers["Content-Type"] == f"application/json;odata={level};streaming=true;charset=utf-8"
    assert (await api("GET", "/" + full.json["odata.editLink"])).json["RowKey"] == "a'b c"


async def test_links_count_among_the_bytes_of_a_page(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows that the answer gives links, besides what is stored, fewer have room in a page."""
    monkeypatch.setattr(scan, "_PAGE_BYTES", 2_000)
    monkeypatch.setattr(scan, "_BATCH_ROWS", 4)
    for number in range(20):
        await api("POST", "/Tab", {"PartitionKey": "p", "RowKey": f"{number}"}, Prefer="return-no-content")
    minimal, full = [len((await api("GET", "/Tab()", Accept=accept)).rows) for accept in ("*/*", FULL_METADATA)]

    assert 20 > minimal > full > 0


@pytest.mark.parametrize(
    ("accept", "status", "code"),
    [
        ("*/*", 200, ""),
        ("application/json", 200, ""),
        ("text/html, application/json;odata=fullmetadata", 200, ""),
        ("application/atom+xml", 415, "AtomFormatNotSupported"),
        ("text/html", 415, "MediaTypeNotSupported"),
        ("application/json;odata=verbose", 415, "MediaTypeNotSupported"),
    ],
)
async def test_accept(api: Api, accept: str, status: int, code: str) -> None:
    """What is accepted is JSON; Atom and everything else is rejected with 415."""
    reply = await api("GET", "/Tab()", Accept=accept)

    assert (reply.status, reply.code if code else "") == (status, code)


async def test_an_insert_whose_answer_nobody_accepts(api: Api) -> None:
    """An insert of a client that accepts no JSON is rejected before anything is written."""
    refused = await api("POST", "/Tab", {"PartitionKey": "p", "RowKey": "r"}, Accept="text/html")

    assert (refused.status, refused.code) == (415, "MediaTypeNotSupported")
    assert (await api("GET", "/Tab()")).rows == []


@pytest.mark.parametrize(
    ("value", "annotation", "stored"),
    [
        ("12", "Edm.Int64", ("12", "Edm.Int64")),
        (12, "Edm.Int64", ("12", "Edm.Int64")),
        ("7", "Edm.Int32", (7, None)),
        (5, "Edm.Double", (5.0, None)),
        ("NaN", "Edm.Double", ("NaN", "Edm.Double")),
        ("False", "Edm.Boolean", (False, None)),
        (True, "Edm.Boolean", (True, None)),
        ("text", "Edm.String", ("text", None)),
        ("2024-02-29T12:34:56+02:00", "Edm.DateTime", ("2024-02-29T10:34:56.0000000Z", "Edm.DateTime")),
        ("C9DA6455-213D-42C9-9A79-3E9149A57833", "Edm.Guid", ("c9da6455-213d-42c9-9a79-3e9149a57833", "Edm.Guid")),
        (2**40, None, (float(2**40), None)),
        (-(2**31), None, (-(2**31), None)),
    ],
)
async def test_forms_of_values(api: Api, value: object, annotation: str | None, stored: Any) -> None:
    """Each form in which clients send a value is stored with its type, and comes back in the service's form."""
    sent = entity(X=value)
    if annotation:
        sent |= {"X@odata.type": annotation, "X@odata.type@odata.type": "Edm.String"}
    await api("POST", "/Tab", sent)

    row = (await api("GET", ONE)).json
    assert (row["X"], row.get("X@odata.type")) == stored
    assert type(row["X"]) is type(stored[0])


BODIES = {
    "InvalidInput": [
        b"",
        b"[]",
        b"{",
        b'"x"',
        b"\xff",
        b'{"PartitionKey":"p","RowKey":"r","A":"\xff"}',
        b'{"PartitionKey":"p","RowKey":"r","A":' + b"[" * 10_000,
        b'{"PartitionKey":"p","RowKey":"r","x":{"a":1}}',
        b'{"PartitionKey":"p","RowKey":"r","x":[1]}',
        b'{"PartitionKey":"p","RowKey":"r","x":NaN}',
        b'{"PartitionKey":"p","RowKey":"r","x":1e999}',
        b'{"PartitionKey":"p","RowKey":"r","x":"\\ud800"}',
        b'{"PartitionKey":1,"RowKey":"r"}',
        b'{"PartitionKey":"p","PartitionKey@odata.type":"Edm.Guid","RowKey":"r"}',
        b'{"PartitionKey":"p","RowKey":"r","x@odata.type":"Edm.Int64"}',
        b'{"PartitionKey":"p","RowKey":"r","x":"1","x@odata.type":"Edm.What"}',
        b'{"PartitionKey":"p","RowKey":"r","x":"1.5","x@odata.type":"Edm.Int64"}',
        b'{"PartitionKey":"p","RowKey":"r","x":"9223372036854775808","x@odata.type":"Edm.Int64"}',
        b'{"PartitionKey":"p","RowKey":"r","x":"=","x@odata.type":"Edm.Binary"}',
    ],
    "DuplicatePropertiesSpecified": [
        b'{"PartitionKey":"p","RowKey":"r","x":1,"x":2}',
        b'{"PartitionKey":"p","RowKey":"r","x":"\\"","x":2}',
    ],
    "PropertiesNeedValue": [
        b'{"PartitionKey":"p"}',
        b'{"RowKey":"r"}',
        b'{"PartitionKey":null,"RowKey":"r"}',
    ],
    "OutOfRangeInput": [
        b'{"PartitionKey":"p","RowKey":"a/b"}',
        b'{"PartitionKey":"p","RowKey":"' + b"x" * 513 + b'"}',
        b'{"PartitionKey":"p","RowKey":"r","x":"1500-01-01T00:00:00Z","x@odata.type":"Edm.DateTime"}',
    ],
    "TooManyProperties": [b'{"a":1' + b"".join(b',"a%d":1' % n for n in range(1000)) + b"}"],
    "PropertyNameInvalid": [b'{"PartitionKey":"p","RowKey":"r","1":1}'],
    "PropertyNameTooLong": [b'{"PartitionKey":"p","RowKey":"r","' + b"x" * 256 + b'":1}'],
    "PropertyValueTooLarge": [b'{"PartitionKey":"p","RowKey":"r","x":"' + b"x" * 32769 + b'"}'],
}
"""Bodies that are no entities, by the code of the error."""


@pytest.mark.parametrize(("body", "code"), [(body, code) for code, bodies in BODIES.items() for body in bodies])
async def test_bodies_that_are_refused(api: Api, body: bytes, code: str) -> None:
    """A body that is no entity is rejected with 400 and the service's code; nothing is written."""
    reply = await api("POST", "/Tab", body)

    assert (reply.status, reply.code) == (400, code)
    assert (await api("GET", "/Tab()")).rows == []


async def test_nulls_and_echoed_members(api: Api) -> None:
    """Null properties and members that clients echo are not stored; the URL's keys win in an update."""
    echoed = {
        "odata.etag": "x",
        "odata.metadata": "x",
        "odata.type": "x",
        "odata.id": "x",
        "odata.editLink": "x",
        "Timestamp": "2000-01-01T00:00:00Z",
        "Timestamp@odata.type": "Edm.DateTime",
    }
    null = {"B": None, "B@odata.type": "Edm.Int64"}
    assert (await api("POST", "/Tab", entity(A=1, **null, **echoed))).status == 201
    await api("PATCH", ONE, {"A": None, "C": 2, "PartitionKey": "another", "RowKey": "other"}, If_Match="*")

    row = (await api("GET", ONE, Accept=NO_METADATA)).json
    assert not row.pop("Timestamp").startswith("2000")
    assert row == entity(A=1, C=2)


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("/Tab(PartitionKey='p',%20RowKey='a+b')", "a+b"),
        ("/Tab(RowKey='a+b',PartitionKey='p')", "a+b"),
        ("/Tab(PartitionKey=%27p%27%2CRowKey=%27O%27%27Neil%27)", "O'Neil"),
        ("/tab(PartitionKey='p',RowKey='O''Neil')", "O'Neil"),
    ],
)
async def test_spellings_of_paths(api: Api, path: str, key: str) -> None:
    """Clients escape more or less, order the keys as they like, and may put a space after the comma."""
    await api("POST", "/Tab()", entity(key))

    assert (await api("GET", path)).json["RowKey"] == key


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/Tab(PartitionKey='p',RowKey='a%2Fb')", "InvalidInput"),
        ("/Tab(PartitionKey='p',RowKey='a%09b')", "InvalidInput"),
        (f"/Tab(PartitionKey='p',RowKey='{'x' * 513}')", "OutOfRangeInput"),
        ("/Tab(PartitionKey='p')", "InvalidInput"),
        ("/Tab(PartitionKey='p',RowKey='r", "InvalidInput"),
        ("/Tab('p','r')", "InvalidInput"),
        ("/()", "InvalidInput"),
        ("/Tab(PartitionKey='p',RowKey='%ff')", "InvalidUri"),
        ("/No(PartitionKey='p',RowKey='r')", "OutOfRangeInput"),
        ("/No-1(PartitionKey='p',RowKey='r')", "InvalidResourceName"),
        ("/None(PartitionKey='p',RowKey='r')", "TableNotFound"),
        ("/Tab(PartitionKey='p',RowKey='r')", "ResourceNotFound"),
        ("/Tab/Column", "InvalidInput"),
        ("/None/Column", "TableNotFound"),
    ],
)
async def test_paths_that_lead_nowhere(api: Api, path: str, code: str) -> None:
    """What is wrong with a path is said with the service's code."""
    reply = await api("GET", path)

    assert (reply.status, reply.code) == (404 if "NotFound" in code else 400, code)


@pytest.mark.parametrize(
    "headers",
    [
        {"If_Match": "x"},
        {"If_Match": ""},
        {"If_Match": f"{STALE},{STALE}"},
        {"If_None_Match": "*"},
        {"If_Match": "*", "If_None_Match": "*"},
    ],
)
@pytest.mark.parametrize("verb", ["PUT", "PATCH", "DELETE"])
async def test_conditions_that_are_none(api: Api, verb: str, headers: dict[str, str]) -> None:
    """A malformed If-Match, several tags, or If-None-Match are rejected."""
    reply = await api(verb, ONE, None if verb == "DELETE" else {}, headers=headers)

    assert (reply.status, reply.code) == (400, "InvalidInput")
    problem = (
        "If-None-Match has no" if "If_None_Match" in headers else f"If-Match {headers['If_Match'][:80]!r} is not one"
    )
    assert problem in reply.message


@pytest.mark.parametrize("tag", ['W/"wrong"', "W/\"datetime''2017-01-01T00%3A00%3A00Z''\"", '"strong"', 'W/"a tag"'])
@pytest.mark.parametrize("verb", ["PUT", "PATCH", "DELETE"])
async def test_tags_that_no_entity_has(api: Api, verb: str, tag: str) -> None:
    """What has the form of an ETag is compared, and is the tag of nothing."""
    body: object = None if verb == "DELETE" else {}
    assert (await api(verb, ONE, body, If_Match=tag)).code == "ResourceNotFound"
    before = (await api("POST", "/Tab", entity(A=1))).etag

    reply = await api(verb, ONE, body, If_Match=tag)
    assert (reply.status, reply.code) == (412, "UpdateConditionNotSatisfied")
    assert (await api("GET", ONE)).etag == before


@pytest.mark.parametrize("verb", ["GET", "POST", "PUT", "PATCH", "DELETE"])
async def test_missing_table_comes_first(api: Api, verb: str) -> None:
    """That there is no table is told before what is wrong with the body or the condition."""
    path = "/None" if verb in ("GET", "POST") else "/None(PartitionKey='p',RowKey='r')"

    reply = await api(verb, path, b"{" if verb in ("POST", "PUT", "PATCH") else None)

    assert (reply.status, reply.code) == (404, "TableNotFound")
    assert "The table specified does not exist." in reply.message


async def test_method_header(api: Api) -> None:
    """X-HTTP-Method is MERGE, on POST, once."""

    async def refused(verb: str, method: str) -> str:
        reply = await api(verb, ONE, {}, X_HTTP_Method=method)
        assert reply.status == 400
        return reply.code

    assert await refused("POST", "PUT") == "XMethodIncorrectValue"
    assert await refused("PUT", "MERGE") == "XMethodNotUsingPost"


async def test_content_types(api: Api) -> None:
    """A body that says it is something else than JSON is rejected with 415, whatever is written."""
    for verb in ("PUT", "PATCH"):
        assert (await api(verb, ONE, b"{}", Content_Type="text/plain")).code == "MediaTypeNotSupported"
    assert (await api("GET", "/Tab()")).rows == []

    async def insert(kind: str) -> Reply:
        return await api("POST", "/Tab", b'{"PartitionKey":"p","RowKey":"r"}', Content_Type=kind)

    assert (await insert("application/atom+xml")).code == "AtomFormatNotSupported"
    assert (await insert("text/plain")).code == "MediaTypeNotSupported"
    assert (await insert("application/json;odata=nometadata;charset=utf-8")).status == 201


async def test_select_of_one(api: Api) -> None:
    """`$select` gives exactly the named properties with their types, null for an absent one, and the ETag."""
    await api("POST", "/Tab", entity(A=1, Big="1", **{"Big@odata.type": "Edm.Int64"}))

    row = (await api("GET", ONE, query="$select=Big,%20None")).json
    assert row.pop("odata.etag").startswith("W/")
    assert row.pop("odata.metadata")
    assert row == {"Big": "1", "Big@odata.type": "Edm.Int64", "None": None}
    full = (await api("GET", ONE, query="$select=A", Accept=FULL_METADATA)).json
    assert full["odata.editLink"] == "Tab(PartitionKey='p',RowKey='r')"
    assert {name for name in full if not name.startswith("odata.")} == {"A"}


@pytest.mark.parametrize(("length", "code"), [(3, "InvalidInput"), (256, "InvalidInput"), (257, "OutOfRangeInput")])
async def test_a_forbidden_character_in_a_path(api: Api, length: int, code: str) -> None:
    """It is an error of syntax, however long the key is that could be stored; a longer key is too long first of all."""
    path = f"/Tab(PartitionKey='p',RowKey='{'a' * (length - 1)}%01')"

    assert (await api("GET", path)).code == code
