"""
Tables over HTTP, their policies, and the properties of the service.
"""

import asyncio
import gc
import re
from collections.abc import Awaitable
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree as ET

import pytest

from tableorm.protocol.codes import Code, Fault
from tableorm_local.engine import Engine
from tableorm_local.server.operations.table_changes import TableChanges
from tableorm_local.server.wire.calls import Answer
from tests.local.engine.conftest import opened
from tests.local.server.client import FULL_METADATA, NO_METADATA, Api, Reply


async def test_create_and_list(api: Api) -> None:
    """A table keeps the case of its name, is listed without regard to it, and is there in any."""
    created = await api("POST", "/Tables", {"TableName": "apple"})
    assert created.status == 201
    root = f"{api.root}/devstoreaccount1"
    assert created.json == {"odata.metadata": f"{root}/$metadata#Tables/@Element", "TableName": "apple"}
    assert created.headers["Location"] == f"{root}/Tables('apple')"
    silent = await api("POST", "/Tables", {"TableName": "Berry"}, Prefer="return-no-content")
    assert (silent.status, silent.headers["Preference-Applied"]) == (204, "return-no-content")

    listed = (await api("GET", "/Tables")).json
    assert listed["odata.metadata"] == f"{root}/$metadata#Tables"
    assert [item["TableName"] for item in listed["value"]] == ["apple", "Berry", "Tab"]
    assert (await api("GET", "/Tables('BERRY')")).json["TableName"] == "Berry"
    full = (await api("GET", "/Tables()", query="$top=1", Accept=FULL_METADATA)).rows[0]
    assert full == {
        "odata.type": "devstoreaccount1.Tables",
        "odata.id": f"{root}/Tables('apple')",
        "odata.editLink": "Tables('apple')",
        "TableName": "apple",
    }
    one = await api("GET", "/Tables('apple')", Accept=FULL_METADATA)
    assert one.json == {"odata.metadata": f"{root}/$metadata#Tables/@Element", **full}


async def test_pages_of_tables(api: Api) -> None:
    """Tables come in pages too, filtered by TableName alone."""
    for name in ("Abc", "abd", "Xyz"):
        await api("POST", "/Tables", {"TableName": name})

    first = await api("GET", "/Tables", query="$top=2", Accept=NO_METADATA)
    token = quote(first.headers["x-ms-continuation-NextTableName"], safe="")
    rest = await api("GET", "/Tables", query=f"$top=2&NextTableName={token}", Accept=NO_METADATA)
    assert [row["TableName"] for row in first.rows + rest.rows] == ["Abc", "abd", "Tab", "Xyz"]
    assert "x-ms-continuation-NextTableName" not in rest.headers
    prefix = quote("TableName ge 'a' and TableName lt 'b'")
    some = await api("GET", "/Tables", query=f"$filter={prefix}")
    assert [row["TableName"] for row in some.rows] == ["abd"]
    for where in ("Timestamp gt datetime'2020-01-01T00:00:00Z'", "not (Name eq 'x')"):
        assert (await api("GET", "/Tables", query=f"$filter={quote(where)}")).code == "InvalidInput"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"TableName": "tab"}, 409, "TableAlreadyExists"),
        ({"TableName": "a-b"}, 400, "InvalidResourceName"),
        ({"TableName": "ab"}, 400, "OutOfRangeInput"),
        ({"TableName": 1}, 400, "InvalidInput"),
        ({}, 400, "PropertiesNeedValue"),
        (b"{", 400, "InvalidInput"),
    ],
)
async def test_tables_that_are_refused(api: Api, body: object, status: int, code: str) -> None:
    """A name that is taken, or none, is rejected."""
    reply = await api("POST", "/Tables", body)

    assert (reply.status, reply.code) == (status, code)


@pytest.mark.parametrize(
    ("verb", "path", "code", "text"),
    [
        ("POST", "/{}/Tables", "PropertiesNeedValue", "The values are not specified for all"),
        ("DELETE", "/{}/Tables('X')", "InvalidInput", "The number of keys specified in the URI"),
        ("POST", "/{}/$batch", "MediaTypeNotSupported", "None of the provided media types"),
        ("POST", "/{}/Tables()", "PropertiesNeedValue", "The values are not specified for all"),
        ("POST", "/{}/more", "InvalidInput", "A table has no such resource."),
        ("GET", "/{}/Tables", "InvalidInput", "A table has no such resource."),
        ("GET", "/{}/$batch", "InvalidInput", "A table has no such resource."),
    ],
)
async def test_url_of_a_table_given_as_that_of_the_account(
    api: Api, verb: str, path: str, code: str, text: str
) -> None:
    """What clients ask for that were given a table's URL is answered as they know it."""
    body = b"{}" if verb == "POST" else None

    assert (await api(verb, path.format("None"), body)).code == "TableNotFound"
    assert (await api(verb, path.format("No-1"), body)).code == "InvalidResourceName"
    reply = await api(verb, path.format("Tab"), body)
    assert reply.code == code
    assert text in reply.body.decode()


QUERY = "Value for one of the query parameters specified in the request URI is invalid: "
NAME = "The specified resource name contains invalid characters: "


@pytest.mark.parametrize(
    ("verb", "path", "query", "code", "said"),
    [
        *(
            (verb, path, query, "MethodNotAllowed", f"The resource doesn't support the specified HTTP verb: {verb}.")
            for verb, path, query in (
                ("PATCH", "/Tables", ""),
                ("DELETE", "/Tab()", ""),
                ("PUT", "/Tab()", ""),
                ("GET", "/$batch", ""),
                ("POST", "/Tab", "comp=acl"),
                ("DELETE", "/", "restype=service&comp=stats"),
            )
        ),
        ("GET", "/", "", "InvalidUri", "The requested URI does not represent any resource on the server."),
        ("GET", "/", "comp=properties", "InvalidQueryParameterValue", f"{QUERY}restype."),
        ("GET", "/", "restype=service&comp=what", "InvalidQueryParameterValue", f"{QUERY}comp."),
        (
            "GET",
            "/",
            "restype=service&comp=stats",
            "InvalidQueryParameterValue",
            f"{QUERY}comp=stats is answered at the secondary location, devstoreaccount1-secondary.",
        ),
        ("GET", "/Tables", "comp=what", "InvalidQueryParameterValue", f"{QUERY}comp."),
        ("GET", "/Tab", "comp=what", "InvalidQueryParameterValue", f"{QUERY}comp 'what'."),
        ("GET", "/None", "comp=what", "TableNotFound", "The table specified does not exist."),
        (
            "GET",
            "/$metadata",
            "",
            "InvalidResourceName",
            f"{NAME}'$metadata'; a table name is letters and digits, starts with a letter, and is not 'Tables'.",
        ),
    ],
)
async def test_what_there_is_not(api: Api, verb: str, path: str, query: str, code: str, said: str) -> None:
    """Verbs and parameters that a resource does not have are rejected, after a table that there is not."""
    reply = await api(verb, path, query=query)

    assert reply.status == {"MethodNotAllowed": 405, "TableNotFound": 404}.get(code, 400)
    assert (reply.code, reply.said) == (code, said)


POLICIES = b"""<?xml version="1.0" encoding="utf-8"?><SignedIdentifiers>
<SignedIdentifier><Id>full</Id><AccessPolicy><Start>2024-01-01</Start><Expiry>2030-01-01T00:00:00.5Z</Expiry>
<Permission>raud</Permission></AccessPolicy></SignedIdentifier>
<SignedIdentifier><Id>bare</Id></SignedIdentifier>
<SignedIdentifier><Id>empty</Id><AccessPolicy><Start/><Expiry></Expiry></AccessPolicy></SignedIdentifier>
</SignedIdentifiers>"""


def identifier(policy: str, name: str = "a") -> str:
    """A policy with its name."""
    return f"<SignedIdentifier><Id>{name}</Id><AccessPolicy>{policy}</AccessPolicy></SignedIdentifier>"


def acl(api: Api, document: bytes | None = None) -> Awaitable[Reply]:
    """Ask for the policies of the table, or set them."""
    return api("GET" if document is None else "PUT", "/Tab", document, query="comp=acl")


async def test_policies(api: Api) -> None:
    """Policies come back with what they have; a PUT replaces all, none clears; a table takes them along."""
    none = b'<?xml version="1.0" encoding="utf-8"?><SignedIdentifiers />'
    assert (await acl(api)).body == none
    assert (await api("PUT", "/Tab", POLICIES, query="comp=acl", Content_Type="application/xml")).status == 204

    reply = await api("GET", "/tab", query="comp=acl")
    assert (reply.status, reply.headers["Content-Type"]) == (200, "application/xml")
    text = reply.body.decode()
    assert re.findall("<Id>(.*?)</Id>", text) == ["full", "bare", "empty"]
    assert "<Start>2024-01-01T00:00:00.0000000Z</Start><Expiry>2030-01-01T00:00:00.5000000Z</Expiry>" in text
    assert (
        "<SignedIdentifier><Id>bare</Id></SignedIdentifier><SignedIdentifier><Id>empty</Id></SignedIdentifier>" in text
    )

    await acl(api, b"")
    assert b"<Id>" not in (await acl(api)).body
    moment = "2030-01-01T00:00:00.0000000Z"
    for has in (f"<Start>{moment}</Start>", f"<Expiry>{moment}</Expiry>", "<Permission>r</Permission>"):
        document = f"<SignedIdentifiers>{identifier(has)}</SignedIdentifiers>".encode()
        assert (await acl(api, document)).status == 204
        assert document in (await acl(api)).body
    await acl(api, POLICIES)
    await api("DELETE", "/Tables('Tab')")
    await api("POST", "/Tables", {"TableName": "Tab"})
    assert b"<Id>" not in (await acl(api)).body


XML = "XML specified is not syntactically valid. "
VALUE = "The value for one of the XML nodes is not in the correct format: "
LETTERS = "is not made of the letters 'raud', each once at most."
NO_TIME = "is not a time such as 2024-02-29T12:34:56Z."


@pytest.mark.parametrize(
    ("inside", "said"),
    [
        ("<SignedIdentifier><Id>a</Id></SignedIdentifier>" * 2, f"{XML}The Id 'a' is given twice."),
        (identifier("", "a" * 90), f"{XML}An Id has 1 to 64 characters (got '{'a' * 80}')."),
        ("<SignedIdentifier><Id></Id></SignedIdentifier>", f"{XML}An Id has 1 to 64 characters (got '')."),
        ("<SignedIdentifier>", f"{XML}mismatched tag: line 1, column 39."),
        (
            "<SignedIdentifier><Id>a</Id><AccessPolicy/><AccessPolicy/></SignedIdentifier>",
            f"{XML}SignedIdentifier has 2 elements AccessPolicy.",
        ),
        (identifier("<Permission>rx</Permission>"), f"{VALUE}Permission 'rx' {LETTERS}"),
        (identifier(f"<Permission>{'r' * 90}</Permission>"), f"{VALUE}Permission '{'r' * 80}' {LETTERS}"),
        (identifier("<Expiry>soon</Expiry>"), f"{VALUE}Expiry 'soon' {NO_TIME}"),
    ],
)
async def test_policies_that_are_refused(api: Api, inside: str, said: str) -> None:
    """Too many, twice the same, or malformed policies are rejected, in XML; those that there are stay."""
    await acl(api, POLICIES)
    reply = await acl(api, f"<SignedIdentifiers>{inside}</SignedIdentifiers>".encode())

    code = "InvalidXmlDocument" if said.startswith(XML) else "InvalidXmlNodeValue"
    assert (reply.status, reply.code, reply.headers["Content-Type"]) == (400, code, "application/xml")
    assert reply.said == said
    assert b"<Id>full</Id>" in (await acl(api)).body


async def test_documents_that_grow(api: Api) -> None:
    """A document with entities is rejected before any is expanded; one with another root is none of policies."""
    entities = b'<!DOCTYPE a [<!ENTITY b "xx"><!ENTITY c "&b;&b;">]>'
    bomb = b'<?xml version="1.0"?>' + entities + b"<SignedIdentifiers>&c;</SignedIdentifiers>"

    for document in (bomb, b"<Other/>"):
        assert (await acl(api, document)).code == "InvalidXmlDocument"


SERVICE = "restype=service&comp=properties"
LOGGING = (
    "<Logging><Version>1.0</Version><Delete>true</Delete><Read>false</Read><Write>true</Write>"
    "<RetentionPolicy><Enabled>true</Enabled><Days>5</Days></RetentionPolicy></Logging>"
)
METRICS = (
    "<HourMetrics><Version>1.0</Version><Enabled>true</Enabled><IncludeAPIs>true</IncludeAPIs>"
    "<RetentionPolicy><Enabled>false</Enabled></RetentionPolicy></HourMetrics>"
)
RULE = (
    "<CorsRule><AllowedOrigins>https://a.example,https://b.example</AllowedOrigins><AllowedMethods>GET,PUT</AllowedMethods>"
    "<AllowedHeaders>x-ms-meta*,content-type</AllowedHeaders><ExposedHeaders>x-ms-*</ExposedHeaders>"
    "<MaxAgeInSeconds>60</MaxAgeInSeconds></CorsRule>"
)

RULE_PARTS = ["AllowedOrigins", "AllowedMethods", "AllowedHeaders", "ExposedHeaders", "MaxAgeInSeconds"]


def without(document: str, name: str, instead: str = "") -> str:
    """Return a document with something else in place of an element."""
    return re.sub(f"<{name}>.*?</{name}>", instead, document, count=1)


async def service(api: Api) -> bytes:
    return (await api("GET", "/", query=SERVICE)).body


async def put_service(api: Api, inside: str) -> Reply:
    body = f"<StorageServiceProperties>{inside}</StorageServiceProperties>".encode()
    return await api("PUT", "/", body, query=SERVICE, Content_Type="application/xml")


@pytest.mark.parametrize("method", ["DELETE", "GET", "HEAD", "MERGE", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"])
async def test_methods_of_rules(api: Api, method: str) -> None:
    """Those that the service has can be allowed, and no others."""
    changed = without(RULE, "AllowedMethods", f"<AllowedMethods>{method}</AllowedMethods>")
    reply = await put_service(api, f"<Cors>{changed}</Cors>")
    assert reply.status == (400 if method == "TRACE" else 202)
    assert method != "TRACE" or reply.code == "InvalidXmlNodeValue"


async def test_properties_that_are_answered_can_be_sent(api: Api) -> None:
    """
    The document that is answered has all sections, which are off at first, and what was set of each; it is accepted,
    and changes nothing. An empty section of rules clears them.
    """
    minutes = METRICS.replace("HourMetrics", "MinuteMetrics").replace("<IncludeAPIs>true", "<IncludeAPIs>false")
    # The service puts the elements of a rule into another order.
    names = ("AllowedOrigins", "AllowedMethods", "MaxAgeInSeconds", "ExposedHeaders", "AllowedHeaders")
    found = dict(re.findall(r"<(\w+)>([^<]+)</", RULE)) | {"ExposedHeaders": "x-a,x-b"}
    rule = "".join(f"<{name}>{found[name]}</{name}>" for name in names)
    rules = "<Cors>" + f"<CorsRule>{rule}</CorsRule>" * 5 + "</Cors>"
    off = (await service(api)).decode()
    assert (off.count("<Enabled>false</Enabled>"), "IncludeAPIs" in off) == (5, False)
    settings = ("", LOGGING, METRICS, minutes, rules, "<Cors/>")
    for number, inside in enumerate(settings):
        assert (await put_service(api, inside)).status == 202
        answered = await service(api)
        sections = list(ET.fromstring(answered))
        assert [each.tag for each in sections] == ["Logging", "HourMetrics", "MinuteMetrics", "Cors"]
        assert [each.findtext("Version") for each in sections[:3]] == ["1.0"] * 3
        assert len(sections[3]) == (5 if inside == rules else 0)
        kept = settings[: number + 1] if inside != "<Cors/>" else settings[:4]
        assert [each for each in kept if each not in answered.decode()] == []
        assert (await api("PUT", "/", answered, query=SERVICE, Content_Type="application/xml")).status == 202
        assert await service(api) == answered


@pytest.mark.parametrize(
    "inside",
    [
        *(f"<Cors>{without(RULE, name)}</Cors>" for name in RULE_PARTS),
        *(f"<Cors>{RULE.replace(f'<{name}>', f'<{name}/><{name}>')}</Cors>" for name in RULE_PARTS),
        f"<Cors>{without(RULE, 'AllowedOrigins', '<AllowedOrigins>,</AllowedOrigins>')}</Cors>",
        f"<Cors>{without(RULE, 'AllowedMethods', '<AllowedMethods/>')}</Cors>",
        f"<Cors>{RULE.replace('x-ms-*', 'ä')}</Cors>",
        f"<Cors>{RULE.replace('x-ms-*', 'a&#9;b')}</Cors>",
        f"<Cors>{RULE.replace('60', '-1')}</Cors>",
        f"<Cors>{RULE.replace('60', '6 0')}</Cors>",
        f"<Cors>{RULE.replace('60', '')}</Cors>",
        "<Cors/><Cors/>",
        "<Cors>",
    ],
)
async def test_properties_that_are_refused(api: Api, inside: str) -> None:
    """Properties out of range are rejected with 400."""
    reply = await put_service(api, inside)

    assert reply.status == 400
    assert reply.code in ("InvalidXmlDocument", "InvalidXmlNodeValue")


@pytest.mark.parametrize(
    ("inside", "said"),
    [
        (LOGGING * 2, f"{XML}StorageServiceProperties has 2 elements Logging."),
        (without(LOGGING, "Version"), f"{VALUE}Version '' is not 1.0."),
        (LOGGING.replace("1.0", "2.0"), f"{VALUE}Version '2.0' is not 1.0."),
        (LOGGING.replace("<Delete>true", "<Delete>yes"), f"{VALUE}Delete 'yes' is neither true nor false."),
        (without(LOGGING, "RetentionPolicy"), f"{XML}Logging has no RetentionPolicy."),
        (without(METRICS, "RetentionPolicy"), f"{XML}HourMetrics has no RetentionPolicy."),
        (LOGGING.replace("<Days>5", "<Days>0"), f"{VALUE}Days '0' is not a number from 1 to 365."),
        (
            METRICS.replace("<Enabled>true", "<Enabled>false"),
            f"{XML}IncludeAPIs is allowed only where Enabled is true.",
        ),
    ],
)
async def test_sections_that_are_refused(api: Api, inside: str, said: str) -> None:
    """What is missing, given twice or out of range is told by its name, and changes nothing."""
    before = await service(api)
    reply = await put_service(api, inside)

    code = "InvalidXmlDocument" if said.startswith(XML) else "InvalidXmlNodeValue"
    assert (reply.status, reply.code, reply.said) == (400, code, said)
    assert await service(api) == before


async def preflight(api: Api, **headers: str) -> dict[str, str]:
    reply = await api("OPTIONS", "/Tab()", scheme=None, headers=headers)
    names = {name: value for name, value in reply.headers.items() if name.startswith("Access-Control")}
    return names | {"status": str(reply.status), "code": reply.headers.get("x-ms-error-code", "")}


async def test_preflight(api: Api) -> None:
    """Rules are obeyed: origin, method and each header must be allowed by one of them."""
    asked = {"Origin": "https://a.example", "Access_Control_Request_Method": "PUT"}
    assert (await preflight(api, **asked))["code"] == "CorsPreflightFailure"
    await put_service(api, f"<Cors>{RULE}</Cors>")

    allowed = await preflight(api, **asked, Access_Control_Request_Headers="X-Ms-Meta-a, Content-Type")
    assert allowed == {
        "status": "200",
        "code": "",
        "Access-Control-Allow-Origin": "https://a.example",
        "Access-Control-Allow-Methods": "PUT",
        "Access-Control-Allow-Headers": "X-Ms-Meta-a, Content-Type",
        "Access-Control-Max-Age": "60",
        "Access-Control-Allow-Credentials": "true",
    }
    for wrong in (
        {"Origin": "https://A.example"},
        {"Access_Control_Request_Method": "DELETE"},
        {"Access_Control_Request_Headers": "if-match"},
    ):
        refused = await preflight(api, **(asked | wrong))
        assert (refused["status"], refused["code"]) == ("403", "CorsPreflightFailure")
    assert (await preflight(api, Origin="https://a.example"))["status"] == "400"


async def test_cors_of_requests(api: Api) -> None:
    """An answer to a page of an allowed origin may be read by it; to others it says nothing."""
    await put_service(api, f"<Cors>{RULE}</Cors>")

    allowed = await api("GET", "/Tab()", Origin="https://b.example")
    assert allowed.headers["Access-Control-Allow-Origin"] == "https://b.example"
    assert allowed.headers["Access-Control-Expose-Headers"] == "x-ms-*"
    assert allowed.headers["Vary"] == "Origin"
    failed = await api("GET", "/None", Origin="https://b.example")
    assert failed.headers["Access-Control-Allow-Origin"] == "https://b.example"
    other = await api("GET", "/Tab()", Origin="https://c.example")
    assert (other.status, "Access-Control-Allow-Origin" in other.headers) == (403, False)

    await put_service(api, f"<Cors>{RULE.replace('https://a.example,https://b.example', '*')}</Cors>")
    anybody = await api("GET", "/Tab()", Origin="https://c.example")
    assert anybody.headers["Access-Control-Allow-Origin"] == "*"
    assert "Access-Control-Allow-Credentials" not in anybody.headers


@pytest.mark.parametrize("path", ["/Tab", "/Tab/", "/Tab()", "/None", "/Tab/x"])
@pytest.mark.parametrize(("verb", "comp"), [("GET", "properties"), ("PUT", "properties"), ("GET", "stats")])
async def test_the_service_below_a_table(api: Api, path: str, verb: str, comp: str) -> None:
    """Who was given a table's URL as the account's, and asks for the service, gets the answer that SDKs know."""
    reply = await api(verb, path, b"{}" if verb == "PUT" else None, query=f"restype=service&comp={comp}")

    assert (reply.status, reply.code) == (400, "InvalidQueryParameterValue")
    assert b"Value for one of the query parameters specified in the request URI is invalid" in reply.body


async def test_the_first_version_with_policies(api: Api) -> None:
    """The policies of a table are read and set in versions from before there was JSON; nothing else is."""
    body = b"<SignedIdentifiers><SignedIdentifier><Id>one</Id></SignedIdentifier></SignedIdentifiers>"
    old = {"x-ms-version": "2012-02-12"}

    assert (await api("PUT", "/Tab", body, query="comp=acl", headers=old)).status == 204
    reply = await api("GET", "/Tab", query="comp=acl", headers=old)
    assert (reply.status, reply.headers["x-ms-version"]) == (200, "2012-02-12")
    assert b"<Id>one</Id>" in reply.body
    older = await api("GET", "/Tab", query="comp=acl", headers={"x-ms-version": "2011-08-18"})
    assert (older.status, older.code) == (400, "InvalidHeaderValue")
    assert (await api("GET", "/Tab", headers=old)).code == "InvalidHeaderValue"


@pytest.mark.parametrize("content", ["____", "A", "Tab.", "VGFi=", "gA", "", "ISE"])
async def test_continuations_of_tables_that_are_made_up(api: Api, content: str) -> None:
    """A continuation of the right form that is no name is rejected, and does not start at the first page."""
    reply = await api("GET", "/Tables", query=f"NextTableName=1!{len(content)}!{content}")

    assert (reply.status, reply.code) == (400, "InvalidInput")


async def test_a_refused_change_that_nobody_waits_for() -> None:
    """A change that is rejected after its client has gone leaves nothing in the log."""
    heard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
    gone = asyncio.Event()

    async def refuse() -> Answer:
        await gone.wait()
        raise Fault(Code.RESOURCE_NOT_FOUND, "The specified resource does not exist.")

    async with opened(None) as engine:
        request = asyncio.create_task(TableChanges().run(engine, refuse))
        await asyncio.sleep(0.01)
        request.cancel()
        asyncio.get_running_loop().call_later(0.01, gone.set)
        with pytest.raises(asyncio.CancelledError):
            await request
        gc.collect()
        await asyncio.sleep(0)
    assert heard == []


async def test_a_change_is_told_though_the_names_cannot_be_read_after_it(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client is told that its table is made, even if another program prevents the server from reading afterwards."""

    async def fail(*_: object, **__: object) -> list[str]:
        raise Fault(Code.SERVER_BUSY, "another process holds the write lock")

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "list_tables", fail)
        assert (await api("POST", "/Tables", {"TableName": "Other"})).status == 201
        assert (await api("POST", "/Tables", {"TableName": "Other"})).code == "TableAlreadyExists"
        assert (await api("DELETE", "/Tables('Tab')")).status == 204
    assert [row["TableName"] for row in (await api("GET", "/Tables")).rows] == ["Other"]


async def test_a_change_whose_caller_is_gone_holds_its_place() -> None:
    """The next change begins when it has ended, as if somebody still waited for it."""
    changes, steps = TableChanges(), list[str]()
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> Answer:
        begun.set()
        await go_on.wait()
        steps.append("ended")
        return Answer(204)

    async def next_one() -> Answer:
        steps.append("next")
        return Answer(204)

    async with opened(None) as engine:
        first = asyncio.create_task(changes.run(engine, slow))
        await begun.wait()
        second = asyncio.create_task(changes.run(engine, next_one))
        first.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
        go_on.set()
        await asyncio.wait([first, second])

    assert first.cancelled()
    assert steps == ["ended", "next"]
