"""
Writes of rows: what is refused before anything is written, and what is known of a row without a look at it.
"""

import pytest

from tableorm.protocol.codes import Code, Fault
from tableorm.stores import Operation, Row, RowQuery, Verb
from tableorm_local.engine import Engine


@pytest.mark.parametrize("name", ["PartitionKey", "RowKey"])
async def test_a_key_that_is_refused_is_named(memory: Engine, name: str) -> None:
    """A key that is missing, and one that has a forbidden character."""
    keys: Row = {"PartitionKey": "p", "RowKey": "r"}
    for value, code, said in (
        (None, Code.PROPERTIES_NEED_VALUE, f"{name} is None."),
        ("a/b", Code.KEY_OUT_OF_RANGE, f"{name} 'a/b' "),
    ):
        with pytest.raises(Fault) as caught:
            await memory.write("Shared", Operation(Verb.INSERT, keys | {name: value}))
        assert (caught.value.code, caught.value.property) == (code, name)
        assert said in caught.value.message


@pytest.mark.parametrize("verb", [Verb.INSERT, Verb.INSERT_OR_MERGE])
async def test_a_value_is_as_large_as_it_may_be(memory: Engine, verb: Verb) -> None:
    """A text of 64 KiB as UTF-16 is stored; one of a character more is refused, whoever has made the row."""
    for canonical in (False, True):
        row: Row = {"PartitionKey": "p", "RowKey": str(canonical), "T": "x" * 32_768}
        await memory.write("Shared", Operation(verb, row, canonical=canonical))
        with pytest.raises(Fault) as caught:
            await memory.write("Shared", Operation(verb, row | {"T": "x" * 32_769}, canonical=canonical))
        assert caught.value.code == Code.PROPERTY_VALUE_TOO_LARGE

    assert [len(row["T"]) for row in (await memory.query("Shared", RowQuery())).rows] == [32_768] * 2
