"""
The wire by itself: what is read of addresses, headers, queries and frames, and what answers are made of.
"""

import json
from collections.abc import Mapping
from unittest.mock import Mock

import msgspec
import pytest
from multidict import CIMultiDict

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.filter_text import MAX_FILTER_LENGTH
from tableorm.stores import Row
from tableorm_local.server.wire import bodies, options, xml
from tableorm_local.server.wire.addressing import (
    Kind,
    Place,
    Resource,
)
from tableorm_local.server.wire.calls import Call, Incoming, Level
from tests.local.server.client import Clock, finish

PLACE = Place(account="acc", secondary=False, path="/acc/Tab", resource_path="/Tab", root="http://h/acc")
ENTITY = Resource(Kind.ENTITY, "Tab", partition_key="p", row_key="r")


def call_of(headers: Mapping[str, str] | None = None, /, **query: str) -> Call:
    """A call with these headers, and these parameters of the query."""
    named = {name if name in ("timeout", "comp") else f"${name}": value for name, value in query.items()}
    return Call(verb="GET", place=PLACE, resource=ENTITY, options=named, headers=CIMultiDict(headers or {}), body=b"")


def test_timeouts() -> None:
    """A number of seconds; none and 0 are no limit."""
    assert [options.seconds_of(call_of(timeout=text)) for text in ("", "0", "1", "007")] == [None, None, 1, 7]
    assert options.seconds_of(call_of()) is None
    for wrong in ("-1", "1.0", "x", "\u0661", " 1"):
        with pytest.raises(Fault, match="is not a number of seconds") as caught:
            options.seconds_of(call_of(timeout=wrong))
        assert caught.value.code == Code.INVALID_QUERY_PARAMETER


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
        ("+5", "Edm.Int32", 5),
        ("-0", "Edm.Int64", "0"),
        (str(2**63 - 1), "Edm.Int64", str(2**63 - 1)),
        (" TRUE", "Edm.Boolean", True),
        ("-Infinity", "Edm.Double", "-Infinity"),
        (" .5e1 ", "Edm.Double", 5.0),
        (10**308, "Edm.Double", 1e308),
        (10**309, "Edm.Double", None),
        (-(10**309), None, None),
        (2**31, None, 2.0**31),
        (-(2**31) - 1, None, -(2.0**31) - 1),
        ("2024-01-01T00:00:00.123456789Z", "Edm.DateTime", "2024-01-01T00:00:00.1234568Z"),
        (str(2**63), "Edm.Int64", None),
        (2**31, "Edm.Int32", None),
        (True, "Edm.Int32", None),
        (True, "Edm.Double", None),
        (1.5, "Edm.Int32", None),
        (1, "Edm.Boolean", None),
        (1, "Edm.String", None),
        ("1e999", "Edm.Double", None),
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
