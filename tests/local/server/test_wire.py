"""
The wire by itself: what is read of headers and values, and how pages are encoded.
"""

from collections.abc import Mapping
from unittest.mock import Mock

import msgspec
import pytest
from multidict import CIMultiDict

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.filter_text import MAX_FILTER_LENGTH
from tableorm.stores import Row
from tableorm_local.server.wire import bodies, options
from tableorm_local.server.wire.addressing import Kind, Place, Resource
from tableorm_local.server.wire.calls import Call, Incoming, Level
from tests.local.server.client import finish

PLACE = Place(account="acc", secondary=False, path="/acc/Tab", resource_path="/Tab", root="http://h/acc")
ENTITY = Resource(Kind.ENTITY, "Tab", partition_key="p", row_key="r")


def call_of(headers: Mapping[str, str] | None = None, /, **query: str) -> Call:
    """A call with these headers, and these parameters of the query."""
    named = {name if name in ("timeout", "comp") else f"${name}": value for name, value in query.items()}
    return Call(verb="GET", place=PLACE, resource=ENTITY, options=named, headers=CIMultiDict(headers or {}), body=b"")


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


def test_a_filter_that_is_too_long_is_refused() -> None:
    """The error has its length; one that is as long as may be is read."""
    longest = "a eq '" + "x" * (MAX_FILTER_LENGTH - 7) + "'"
    assert finish(options.read_filter(call_of(filter=longest))) is not None
    with pytest.raises(Fault, match=f"filter has {MAX_FILTER_LENGTH + 1} characters, {MAX_FILTER_LENGTH} are allowed"):
        finish(options.read_filter(call_of(filter=longest + " ")))


def test_a_page_is_encoded_in_steps() -> None:
    """Others may get turns at twenty places of a page."""
    rows: list[Row] = [{"odata.etag": "e", "PartitionKey": "p", "RowKey": str(n)} for n in range(1000)]

    assert sum(1 for _ in bodies.encode_entities(rows, "Tab", PLACE, Level.MINIMAL)) == 20
