"""
Comparisons with a Binary cost as much as its bytes, so that a few of them are many.
"""

from base64 import b64encode

import pytest

from tableorm.protocol import edm, filters
from tableorm.protocol.filter_text import parse_in_steps
from tableorm.stores import RowQuery
from tableorm_local.engine import Engine
from tests.local.server.client import finish
from tests.rows import insert_row


@pytest.mark.parametrize("comparison", ["b ge X''", "b ne X'00'"])
async def test_a_binary_is_not_decoded_for_each_comparison(
    memory: Engine, monkeypatch: pytest.MonkeyPatch, comparison: str
) -> None:
    """400 comparisons of one Binary of 64 KiB, a filter of 5 KB, decode far less than 400 times 64 KiB in one slice."""
    decoded = 0
    decode = edm.decode

    def count(value: object, kind: object = None) -> object:
        nonlocal decoded
        decoded += len(value) if isinstance(value, str) else 0
        return decode(value, kind)  # type: ignore[arg-type]

    monkeypatch.setattr(filters, "decode", count)
    await memory.create_table("Tab")
    value = b64encode(bytes(65_536)).decode()
    await insert_row(memory, "Tab", {"PartitionKey": "a", "RowKey": "r", "b": value, "b@odata.type": "Edm.Binary"})
    where = finish(parse_in_steps(" and ".join([comparison] * 400)))
    page = await memory.query("Tab", RowQuery(where=where))
    assert len(page.rows) == 1
    assert decoded < 4_000_000  # of 35 million characters, in one row and thus without a look at the clock
