"""
What is written comes back, to the last bit, from Azurite as from the embedded engine; what differs is known by name.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm.protocol.edm import ANNOTATION, text_from_ticks
from tableorm.stores import Operation, Row, TableStore, Verb
from tableorm.testing.contract.base import everything, new_name, row, user_part
from tableorm_azure.codec import decode_page, decode_row, encode_body, in_ascii


@pytest.fixture
async def table(emulator: TableStore) -> AsyncIterator[str]:
    name = new_name()
    await emulator.create_table(name)
    yield name
    await emulator.delete_table(name)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
VALUES: st.SearchStrategy[tuple[Any, str | None]] = st.one_of(
    st.tuples(TEXTS, st.none()),
    st.tuples(st.booleans(), st.none()),
    st.tuples(st.integers(-(2**31), 2**31 - 1), st.none()),
    # Not -0.0, which Azurite gives back as 0.0.
    st.tuples(st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x or 0.0), st.none()),
    st.tuples(st.sampled_from(["NaN", "Infinity", "-Infinity"]), st.just("Edm.Double")),
    st.tuples(st.integers(-(2**63), 2**63 - 1).map(str), st.just("Edm.Int64")),
    st.tuples(st.uuids().map(str), st.just("Edm.Guid")),
    st.tuples(st.sampled_from(["", "AA==", "AP8=", "/+//"]), st.just("Edm.Binary")),
    st.tuples(
        st.integers(504_911_232_000_000_000, 3_155_378_975_999_999_999).map(text_from_ticks), st.just("Edm.DateTime")
    ),
)


def _row_of(values: list[tuple[Any, str | None]], key: str = "r") -> Row:
    made = row(row_key=key)
    for index, (value, annotation) in enumerate(values):
        made[f"P{index}"] = value
        if annotation is not None:
            made[f"P{index}{ANNOTATION}"] = annotation
    return made


@given(st.lists(VALUES, max_size=12))
def test_codec_round_trip(values: list[tuple[Any, str | None]]) -> None:
    """A body reads back as the row that it was made of, also in ASCII, by itself and in a page."""
    made = _row_of(values)
    body = encode_body(Operation(Verb.INSERT, made))
    assert encode_body(Operation(Verb.INSERT, made, canonical=True)) == body

    stored = {"odata.etag": "x", **made}
    answer = body.replace(b"{", b'{"odata.etag":"x",', 1)
    assert repr(decode_row(answer)) == repr(stored)
    assert in_ascii(answer).isascii()
    assert decode_row(in_ascii(answer)) == stored
    assert decode_page(b'{"odata.metadata":"x","value":[' + answer + b"," + answer + b"]}") == [stored, stored]


@pytest.mark.parametrize(
    ("wire", "made"),
    [
        ('{"A":3,"A@odata.type":"Edm.Double"}', {"A": 3.0}),
        ('{"A":"3.5","A@odata.type":"Edm.Double"}', {"A": 3.5}),
        ('{"A":"NaN","A@odata.type":"Edm.Double"}', {"A": "NaN", "A@odata.type": "Edm.Double"}),
        ('{"A":"x","A@odata.type":"Edm.String"}', {"A": "x"}),
        ('{"A":1,"A@odata.type":"Edm.Int32"}', {"A": 1}),
        ('{"A":"2024-02-29T12:34:56Z","A@odata.type":"Edm.DateTime"}', {"A": "2024-02-29T12:34:56.0000000Z"}),
        ('{"A":"2024-02-29T12:34:56.789Z","A@odata.type":"Edm.DateTime"}', {"A": "2024-02-29T12:34:56.7890000Z"}),
        ('{"A":"C9DA6455-213D-42C9-9A79-3E9149A57833","A@odata.type":"Edm.Guid"}',
         {"A": "c9da6455-213d-42c9-9a79-3e9149a57833"}),
        ('{"odata.metadata":"x","odata.id":"y","Timestamp":"2024-02-29T12:34:56Z"}',
         {"Timestamp": "2024-02-29T12:34:56.0000000Z"}),
    ],
)  # fmt: skip
def test_spellings_of_the_wire(wire: str, made: Row) -> None:
    """What a service may write in several ways has one form here."""
    own = {"odata.etag": "x", "PartitionKey": "p", "RowKey": "r"}
    row = decode_row((json.dumps(own)[:-1] + "," + wire[1:]).encode())
    kept = {name: value for name, value in row.items() if not name.endswith(ANNOTATION)}

    assert kept == own | {name: value for name, value in made.items() if not name.endswith(ANNOTATION)}
    assert repr(kept.get("A")) == repr(made.get("A"))


@pytest.mark.parametrize("partition", ["", "p"])
async def test_pages_go_on_wherever_they_end(emulator: TableStore, table: str, partition: str) -> None:
    """Also where the next row has an empty PartitionKey, or empty keys, which azure-core shows as no header."""
    rows = [row(partition, key) for key in ("", "a", "b", "c")]
    await emulator.transact(table, [Operation(Verb.INSERT, each) for each in rows])

    for limit in (1, 2, 3):
        assert [user_part(each) for each in await everything(emulator, table, None, limit)] == rows
