"""
What a client is told of a request that cannot be read: the code of the service, and what is wrong with which part.
"""

from collections.abc import Callable, Mapping, Sequence

import pytest
from multidict import CIMultiDict

from tableorm.protocol.codes import Code, Fault
from tableorm_local.server.wire import continuations, multipart, options, xml
from tableorm_local.server.wire.addressing import Kind, Place, Resource, place_of, resource_of
from tableorm_local.server.wire.bodies import read_entity, read_object
from tableorm_local.server.wire.calls import Call, internal_error
from tests.local.server.client import finish

PLACE = Place(account="a", secondary=False, path="/", resource_path="/", root="")
LONG = "x" * 2000


def call_of(headers: Mapping[str, str] | None = None, **query: str) -> Call:
    """A call with these headers and parameters of the query, whose names begin with `$`."""
    named = {name if name == "timeout" else f"${name}": value for name, value in query.items()}
    return Call(
        verb="GET", place=PLACE, resource=Resource(Kind.SERVICE), options=named, headers=CIMultiDict(headers or {})
    )


def verb_of(verb: str, *methods: str) -> str:
    return options.effective_verb(verb, CIMultiDict([("X-HTTP-Method", method) for method in methods]))


def place(host: str = "h", target: str = "/a") -> Place:
    return place_of(lambda name: ("a", False) if name == "a" else None, "http", host, target)


def filtered(text: str) -> object:
    return finish(options.read_filter(call_of(filter=text)))


def transaction(body: str | bytes, kind: str = "multipart/mixed; boundary=b") -> multipart.Parts:
    return finish(multipart.read(kind, body if isinstance(body, bytes) else body.encode()))


def part(text: str | bytes) -> multipart.Parts:
    """Read a transaction whose change set has this part."""
    text = text if isinstance(text, bytes) else text.encode()
    head = b"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\n"
    return transaction(head + text + b"\r\n--c--\r\n--b--\r\n")


def request(line: str | bytes, headers: str = "") -> multipart.Parts:
    line = line if isinstance(line, bytes) else line.encode()
    return part(f"Content-Type: application/http\r\n{headers}\r\n".encode() + line + b"\r\n\r\n{}")


def row(inside: str, keys: tuple[str, str] | None = ("p", "r")) -> object:
    return read_entity(f"{{{inside}}}".encode(), keys)


def element(text: str) -> xml.Element:
    return xml.parse(f"<R><A>{text}</A></R>".encode(), "R")


INPUT = "One of the request inputs is not valid: "
FRAME = f"{INPUT}the transaction "
QUERY = "Value for one of the query parameters specified in the request URI is invalid: "
PARAMETERS = "The query is not UTF-8 once it is percent-decoded, or has more than 64 parameters."
HEADER = "The value for one of the HTTP headers is not in the correct format: "
MEDIA = "None of the provided media types are supported: "
MISSING = "The requested operation is not implemented on the specified resource: "
FUNCTION = (
    "filter at position 0: the service has no functions such as 'startswith'; for a prefix write Name ge 'ab' and "
    "Name lt 'ac': >>>startswith(A, 'x')."
)
HOST = (
    "The required host information is not present in the request: Host must be the name of a machine, of at most 253 "
    "characters, with or without a port."
)
ESCAPE = "The requested URI is invalid: it has a % without two hexadecimal digits; write % as %25."
NOTHING = (
    "The requested URI does not represent any resource on the server. It must be a path, or begin with http:// or "
    "https:// and the name of a machine."
)
PATHS = (
    "Bad Request - Error in query syntax. The path must be one of /Tables, /Tables('NAME'), /NAME(), "
    "/NAME(PartitionKey='..',RowKey='..') and /$batch."
)
KEYS = "The values are not specified for all properties in the entity. "
XML = "XML specified is not syntactically valid. "
VALUE = "The value for one of the XML nodes is not in the correct format: "
REFUSED: dict[str, Sequence[tuple[Code, str, Callable[[], object]]]] = {
    "queries and headers": [
        (Code.INVALID_URI, ESCAPE, lambda: options.options_of("a=%zz")),
        (Code.INVALID_QUERY_PARAMETER, PARAMETERS, lambda: options.options_of("a=%ff")),
        (Code.INVALID_QUERY_PARAMETER, PARAMETERS, lambda: options.options_of("a=\udcff")),
        (Code.INVALID_QUERY_PARAMETER, PARAMETERS, lambda: options.options_of("a=&" * 65)),
        (
            Code.INVALID_QUERY_PARAMETER,
            f"The query parameter '{'x' * 80}' is given more than once.",
            lambda: options.options_of(f"a=1&{LONG}=1&b=1&{LONG}=2"),
        ),
        (
            Code.INVALID_HEADER_VALUE,
            f"{HEADER}x-ms-version '{'x' * 40}' is not a version of the service from 2013-08-15 on.",
            lambda: options.version_of({"x-ms-version": LONG}, {}),
        ),
        (
            Code.INVALID_HEADER_VALUE,
            "x-ms-client-request-id must have at most 1024 characters, all of them visible.",
            lambda: options.check_client_request_id({"x-ms-client-request-id": "a b"}),
        ),
        (Code.XMETHOD_COUNT, "X-HTTP-Method is given more than once.", lambda: verb_of("POST", "MERGE", "MERGE")),
        (Code.XMETHOD_NOT_POST, "X-HTTP-Method needs the verb POST (got PUT).", lambda: verb_of("PUT", "MERGE")),
        (Code.XMETHOD_VALUE, f"X-HTTP-Method must be MERGE (got '{'x' * 40}').", lambda: verb_of("POST", LONG)),
        (
            Code.NOT_IMPLEMENTED,
            f"{MISSING}'${'x' * 39}'; there are $filter, $format, $select, $top.",
            lambda: options.check_options(call_of({}, **{LONG: ""})),
        ),
        (
            Code.INVALID_QUERY_PARAMETER,
            f"{QUERY}timeout '{'x' * 40}' is not a number of seconds.",
            lambda: options.check_options(call_of(timeout=LONG)),
        ),
        (
            Code.INVALID_INPUT,
            f"{INPUT}$filter has 401 comparisons, 400 are allowed.",
            lambda: filtered("A eq 1 or " * 400 + "A eq 1"),
        ),
        (
            Code.INVALID_INPUT,
            f"{INPUT}$filter has 801 opening parentheses and nots, 800 are allowed.",
            lambda: filtered("(" * 801 + "A eq 1"),
        ),
        (
            Code.INVALID_INPUT,
            f"{INPUT}filter at position 4: the filter ends where a property or a constant is expected: A eq>>>.",
            lambda: filtered("A eq"),
        ),
        (
            Code.NOT_IMPLEMENTED,
            f"{INPUT}{FUNCTION}",
            lambda: filtered("startswith(A, 'x')"),
        ),
        (Code.INVALID_INPUT, f"{INPUT}$top is '{'x' * 20}', not 0 to 1000.", lambda: options.top_of(call_of(top=LONG))),
        (
            Code.INVALID_INPUT,
            f"{INPUT}$select has 511 commas, 510 are allowed.",
            lambda: options.select_of(call_of(select="," * 511)),
        ),
        (
            Code.INVALID_INPUT,
            f"{INPUT}$select has 256 names, 255 are allowed.",
            lambda: options.select_of(call_of(select=",".join(map(str, range(256))))),
        ),
        (
            Code.INVALID_INPUT,
            f"{INPUT}$select has the name '{'x' * 40}'... of 256 characters, 255 are allowed.",
            lambda: options.select_of(call_of(select=f"z,{'x' * 256},B")),
        ),
        (
            Code.MEDIA_TYPE_NOT_SUPPORTED,
            f"{MEDIA}Accept and $format may have 1000 characters (got 2000).",
            lambda: options.level_of(call_of({"Accept": LONG})),
        ),
        (
            Code.ATOM_NOT_SUPPORTED,
            "Atom format is not supported; accept application/json.",
            lambda: options.level_of(call_of({"Accept": "application/atom+xml"})),
        ),
        (
            Code.MEDIA_TYPE_NOT_SUPPORTED,
            f"{MEDIA}'{'x' * 80}'; accept application/json.",
            lambda: options.level_of(call_of({"Accept": "x" * 90})),
        ),
        (
            Code.MEDIA_TYPE_NOT_SUPPORTED,
            f"{MEDIA}there is no odata='{'x' * 40}'.",
            lambda: options.level_of(call_of({"Accept": "application/json;odata=" + "x" * 50})),
        ),
        (
            Code.ATOM_NOT_SUPPORTED,
            "Atom format is not supported; send application/json.",
            lambda: options.check_json_body(call_of({"Content-Type": "application/atom+xml; charset=utf-8"})),
        ),
        (
            Code.MEDIA_TYPE_NOT_SUPPORTED,
            f"{MEDIA}'{'x' * 80}'; send application/json.",
            lambda: options.check_json_body(call_of({"Content-Type": "x" * 90})),
        ),
        (
            Code.INVALID_INPUT,
            f"{INPUT}If-None-Match has no meaning for a write.",
            lambda: options.if_match_of(call_of({"If-None-Match": "*"})),
        ),
        (
            Code.INVALID_INPUT,
            f"{INPUT}If-Match '{'x' * 80}' is not one ETag or '*'.",
            lambda: options.if_match_of(call_of({"If-Match": "x" * 90})),
        ),
    ],
    "addresses": [
        (Code.HOST_INFORMATION_NOT_PRESENT, HOST, lambda: place(host="a b")),
        (Code.INVALID_URI, NOTHING, lambda: place(target="http://[/a")),
        (Code.INVALID_URI, NOTHING, lambda: place(target="mailto:a")),
        (
            Code.RESOURCE_NOT_FOUND,
            "The specified resource does not exist. No such account is served here.",
            lambda: place(target="/b"),
        ),
        (Code.INVALID_URI, ESCAPE, lambda: resource_of("/Tab%2")),
        (
            Code.INVALID_URI,
            "The requested URI is not UTF-8 once it is percent-decoded.",
            lambda: resource_of("/Tab%ff"),
        ),
        (Code.INVALID_INPUT, PATHS, lambda: resource_of("/Tab(x)")),
        (Code.INVALID_INPUT, PATHS, lambda: resource_of("/(x)")),
    ],
    "bodies": [
        (Code.INVALID_INPUT, f"{INPUT}the request has no body.", lambda: read_object(b"")),
        (
            Code.TOO_MANY_PROPERTIES,
            "The object has 2001 names and texts; at most 2000 are allowed.",
            lambda: read_object(b"[" + b'"",' * 2001),
        ),
        (
            Code.DUPLICATE_PROPERTIES,
            "A property is specified more than one time; give each name once.",
            lambda: read_object(b'{"a":1,"a":2}'),
        ),
        (
            Code.TOO_MANY_PROPERTIES,
            "The entity has 1001 members; at most 1000 are allowed.",
            lambda: row(",".join(f'"p{number}":1' for number in range(1001))),
        ),
        (Code.PROPERTIES_NEED_VALUE, f"{KEYS}RowKey is missing.", lambda: row('"PartitionKey":"p"', None)),
        (Code.PROPERTIES_NEED_VALUE, f"{KEYS}PartitionKey is missing.", lambda: row('"RowKey":"r"', None)),
        (Code.INVALID_INPUT, f"{INPUT}RowKey is not text.", lambda: row('"PartitionKey":"p","RowKey":1', None)),
        (
            Code.INVALID_INPUT,
            f"{INPUT}PartitionKey is not text.",
            lambda: row('"PartitionKey":"p","PartitionKey@odata.type":"Edm.Guid","RowKey":"r"', None),
        ),
        (
            Code.INVALID_INPUT,
            f"{INPUT}'{'x' * 80}' annotates a property that is missing.",
            lambda: row(f'"{"x" * 90}@odata.type":"Edm.Int64"'),
        ),
        (
            Code.PROPERTY_NAME_INVALID,
            f"The property name '{'x' * 70}@odata.typ' is invalid: it has an @.",
            lambda: row(f'"{"x" * 70}@odata.typex":1'),
        ),
        (
            Code.INVALID_INPUT,
            f"{INPUT}{'x' * 80}: '{'y' * 40}' is not an {'z' * 40}.",
            lambda: row(f'"{"x" * 90}":"{"y" * 50}","{"x" * 90}@odata.type":"{"z" * 50}"'),
        ),
        (
            Code.INVALID_INPUT,
            f"{INPUT}x: '2147483648' is not an integer of that size.",
            lambda: row('"x":2147483648,"x@odata.type":"Edm.Int32"'),
        ),
        (
            Code.INVALID_INPUT,
            f"{INPUT}x: '9223372036854775808' is not an integer of that size.",
            lambda: row('"x":"9223372036854775808","x@odata.type":"Edm.Int64"'),
        ),
        (Code.INVALID_INPUT, f"{INPUT}x: '{'9' * 40}' is not an Edm.Double.", lambda: row(f'"x":{"9" * 400}')),
        (
            Code.KEY_OUT_OF_RANGE,
            (
                "One of the request inputs is out of range: x: '1500-01-01T00:00Z' is outside the range of "
                "Edm.DateTime, 1601-01-01 to 9999-12-31."
            ),
            lambda: row('"x":"1500-01-01T00:00Z","x@odata.type":"Edm.DateTime"'),
        ),
    ],
    "continuations": [
        (
            Code.INVALID_INPUT,
            f"{INPUT}the continuation '{'x' * 80}' is malformed; send that of the page before, unchanged.",
            lambda: continuations.first_entity({"NextPartitionKey": "x" * 90}),
        ),
        (
            Code.INVALID_INPUT,
            f"{INPUT}the continuation '1!2!AA' is malformed; send that of the page before, unchanged.",
            lambda: continuations.first_table({"NextTableName": "1!2!AA"}),
        ),
    ],
    "transactions": [
        (
            Code.MEDIA_TYPE_NOT_SUPPORTED,
            f"{MEDIA}'{'x' * 80}'; send multipart/mixed; boundary=",
            lambda: transaction("", "x" * 90),
        ),
        (
            Code.MEDIA_TYPE_NOT_SUPPORTED,
            f"{MEDIA}'multipart/mixed; boundary=ä'; send multipart/mixed; boundary=",
            lambda: transaction("", "multipart/mixed; boundary=ä"),
        ),
        (Code.INVALID_INPUT, f"{FRAME}ends without its last delimiter line '--b'--.", lambda: transaction("--b\r\n")),
        (
            Code.INVALID_INPUT,
            f"{FRAME}ends without its last delimiter line '--{'x' * 77}'--.",
            lambda: transaction(f"--{LONG[:90]}\r\n", f"multipart/mixed; boundary={LONG[:90]}"),
        ),
        (Code.INVALID_INPUT, f"{FRAME}ends without its last delimiter line '--b'--.", lambda: transaction("--b")),
        (Code.INVALID_INPUT, f"{FRAME}has a line that is not a header: b' : a'.", lambda: part(" : a")),
        (Code.INVALID_INPUT, f"{FRAME}has a part that is not application/http, but ''.", lambda: part("A: b")),
        (Code.INVALID_INPUT, f"{FRAME}has a part of type ''.", lambda: transaction("--b\nA: b\n\n--b--")),
        (
            Code.INVALID_INPUT,
            f"{FRAME}has more than 202 lines that begin like a delimiter and go on.",
            lambda: transaction("--bx\n" * 203),
        ),
        (
            Code.INVALID_INPUT,
            f"{FRAME}has more than one change set, or a change set and queries.",
            lambda: transaction("--b\n\n--b\n\n--b--"),
        ),
        (
            Code.INVALID_INPUT,
            f"{FRAME}has a part of type '{'x' * 80}'.",
            lambda: transaction(f"--b\nContent-Type: {'x' * 90}\n\n--b--"),
        ),
        (
            Code.INVALID_INPUT,
            f"{FRAME}has a part with 65 lines of headers, 64 are allowed.",
            lambda: transaction("--b\n" + "A: b\n" * 65 + "\n\n--b--"),
        ),
        (
            Code.INVALID_INPUT,
            f"{FRAME}has a part with headers of more than 16384 bytes.",
            lambda: transaction("--b\n" + LONG * 10 + "\n--b--"),
        ),
        (
            Code.INVALID_INPUT,
            f"{FRAME}has a line that is not a header: b'XXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX'.",
            lambda: part("X" * 50),
        ),
        (Code.INVALID_INPUT, f"{FRAME}has a header that is not UTF-8: b'A: \\xff'.", lambda: part(b"A: \xff\r\n\r\n")),
        (
            Code.INVALID_INPUT,
            f"{FRAME}has a part that is not application/http, but '{'x' * 80}'.",
            lambda: part(f"Content-Type: {'x' * 90}"),
        ),
        (
            Code.INVALID_INPUT,
            f"{FRAME}has a part with a request line of more than 16384 bytes.",
            lambda: request("GET /" + LONG * 10),
        ),
        (
            Code.INVALID_INPUT,
            f"{FRAME}has a part without a request line: b'get / HTTP/1.1{'x' * 66}'.",
            lambda: request("get / HTTP/1.1" + LONG),
        ),
        (Code.INVALID_INPUT, f"{FRAME}has a URL that is not UTF-8.", lambda: request(b"GET /\xff HTTP/1.1")),
        (
            Code.INVALID_INPUT,
            f"{FRAME}has the Content-ID 'a {'x' * 38}', which is not up to 100 visible characters.",
            lambda: request("GET / HTTP/1.1", f"Content-ID: a {LONG}\r\n"),
        ),
    ],
    "documents": [
        (
            Code.INVALID_XML_DOCUMENT,
            f"{XML}The document has 65537 bytes, 65536 are allowed.",
            lambda: xml.parse(b"x" * (64 * 1024 + 1), "R"),
        ),
        (Code.INVALID_XML_DOCUMENT, f"{XML}The document is not UTF-8.", lambda: xml.parse(b"\xff", "R")),
        (
            Code.INVALID_XML_DOCUMENT,
            f"{XML}A document type (<!DOCTYPE) is not allowed.",
            lambda: xml.parse(b"<!DOCTYPE a>", "R"),
        ),
        (
            Code.INVALID_XML_DOCUMENT,
            f"{XML}A document type (<!DOCTYPE) is not allowed.",
            lambda: xml.parse(b"<!ENTITY a>", "R"),
        ),
        (
            Code.INVALID_XML_DOCUMENT,
            f"{XML}The root element is '{'x' * 80}', not 'R'.",
            lambda: xml.parse(f"<{LONG}/>".encode(), "R"),
        ),
        (
            Code.INVALID_XML_NODE_VALUE,
            f"{VALUE}A '{'x' * 80}' is neither true nor false.",
            lambda: xml.boolean(element("x" * 90), "A"),
        ),
        (
            Code.INVALID_XML_NODE_VALUE,
            f"{VALUE}A '0' is not a number from 1 to 5.",
            lambda: xml.number(element("0"), "A", 1, 5),
        ),
        (
            Code.INVALID_XML_NODE_VALUE,
            f"{VALUE}A '6' is not a number from 1 to 5.",
            lambda: xml.number(element("6"), "A", 1, 5),
        ),
    ],
}


@pytest.mark.parametrize("part", REFUSED)
def test_what_is_said(part: str) -> None:
    """The code of the service and the whole message; of what is long there is the begin."""
    for code, message, read in REFUSED[part]:
        with pytest.raises(Fault) as caught:
            read()
        assert (caught.value.code, caught.value.message, caught.value.index) == (code, message, None)


def test_what_is_said_of_an_error_of_the_server() -> None:
    """It is the service's own sentence, so that clients try again."""
    fault = internal_error()

    message = "Server encountered an internal error. Please try again after some time."
    assert (fault.code, fault.message, fault.index) == (Code.INTERNAL_ERROR, message, None)
