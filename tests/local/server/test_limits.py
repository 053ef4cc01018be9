"""
Limits of what clients send: as much as a limit allows is good, and one more is rejected.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tableorm.protocol.codes import Code, Fault
from tableorm_local.server import Limits, dispatch
from tableorm_local.server.operations import policies, service_properties
from tableorm_local.server.security.cors import CorsRule, answer_preflight, read_rules
from tableorm_local.server.wire import multipart, options, xml
from tableorm_local.server.wire.addressing import place_of
from tableorm_local.server.wire.bodies import read_entity, read_object
from tests.local.server.client import finish
from tests.local.server.test_wire import call_of


def document(inside: str, root: str = "R") -> bytes:
    return f"<{root}>{inside}</{root}>".encode()


def rule_with(**more: str) -> str:
    """A rule of CORS with these texts."""
    texts = {"AllowedOrigins": "*", "AllowedMethods": "GET", "AllowedHeaders": "", "ExposedHeaders": ""}
    texts |= {"MaxAgeInSeconds": "60"} | more
    return document("".join(f"<{name}>{text}</{name}>" for name, text in texts.items()), "CorsRule").decode()


def read_rules_of(*rules: str) -> tuple[CorsRule, ...]:
    return read_rules(xml.parse(document("".join(rules)), "R"))


def read_with(**more: str) -> tuple[CorsRule, ...]:
    return read_rules_of(rule_with(**more))


def names(count: int) -> str:
    return ",".join(f"n{number}" for number in range(count))


def transaction(part: str = "", parts: int = 1, before: str = "", boundary: str = "b") -> multipart.Parts:
    """Read a transaction of parts that have some more lines, after some lines of the outer frame."""
    request = f"Content-Type: application/http\r\n{part or 'X: y'}\r\n\r\nPOST /Tab HTTP/1.1\r\n\r\n{{}}\r\n"
    inner = "Content-Type: multipart/mixed; boundary=c\r\n\r\n" + f"--c\r\n{request}" * parts + "--c--\r\n"
    body = f"{before}--{boundary}\r\n{inner}--{boundary}--\r\n"
    return finish(multipart.read(f"multipart/mixed; boundary={boundary}", body.encode()))


def request_line(length: int) -> multipart.Parts:
    """Read a query whose request line has so many bytes."""
    line = f"GET /{'x' * (length - len('GET / HTTP/1.1 '))} HTTP/1.1"
    body = f"--b\r\nContent-Type: application/http\r\n\r\n{line}\r\n\r\n\r\n--b--\r\n"
    return finish(multipart.read("multipart/mixed; boundary=b", body.encode()))


def preflight(headers: int) -> object:
    rule = CorsRule(origins=("*",), methods=("GET",), headers=("*",), exposed=(), max_age=0)
    asked = {"Origin": "https://a.example", "Access-Control-Request-Method": "GET"}
    return answer_preflight([rule], asked | {"Access-Control-Request-Headers": names(headers)})


def nested(count: int) -> str:
    return "(" * count + "A eq 1" + ")" * count


def negated(count: int) -> str:
    terms = " or ".join(["not (A eq 1)"] * (count // 2))
    return f"({terms})" if count % 2 else terms


def properties_with(days: int) -> object:
    retention = f"<RetentionPolicy><Enabled>true</Enabled><Days>{days}</Days></RetentionPolicy>"
    switches = "<Version>1.0</Version><Delete>true</Delete><Read>true</Read><Write>true</Write>"
    read = service_properties._read_section  # pyright: ignore[reportPrivateUsage]
    return read(xml.parse(document(switches + retention), "R"), ("Delete", "Read", "Write"))


def policies_with(count: int = 1, length: int = 1) -> object:
    ids = (f"{number}".rjust(length, "x") for number in range(count))
    inside = "".join(f"<SignedIdentifier><Id>{each}</Id></SignedIdentifier>" for each in ids)
    read = policies._read_policies  # pyright: ignore[reportPrivateUsage]
    return read(document(inside, "SignedIdentifiers"))


def entity_of(members: int) -> object:
    inside = ",".join(f'"p{number}":1' for number in range(members))
    return read_entity(f"{{{inside}}}".encode(), ("p", "r"))


MULTIPART = "multipart/mixed; boundary=b"
LIMITS: dict[str, tuple[Callable[[int], object], int]] = {
    "origins": (lambda n: read_with(AllowedOrigins=names(n)), 64),
    "headers": (lambda n: read_with(AllowedHeaders=names(n)), 64),
    "exposed headers": (lambda n: read_with(ExposedHeaders=names(n)), 64),
    "methods": (lambda n: read_with(AllowedMethods=",".join(["GET"] * n)), 8),
    "length of a name": (lambda n: read_with(AllowedHeaders="x" * n), 256),
    "text of rules": (lambda n: read_with(AllowedHeaders=" " * (n - len("*GET60"))), 2048),
    "age": (lambda n: read_with(MaxAgeInSeconds=str(n)), 2**31 - 1),
    "rules": (lambda n: read_rules_of(*[rule_with()] * n), 5),
    "preflight": (preflight, 100),
    "days": (lambda n: properties_with(days=n), 365),
    "policies": (lambda n: policies_with(count=n), 5),
    "length of an id": (lambda n: policies_with(length=n), 64),
    "bytes of XML": (lambda n: xml.parse(document("x" * (n - len("<R></R>"))), "R"), 64 * 1024),
    "elements": (lambda n: xml.parse(document("<a/>" * (n - 1)), "R"), 1000),
    "digits of XML": (lambda n: xml.number(xml.parse(document(f"<a>{'1'.zfill(n)}</a>"), "R"), "a", 1, 5), 10),
    "headers of a part": (lambda n: transaction(part="\r\n".join(["A: b"] * (n - 1))), 64),
    "Content-ID": (lambda n: transaction(part=f"Content-ID: {'x' * n}"), 100),
    "lines like a delimiter": (lambda n: transaction(before="--bx\r\n" * n), 202),
    "content type": (lambda n: finish(multipart.read(f"{MULTIPART};".ljust(n, "x"), b"--b--")), 1000),
    "head of a part": (lambda n: multipart._read_headers(b"A:".ljust(n, b"x")), 16 * 1024),  # pyright: ignore[reportPrivateUsage]
    "boundary": (lambda n: transaction(boundary="b" * n), 200),
    "request line": (request_line, 16 * 1024),
    "parameters": (lambda n: options.options_of("&".join(f"a{number}=" for number in range(n))), 64),
    "client id": (lambda n: options.check_client_request_id({"x-ms-client-request-id": "x" * n}), 1024),
    "digits of timeout": (lambda n: options.seconds_of(call_of(timeout="1".zfill(n))), 9),
    "top": (lambda n: options.top_of(call_of(top=str(n))), 1000),
    "selected names": (lambda n: options.select_of(call_of(select=names(n))), 255),
    "commas": (lambda n: options.select_of(call_of(select="a" + "," * n)), 510),
    "length of a selected name": (lambda n: options.select_of(call_of(select="x" * n)), 255),
    "comparisons": (lambda n: finish(options.read_filter(call_of(filter=" or ".join(["A eq 1"] * n)))), 400),
    "nestings": (lambda n: finish(options.read_filter(call_of(filter=nested(n)))), 800),
    "nots": (lambda n: finish(options.read_filter(call_of(filter=negated(n)))), 800),
    "preferences": (lambda n: options.level_of(call_of({"Accept": "application/json".rjust(n, ",")})), 1000),
    "members": (entity_of, 1000),
    "host": (lambda n: place_of(lambda name: (name, False), "http", "h" * n, "/a"), 259),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_of_what_is_sent(limit: str) -> None:
    """As much as is allowed is read, and one more is rejected."""
    read, most = LIMITS[limit]
    read(most)
    with pytest.raises(Fault):
        read(most + 1)


DEFAULTS = Limits()
DOCUMENTED: dict[str, tuple[float, ...]] = {
    "requests in progress or waiting": (DEFAULTS.requests,),
    "pages of entities that are built at once": (DEFAULTS.pages,),
    "transactions that are read and written at once": (vars(dispatch)["_TRANSACTIONS"],),
    "a body, decompressed": (DEFAULTS.body_bytes,),
    "request line, one header, number of headers": (DEFAULTS.url_bytes, DEFAULTS.header_bytes, DEFAULTS.headers),
    "a connection without a complete request": (DEFAULTS.idle_seconds,),
    "a body that arrives": (DEFAULTS.body_seconds,),
    "an answer that the client does not take": (DEFAULTS.write_seconds,),
}


def test_the_defaults_are_those_of_the_documentation() -> None:
    """The page of the limits has the number of each, in the column of the defaults."""
    docs = Path(__file__).parents[3] / "docs" / "stores"
    page = (docs / "server-limits.md").read_text(encoding="utf-8")
    cells = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    defaults = {re.split("[;:]", row[0].removeprefix("| "))[0]: re.sub(r"\[.*", "", row[1]) for row in cells}
    units = {"": 1, " Ki": 1024, " Mi": 1024 * 1024}
    found = {
        name: tuple(
            int(number.replace(",", "")) * units[unit]
            for number, unit in re.findall(r"(\d[\d,]*\b(?<!,))( Ki| Mi)?", defaults[name])
        )
        for name in DOCUMENTED
    }

    assert found == DOCUMENTED
    stops = f"finishes the requests that are under way ({DEFAULTS.stop_seconds:.0f} seconds at most)"
    assert stops in (docs / "server.md").read_text(encoding="utf-8")


def test_the_parts_of_a_transaction_at_their_limit() -> None:
    """One part more than a transaction may have is read, to refuse them by their number, and no further one."""
    assert [len(transaction(parts=count).parts) for count in (100, 101, 102)] == [100, 101, 101]


def test_the_texts_of_an_object_at_their_limit() -> None:
    """2000 names and texts are decoded, and two more are rejected."""
    assert len(read_object(b"{%s}" % b",".join(b'"p%d":""' % number for number in range(1000)))) == 1000
    with pytest.raises(Fault) as caught:
        read_object(b"{%s}" % b",".join(b'"p%d":""' % number for number in range(1001)))
    assert caught.value.code == Code.TOO_MANY_PROPERTIES


@pytest.mark.parametrize("number", ["-1", "1.0", "\uff11", "1001", "10000", pytest.param("0" * 5_000, id="long")])
def test_numbers_of_items_that_are_none(number: str) -> None:
    """`$top` is a number from 0 to 1000 in ASCII digits; blank is none."""
    with pytest.raises(Fault, match=r"\$top is"):
        options.top_of(call_of(top=number))
    assert options.top_of(call_of(top=" 7 ")) == 7
    assert options.top_of(call_of(top=" ")) == 1000
