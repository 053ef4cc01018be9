"""
Inputs of the fuzzer: requests as clients send them, with something wrong.

Most are changed before they are signed, so that what is wrong gets past the signature; others are changed as bytes. The
same seed and number give the same input, but for its date and what hangs on that.
"""

import functools
import gzip
import random
import re
from collections.abc import Callable, Sequence
from urllib.parse import quote

import attrs

from tableorm.protocol.sas import AccountSas, TableSas, sign_sas
from tableorm.protocol.shared_key import Scheme, SignedParts, authorization, decode_key
from tableorm_local.server import DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY
from tests.local.server.client import FULL_METADATA, NO_METADATA, http_date

KEY = decode_key(DEVELOPMENT_KEY)
BOUNDARY = "batch_1"
_SET = "changeset_1"
_MIXED = f"multipart/mixed; boundary={BOUNDARY}"
_ONE = "/Tab(PartitionKey='p',RowKey='r')"


@attrs.frozen
class Input:
    """
    What is sent over one connection.

    Args:
        pieces: One after the other.
        whole: Whether it is one request, framed as it should be, so that there is one answer and the connection stays.
    """

    pieces: Sequence[bytes]
    whole: bool


@attrs.define
class _Draft:
    """A request before it is signed; `path` follows the account."""

    verb: str
    path: str
    query: str = ""
    headers: list[tuple[str, str]] = attrs.field(factory=list[tuple[str, str]])
    body: bytes = b""
    kind: str = "application/json"

    def copy(self) -> "_Draft":
        return attrs.evolve(self, headers=list(self.headers))


def _batch(*parts: str, inner: str = _SET) -> _Draft:
    """A transaction of these parts; without `inner` a query by itself."""
    lines = [f"--{BOUNDARY}"]
    if inner:
        lines += [f"Content-Type: multipart/mixed; boundary={inner}", ""]
    for number, part in enumerate(parts):
        lines += [f"--{inner}"] if inner else []
        lines += ["Content-Type: application/http", "Content-Transfer-Encoding: binary"]
        lines += [f"Content-ID: {number}", "", part] if inner else ["", part]
    body = "\r\n".join([*lines, *([f"--{inner}--"] if inner else []), f"--{BOUNDARY}--", ""]).encode()
    return _Draft("POST", "/$batch", "", [], body, _MIXED)


def _part(verb: str, path: str, body: str = "", *headers: str) -> str:
    lines = [f"{verb} http://127.0.0.1/{DEVELOPMENT_ACCOUNT}{path} HTTP/1.1", "Accept: application/json", *headers]
    return "\r\n".join([*lines, *(["Content-Type: application/json"] if body else []), "", body])


_TYPED = (
    b'{"PartitionKey":"p","RowKey":"r","A":1,"B":"text","C":true,"D":1.5,"E@odata.type":"Edm.Int64","E":"123",'
    b'"F@odata.type":"Edm.DateTime","F":"2024-02-29T12:34:56.1234567Z","G@odata.type":"Edm.Guid",'
    b'"G":"c9da6455-213d-42c9-9a79-3e9149a57833","H@odata.type":"Edm.Binary","H":"AQID","I@odata.type":"Edm.Double",'
    b'"I":"NaN","J":null,"odata.etag":"W/\\"datetime\'2024-02-29T12%3A34%3A56.1Z\'\\"","Timestamp":"2024-02-29T00:00:00Z"}'
)
_PROPERTIES = (
    b'<?xml version="1.0" encoding="utf-8"?><StorageServiceProperties><Logging><Version>1.0</Version><Delete>true'
    b"</Delete><Read>false</Read><Write>true</Write><RetentionPolicy><Enabled>true</Enabled><Days>7</Days>"
    b"</RetentionPolicy></Logging><HourMetrics><Version>1.0</Version><Enabled>true</Enabled><IncludeAPIs>true"
    b"</IncludeAPIs><RetentionPolicy><Enabled>false</Enabled></RetentionPolicy></HourMetrics><Cors><CorsRule>"
    b"<AllowedOrigins>http://a.example,*</AllowedOrigins><AllowedMethods>GET,PUT</AllowedMethods><AllowedHeaders>"
    b"x-ms-*</AllowedHeaders><ExposedHeaders>ETag</ExposedHeaders><MaxAgeInSeconds>60</MaxAgeInSeconds></CorsRule>"
    b"</Cors></StorageServiceProperties>"
)
_POLICIES = (
    b'<?xml version="1.0" encoding="utf-8"?><SignedIdentifiers><SignedIdentifier><Id>readers</Id><AccessPolicy><Start>'
    b"2024-01-01T00:00:00Z</Start><Expiry>2099-01-01</Expiry><Permission>raud</Permission></AccessPolicy>"
    b"</SignedIdentifier></SignedIdentifiers>"
)
_ROW = '{"PartitionKey":"p","RowKey":"b1","A":1}'
_INSERT = _part("POST", "/Tab", _ROW, "Prefer: return-no-content")
_CORPUS = [
    _Draft("GET", "/", "restype=service&comp=properties"),
    _Draft("PUT", "/", "restype=service&comp=properties", [], _PROPERTIES, "application/xml"),
    _Draft("GET", "/", "restype=service&comp=stats"),
    _Draft("GET", "/Tables", "$filter=TableName%20ge%20'T'&$top=2", [("Accept", FULL_METADATA)]),
    _Draft("GET", "/Tables()", "NextTableName=1!4!VGFi&$top=1"),
    _Draft("POST", "/Tables", "", [("Prefer", "return-content")], b'{"TableName":"Tab"}'),
    _Draft("POST", "/Tables", "", [], b'{"TableName":"Other"}'),
    _Draft("GET", "/Tables('Tab')"),
    _Draft("DELETE", "/Tables('Other')"),
    _Draft("GET", "/Tab", "comp=acl"),
    _Draft("PUT", "/Tab", "comp=acl", [], _POLICIES, "application/xml"),
    _Draft("OPTIONS", "/Tab", "", [("Origin", "http://a.example"), ("Access-Control-Request-Method", "GET")]),
    _Draft(
        "GET", "/Tab()", "$filter=PartitionKey%20eq%20'p'%20and%20(A%20gt%205L%20or%20not%20B%20eq%20'x''y')&$top=5"
    ),
    _Draft("GET", "/Tab()", "$filter=F+ge+datetime'2024-02-29T00:00:00Z'&$select=A,B,PartitionKey&timeout=5"),
    _Draft("GET", "/Tab()", "NextPartitionKey=1!4!cAAA&NextRowKey=1!4!cgAA", [("Accept", NO_METADATA)]),
    _Draft("GET", "/Tab()", "$format=application/json;odata=fullmetadata"),
    _Draft("HEAD", _ONE),
    _Draft("GET", _ONE, "$select=A,H", [("Accept", FULL_METADATA), ("Accept-Encoding", "gzip")]),
    _Draft("GET", "/Tab(RowKey='O''Neill%20%C3%A9%2F',PartitionKey='%27%27')"),
    _Draft("POST", "/Tab", "", [("Accept", NO_METADATA), ("Prefer", "return-content")], _TYPED),
    _Draft("POST", "/Tab()", "", [("Accept", FULL_METADATA), ("x-ms-client-request-id", "mine")], _TYPED),
    _Draft("PUT", _ONE, "", [("If-Match", "*")], _TYPED),
    _Draft("PUT", _ONE, "", [], _TYPED),
    _Draft("PATCH", _ONE, "", [("If-Match", "W/\"datetime'2024-02-29T12%3A34%3A56.1234567Z'\"")], b'{"A":2}'),
    _Draft("MERGE", _ONE, "", [], b'{"A@odata.type":"Edm.Int32","A":"3"}'),
    _Draft("POST", _ONE, "", [("X-HTTP-Method", "MERGE")], b'{"A":4}'),
    _Draft("DELETE", _ONE, "", [("If-Match", "*")]),
    _batch(_INSERT, _part("PATCH", _ONE, '{"A":5}', "If-Match: *")),
    _batch(_part("DELETE", _ONE, "", "If-Match: *"), _INSERT),
    _batch(_part("PUT", _ONE, '{"A":5}'), _part("PUT", _ONE, "{}")),
    _batch(_part("GET", _ONE), inner=""),
    _batch(),
]

# fmt: off
_PATHS = [
    "/", "//", "()", "(", ")", "'", "''", "%27", "%2527", "%00", "%0d%0a", "%FF", "%C3%A9", "%2F", "\\", "#", "?",
    "$batch", "Tables", "Tables('Tab')", "Tab", "PartitionKey='", "',RowKey='", "..", "%", "%zz", "%F0%9F%A6%86",
    "\udc80", "\udcff", "\xe9", "http://[::1/", "*", "\x01", " ", "-secondary", ";", ",", "%ED%A0%80", "\x7f",
]
_QUERIES = [
    "&", "=", "+", "%20", "%", "%FF", "%00", "$filter=", "$top=0", "$top=1000", "$select=*", "$orderby=A", "sig=",
    "comp=acl", "comp=", "restype=service", "timeout=9", "timeout=-1", "NextPartitionKey=", "NextRowKey=1!0!",
    "NextTableName=1!4!\u0664", "sv=2019-02-02", "sv=9999-99-99", "si=readers", "tn=Tab", ";", "#", "?", "\udc80",
    "timeout=\u0665", "1!999999999999999999999!", "$top=\u0661", "sip=1.1.1.1-::1", "se=0001-01-01", "$format=json",
]
_FILTERS = [
    " and ", " or ", " not ", "(", ")", "((((", "A", "PartitionKey", " eq ", " ne ", " gt ", " le ", "''", "'", "5L",
    "datetime'", "guid'", "X'0", "binary'", "true", "null", "1e999", "-0", "9" * 40, "not(", "A eq ", ".5", "1.", "%",
    "datetime'9999-12-31T23:59:59.9999999Z'", "datetime'0001-01-01T00:00:00+23:59'", "startswith(A,'b')", "{}", "NaN",
    "\xa0", "\u0661", "\ud800", "\U0001f986", "\x00", "INF", "-", "_x", "A eq 1 and ", "not ", "X'00'", "1L ", "\t",
]
_JSON = [
    "{", "}", "[", "]", '"', ":", ",", "null", "true", "1e999", "-0", "1e-400", "9" * 400, "9223372036854775808",
    "NaN", '"A":', '"A@odata.type":', '"Edm.Int64"', '"Edm.DateTime"', '"Edm.Guid"', '"Edm.Binary"', '"Edm.Double"',
    '"Edm.X"', '"\\ud800"', '"\\u0000"', '"PartitionKey":null', '"RowKey":"\\/"', '"RowKey":5', '"@"',
    '"A@odata.type@odata.type":', '"9999-12-31T23:59:59.9999999+00:01"', '"0001-01-01T00:00:00+14:00"', "[[[[[[[[",
    "\\", "\\u", '"Timestamp":1', '""', '"10000-01-01T00:00:00Z"', '"2024-02-30T00:00:00Z"', '"\u0661"',
    '"odata.etag":[]', '"TableName":"a-b"', "-", "Infinity",
]
_LINES = [
    f"--{BOUNDARY}\r\n", f"--{BOUNDARY}--", f"--{_SET}\r\n", f"--{_SET}--\r\n", "\r\n\r\n", "\r\n", "\n", "\r", "--",
    "HTTP/1.1", "Content-Type: application/http\r\n", "Content-ID: \xe9\r\n",
    "Content-Type: multipart/mixed; boundary=x\r\n", ":", "GET /Tab() HTTP/1.1\r\n", "If-Match: *\r\n",
    "X-HTTP-Method: MERGE\r\n", "POST", "DELETE ", " ", "\t", "$1", "/$1", "\x00", 'If-Match: W/"datetime\'x\'"\r\n',
    "Prefer: return-content\r\n", "Content-Length: 5\r\n", "Tables('Tab')", "http://[", "?",
]
_XML = [
    "<", ">", "&amp;", "&lt", "<!DOCTYPE x>", "<!-- -->", "<![CDATA[", "]]>", "<Id>", "</Id>", "<Days>", "\u0661",
    "\x00", "9" * 50, "<SignedIdentifier>", "<AccessPolicy/>", "<CorsRule/>", "xmlns='x'", "<?x?>", "&#0;",
    "&#x110000;", "0001-01-01", "true",
]
# fmt: on
_HEADERS = [
    ("Accept", ["*/*", "application/atom+xml", "application/json;odata=x", "text/html;q=0.1,*/*", ";", "\u00e9", ","]),
    ("Accept-Encoding", ["gzip", "gzip;q=0", "*", "br"]),
    ("Access-Control-Request-Headers", ["x-ms-a,b", ",", "\u00e9"]),
    ("Connection", ["close", "keep-alive", "upgrade", "x"]),
    ("Content-Encoding", ["gzip", "deflate", "br", "zstd", "identity", "x", "gzip, gzip"]),
    ("Content-Length", ["0", "5", "-1", "+5", "99999999999999999999", "5, 5", "\u0665", "0x5"]),
    ("Content-MD5", ["x", ""]),
    (
        "Content-Type",
        ["text/plain", "application/json;charset=utf-16", _MIXED, "multipart/mixed", "", ";;;", "a/b;boundary="],
    ),
    ("Content-Type", ['multipart/mixed; boundary="a b"', "multipart/mixed;boundary=\u00e9", "application/atom+xml"]),
    ("Date", ["yesterday", "Thu, 99 Feb 2024 12:34:56 GMT", "Mon, 01 Jan 0001 00:00:00 +2359", "1" * 400]),
    ("DataServiceVersion", ["3.0;", "9", ""]),
    ("Expect", ["100-continue", "200-ok", ""]),
    ("Host", ["", "x y", "devstoreaccount1.table.core.localhost", "a.table.b", "[::1]", "\u00e9", "a:b:c", "h" * 300]),
    ("If-Match", ["*", "", 'W/"x"', "W/\"datetime'%'\"", "\u00e9", '"', "a" * 5000]),
    ("If-None-Match", ["*", "x"]),
    ("Origin", ["http://a.example", "null", "\u00e9", "http://b.example:99999", "o" * 2000]),
    ("Prefer", ["return-content", "return-no-content", "x", "\udcff"]),
    ("Transfer-Encoding", ["chunked", "identity", "gzip, chunked", "chunked, chunked", "x", "Chunked "]),
    ("Upgrade", ["websocket", "h2c", "\u00e9"]),
    ("X-HTTP-Method", ["MERGE", "merge", "DELETE", ""]),
    ("x-ms-client-request-id", ["a b", "\u00e9", "x" * 2000, "\udc80"]),
    ("x-ms-date", ["yesterday", "Mon, 01 Jan 0001 00:00:00 +2359", "Fri, 31 Dec 9999 23:59:59 -2359", "", "\u0661"]),
    (
        "x-ms-version",
        ["2009-09-19", "2013-08-15", "2019-13-45", "2020-12-06", "\u0662\u0660\u0662\u0660-12-06", "", "9999-12-31"],
    ),
]
# fmt: off
_VERBS = [
    "GET", "PUT", "POST", "PATCH", "MERGE", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "get", "X", "PRI",
    "M-SEARCH",
]
# fmt: on
_FRAMING = frozenset({"connection", "content-length", "content-encoding", "transfer-encoding", "expect", "upgrade"})
# fmt: off
_WIRE = [
    b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\x00", b" ", b"\t", b":", b" HTTP/1.1\r\n", b"HTTP/2.0", b"HTTP/1.0",
    b"\x80\xff", b"Transfer-Encoding: chunked\r\n", b"Content-Length: 3\r\n", b"0\r\n\r\n", b"FFFFFFFFFFFFFFFFF\r\n",
    b"Expect: 100-continue\r\n", b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01", b"X: " + b"y" * 20_000,
]
# fmt: on


def _once(rng: random.Random, text: str, tokens: Sequence[str]) -> str:
    at, end = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
    end = min(end, at + 40)
    match rng.randrange(7):
        case 0 | 1:
            return text[:at] + rng.choice(tokens) + text[at:]
        case 2:
            return text[:at] + rng.choice(tokens) + text[end:]
        case 3:
            return text[:at] + text[end:]
        case 4:
            return text[:at] + text[at:end] * rng.choice((2, 3, 50)) + text[end:]
        case 5:
            return text[:at] + chr(rng.choice((rng.randrange(1, 128), rng.randrange(128, 0xD800)))) + text[at + 1 :]
        case _:
            other = rng.choice(tokens)
            return text[:at] + rng.choice((other, other * rng.choice((2, 20, 300)))) + text[at:]


def _changed(rng: random.Random, text: str, tokens: Sequence[str]) -> str:
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        text = _once(rng, text, tokens)
    return text


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _bytes_changed(rng: random.Random, data: bytes, tokens: Sequence[str]) -> bytes:
    """Change it as text, each byte that is no UTF-8 being a character."""
    return _encoded(_changed(rng, data.decode("utf-8", "surrogateescape"), tokens))


def _tokens_of(draft: _Draft) -> Sequence[str]:
    if draft.kind.startswith("multipart"):
        return _LINES + _JSON if b"{" in draft.body else _LINES
    return _XML if draft.kind.endswith("xml") else _JSON


@functools.cache
def _sas() -> Sequence[str]:
    until = "2099-12-31T23:59:59Z"
    tokens: list[AccountSas | TableSas] = [
        AccountSas(sv="2019-02-02", ss="t", srt="sco", sp="rwdlacu", se=until),
        AccountSas(sv="2020-12-06", ss="bt", srt="o", sp="rau", se=until, sip="127.0.0.1-127.0.0.9", spr="https,http"),
        TableSas(sv="2019-02-02", tn="Tab", se=until, sp="raud"),
        TableSas(sv="2019-02-02", tn="tab", si="readers", spk="p", srk="a", epk="p", erk="s"),
    ]
    return [sign_sas(token, DEVELOPMENT_ACCOUNT, KEY) for token in tokens]


def _mutate(rng: random.Random, draft: _Draft) -> None:
    """One thing wrong with a request."""
    match rng.randrange(12):
        case 0 | 1:
            draft.path = _changed(rng, draft.path, _PATHS)
        case 2:
            draft.query = _changed(rng, draft.query, _QUERIES)
        case 3 | 4 if draft.verb == "GET":
            draft.query = "$filter=" + quote(_filter(rng), safe="'()$", errors="surrogatepass")
        case 5 | 6:
            name, values = rng.choice(_HEADERS)
            value = rng.choice(values)
            if rng.random() < 0.2:
                value = _changed(rng, value, ["\x7f", "\t", "\u00e9", "a" * 300, ",", ";", '"', "=", "\udcfe"])
            draft.headers.append((name, value))
        case 7:
            draft.verb = rng.choice(_VERBS)
        case 8:
            other = rng.choice(_CORPUS)
            draft.body, draft.kind = other.body, other.kind
        case _:
            draft.body = _bytes_changed(rng, draft.body, _tokens_of(draft))


def _filter(rng: random.Random) -> str:
    text = rng.choice(
        ("A eq 1", "PartitionKey eq 'p' and (A gt 5L or not B eq 'x''y')", "F ge datetime'2024-02-29T00:00:00Z'")
    )
    if rng.random() < 0.3:
        text = "".join(rng.choice(_FILTERS) for _ in range(rng.randrange(1, 40)))
    return _changed(rng, text, _FILTERS)


def _chunks(rng: random.Random, body: bytes) -> bytes:
    """A body in chunks, now and then with extensions or a trailer."""
    parts = list[bytes]()
    while body:
        size = rng.choice((1, 7, 100, 5000))
        part, body = body[:size], body[size:]
        parts.append(f"{len(part):x}".encode() + rng.choice((b"", b"", b";a=b")) + b"\r\n" + part + b"\r\n")
    return b"".join(parts) + b"0\r\n" + rng.choice((b"", b"", b"X-Trailer: 1\r\n")) + b"\r\n"


def _request(rng: random.Random) -> tuple[bytes, bool]:
    """A signed request, and whether it is framed as it should be."""
    draft = rng.choice(_CORPUS).copy()
    for _ in range(rng.choice((0, 1, 1, 1, 1, 2, 3))):
        _mutate(rng, draft)
    whole = draft.verb not in ("HEAD", "CONNECT") and not any(name.lower() in _FRAMING for name, _ in draft.headers)
    body, framing = draft.body, f"Content-Length: {len(draft.body)}"
    how = rng.random()
    if how < 0.1:
        body, framing = _chunks(rng, body), "Transfer-Encoding: chunked"
    elif how < 0.2:
        packed = gzip.compress(body, 1, mtime=0)
        body = packed if rng.random() < 0.5 else _bytes_changed(rng, packed, ["\0", "\udc8b", "\udcff"])
        framing = f"Content-Encoding: gzip\r\nContent-Length: {len(body)}"
    elif how < 0.25:
        whole = False
        body, framing = (
            _bytes_changed(rng, _chunks(rng, body), ["\r\n", "0\r\n\r\n", "-1", "ffff", ";"]),
            "Transfer-Encoding: chunked",
        )
    elif how < 0.28:
        whole = False
        framing = f"Content-Length: {len(body) + rng.choice((-1, 1, 7, 10**9))}"
    head = _signed_head(rng, draft, framing)
    whole = whole and not re.search(r"[\r\n\0 ]", draft.path + draft.query)
    return _encoded(head) + body, whole


def _signed_head(rng: random.Random, draft: _Draft, framing: str) -> str:
    by_host = rng.random() < 0.2
    path = draft.path if by_host else f"/{DEVELOPMENT_ACCOUNT}{'-secondary' if rng.random() < 0.05 else ''}{draft.path}"
    query, date, lines = draft.query, http_date(), list[str]()
    how = rng.random()
    if how < 0.85:
        comp = re.search(r"(?:^|&)comp=([^&]*)", query)
        parts = SignedParts(
            verb=draft.verb,
            account=DEVELOPMENT_ACCOUNT,
            path=re.split(r"[?#]", path, maxsplit=1)[0],
            date=date,
            content_type=draft.kind,
            comp=comp.group(1) if comp else None,
        )
        scheme = Scheme.SHARED_KEY_LITE if how < 0.1 else Scheme.SHARED_KEY
        lines = [f"x-ms-date: {date}", f"Authorization: {authorization(parts, KEY, scheme)}"]
    elif how < 0.97:
        token = rng.choice(_sas())
        token = token if rng.random() < 0.6 else _changed(rng, token, _QUERIES)
        query = f"{query}&{token}" if query else token
    # Behind what a client sends: of two headers with one name the first counts.
    if not any(name == "Host" for name, _ in draft.headers):
        lines.append(f"Host: {DEVELOPMENT_ACCOUNT}.table.core.localhost" if by_host else "Host: 127.0.0.1")
    if not any(name == "Content-Type" for name, _ in draft.headers):
        lines.append(f"Content-Type: {draft.kind}")
    lines += [f"{name}: {value}" for name, value in draft.headers]
    rng.shuffle(lines)
    target = path + (f"?{query}" if query else "")
    if rng.random() < 0.03:
        target = rng.choice(("http://127.0.0.1", "https://h:1", "http://[", "//")) + target
    return "\r\n".join([f"{draft.verb} {target} HTTP/1.1", *lines, framing, "", ""])


def of_number(seed: int, number: int) -> Input:
    """The input of that number."""
    rng = random.Random(f"{seed} {number}")
    data, whole = _request(rng)
    how = rng.random()
    if how < 0.08:
        # Pipelined: nothing waits for the answers.
        data, whole = b"".join([data, *(_request(rng)[0] for _ in range(rng.randrange(1, 4)))]), False
    elif how < 0.18:
        whole = False
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = rng.randrange(len(data))
            data = (
                data[:at] + rng.choice((rng.choice(_WIRE), bytes([rng.randrange(256)]))) + data[at + rng.randrange(2) :]
            )
    elif how < 0.21:
        data, whole = data[: rng.randrange(1, len(data))], False
    elif how < 0.22:
        data, whole = rng.randbytes(rng.randrange(1, 400)), False
    cuts = sorted(rng.randrange(len(data)) for _ in range(rng.choice((0, 0, 0, 1, 3))))
    ends = [*cuts, len(data)]
    pieces = [data[start:end] for start, end in zip([0, *cuts], ends, strict=True)]
    return Input([piece for piece in pieces if piece], whole)


@attrs.frozen
class Text:
    """
    What one function is called with by itself.

    Args:
        what: It is: `multipart`, `filter`, `path`, `query`, `entity`, `xml`, `authorization`, `date` or `token`.
        text: The argument.
    """

    what: str
    text: str

    @property
    def data(self) -> bytes:
        return _encoded(self.text)


def text_of_number(seed: int, number: int) -> Text:
    """The argument of that number."""
    rng = random.Random(f"text {seed} {number}")
    batches, xmls = (
        [draft.body.decode() for draft in _CORPUS if draft.kind.startswith(kind)]
        for kind in ("multipart", "application/xml")
    )
    make: dict[str, Callable[[], str]] = {
        "multipart": lambda: _changed(rng, rng.choice(batches), _LINES),
        "filter": lambda: _filter(rng),
        "path": lambda: _changed(rng, rng.choice(_CORPUS).path, _PATHS),
        "query": lambda: _changed(rng, rng.choice(_CORPUS).query, _QUERIES),
        "entity": lambda: _changed(rng, _TYPED.decode(), _JSON),
        "xml": lambda: _changed(rng, rng.choice(xmls), _XML),
        "authorization": lambda: _changed(
            rng, f"SharedKey {DEVELOPMENT_ACCOUNT}:c2ln", [" ", ":", "\0", "SharedKeyLite"]
        ),
        "date": lambda: _changed(
            rng, http_date(), ["0001", "9999", "+2359", "-9999", "31 Dec", "\u0661", ":", "Jan", "-"]
        ),
        "token": lambda: _changed(rng, rng.choice(_sas()), _QUERIES),
    }
    # As they are likely to have something wrong.
    what = rng.choices(list(make), (6, 6, 2, 2, 4, 2, 1, 1, 2))[0]
    return Text(what, make[what]())
