"""
Random filters over values of every type: Azurite, our own server and the embedded engine find the same rows.

Our server gets the filter as text, over the wire, and must agree in everything. Azurite has faults, which stand in
`tests.azure.differences`, and must agree in everything else.
"""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.edm import ANNOTATION, MAX_TICKS, MIN_TICKS, Edm, encode, text_from_ticks, utf16_key
from tableorm.protocol.filters import And, Compare, Constant, Filter, Not, Op, Or, compile_filter
from tableorm.stores import Bounds, Operation, Row, RowQuery, TableStore, Verb
from tableorm.testing.contract.base import everything, keys_of, new_name, refusal, user_part
from tableorm_local import LocalBackend
from tests.azure.differences import ABSENT_IS_FALSE, CRASHES, DIFFERENCES, Difference, may_crash, possible


@pytest.fixture
async def engine() -> AsyncIterator[TableStore]:
    async with LocalBackend(None) as backend:
        yield backend.tables


# Values that meet the constants, and lie beside them: numbers of one value in three types, text that looks like another
# type, what sorts otherwise by UTF-8 than by UTF-16, moments a tick or a millisecond apart.
MOMENT = 638_448_392_967_891_234
GUIDS = [UUID("c9da6455-213d-42c9-9a79-3e9149a57833"), UUID(int=0), UUID(int=2**128 - 1), UUID(int=2**127)]
TEXTS = ["", "a", "A", "aa", "é", "z", "\ue000", "😀", "\uffff", "it's", "7", "-1", "true", "AAE=", "NaN", '"', "%41"]
LIKE_OTHERS = [str(GUIDS[0]), text_from_ticks(MOMENT), "null", "a\tb\n", " and V eq 1"]
WHOLE = [0, 1, 7, -1, 10, 2**31 - 1, -(2**31)]
LARGE = [2**31, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), -(2**31) - 1]
FRACTIONS = [0.0, 1.0, 7.0, -1.0, 1.5, -1.5, 2.0**53, 1e22, 1e-9, float("inf"), float("-inf"), float("nan"), 5e-324]
TICKS = [MOMENT + each for each in (0, 1, -1, 10_000, -10_000, 10**7)] + [MIN_TICKS, MAX_TICKS, MIN_TICKS + 1]
BYTES = [b"", b"\0", b"\0\1", b"\xff", b"\x80", b"a", b"\0" * 9]


def _constants(kind: Edm, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Constant]:
    return st.builds(Constant, st.just(kind), values)


CONSTANTS = st.one_of(
    _constants(Edm.STRING, st.sampled_from(TEXTS + LIKE_OTHERS) | st.text("ab'é😀\ue000", max_size=3)),
    _constants(Edm.BOOLEAN, st.booleans()),
    _constants(Edm.INT32, st.sampled_from(WHOLE)),
    _constants(Edm.INT64, st.sampled_from(WHOLE + LARGE) | st.integers(-(2**63), 2**63 - 1)),
    # Not -0.0, which Azurite has not.
    _constants(Edm.DOUBLE, st.sampled_from(FRACTIONS) | st.floats(-10, 10).map(lambda x: x or 0.0)),
    _constants(Edm.DATETIME, st.sampled_from(TICKS) | st.integers(MIN_TICKS, MAX_TICKS)),
    _constants(Edm.GUID, st.sampled_from(GUIDS) | st.uuids()),
    _constants(Edm.BINARY, st.sampled_from(BYTES) | st.binary(max_size=4)),
)
NAMES = ["V", "W", "Größe", "eqx"]
KEYS = st.sampled_from(["", "a", "A", "b", "é", "\ue000", "😀", "it's", "7", "true", "a b", "%41"])


def _stored(name: str, value: Constant) -> Row:
    """A property with the value of a constant."""
    if value.type is Edm.DATETIME:
        return {name: text_from_ticks(value.value), name + ANNOTATION: Edm.DATETIME.value}
    text, annotation = encode(value.value, value.type)
    return {name: text} if annotation is None else {name: text, name + ANNOTATION: annotation}


@st.composite
def _rows(draw: st.DrawFn) -> list[Row]:
    """Rows of one partition, so that one transaction writes them; properties of mixed types, or absent."""
    partition = draw(KEYS)
    rows: list[Row] = []
    for key in draw(st.lists(KEYS, min_size=1, max_size=8, unique=True)):
        made: Row = {"PartitionKey": partition, "RowKey": key}
        for name in draw(st.lists(st.sampled_from(NAMES), max_size=4, unique=True)):
            made |= _stored(name, draw(CONSTANTS))
        rows.append(made)
    return rows


@st.composite
def _compares(draw: st.DrawFn, rows: list[Row]) -> Compare:
    name, op = draw(st.sampled_from([*NAMES, *NAMES, "PartitionKey", "RowKey", "Timestamp"])), draw(st.sampled_from(Op))
    if name.endswith("Key"):
        near = st.sampled_from([row[name] for row in rows]) | KEYS
        return Compare(name, op, draw(_constants(Edm.STRING, near)))
    if name == "Timestamp":  # every row of a test is written between these two
        return Compare(name, op, Constant(Edm.DATETIME, draw(st.sampled_from([MIN_TICKS, MAX_TICKS]))))
    return Compare(name, op, draw(CONSTANTS))


def _filters(rows: list[Row]) -> st.SearchStrategy[Filter]:
    def combined(inner: st.SearchStrategy[Filter]) -> st.SearchStrategy[Filter]:
        several = st.lists(inner, min_size=2, max_size=3).map(tuple)
        return st.builds(And, several) | st.builds(Or, several) | st.builds(Not, inner)

    compares: st.SearchStrategy[Filter] = _compares(rows)
    return st.recursive(compares, combined, max_leaves=6)


@st.composite
def _questions(draw: st.DrawFn) -> tuple[list[Row], list[RowQuery], int]:
    rows = draw(_rows())
    select = st.none() | st.lists(st.sampled_from([*NAMES, "RowKey", "None"]), max_size=3, unique=True).map(tuple)
    bounds = st.just(Bounds()) | st.builds(Bounds, st.none() | KEYS, st.none() | KEYS, st.booleans(), st.booleans())
    ask = st.builds(RowQuery, st.just(Bounds()), bounds, _filters(rows), select)
    return rows, draw(st.lists(ask, min_size=1, max_size=6)), draw(st.integers(1, 5) | st.just(1000))


def _matching(rows: list[Row], query: RowQuery) -> list[str]:
    """The RowKeys that a query must find, in order."""
    where = query.filter
    assert where is not None
    known = compile_filter(where)
    stamped = ({**row, "Timestamp": text_from_ticks(MOMENT)} for row in rows)
    return sorted((row["RowKey"] for row in stamped if known(row) is True), key=utf16_key)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_questions())
async def test_random_filters(
    emulator: TableStore, served: TableStore, engine: TableStore, questions: tuple[list[Row], list[RowQuery], int]
) -> None:
    """
    Whatever the types, the nesting, the projection and the size of pages: the engine finds what each row by itself
    says, our server the same, with the same values, and Azurite too, but for what its known faults decide.
    """
    rows, queries, limit = questions
    name = new_name()
    stores = (engine, served, emulator)
    for store in stores:
        await store.create_table(name)
        await store.transact(name, [Operation(Verb.INSERT, row) for row in rows])
    try:
        for query in queries:
            keyed = query if query.select is None else RowQuery(query.partition, query.row, query.where)
            found = [user_part(row) for row in await everything(engine, name, query, limit)]
            keys = [row["RowKey"] for row in await everything(engine, name, keyed)]
            assert keys == _matching(rows, query)
            assert [user_part(row) for row in await everything(served, name, query, limit)] == found
            await _same_on_azurite(emulator, name, rows, keyed, keys)
            if query.select is not None and len(keys) == len(rows):
                projected = RowQuery(select=query.select)
                assert [user_part(row) for row in await everything(emulator, name, projected, limit)] == found
    finally:
        for store in stores:
            await store.delete_table(name)


async def _same_on_azurite(store: TableStore, name: str, rows: list[Row], query: RowQuery, keys: list[str]) -> None:
    where = query.filter
    assert where is not None
    stamped = [{**row, "Timestamp": text_from_ticks(MOMENT), "Timestamp" + ANNOTATION: "Edm.DateTime"} for row in rows]
    try:
        found = await everything(store, name, query, 3)
    except Fault as fault:
        if fault.code != Code.INTERNAL_ERROR or not may_crash(where, stamped):
            raise
        return
    assert keys_of(found) == sorted(keys_of(found), key=lambda each: utf16_key(each[1]))
    there = {row["RowKey"]: user_part(row) for row in found}
    for row in stamped:
        key, may = row["RowKey"], possible(where, row)
        known = compile_filter(where)(row)
        assert len(may) == 2 or (key in there) in may, (where, row)
        # But for `not` over what is absent, what is not in doubt is what the engine says.
        assert len(may) == 2 or may == {key in keys} or known is None, (where, row)
        assert key not in there or there[key] == user_part({n: v for n, v in row.items() if "Timestamp" not in n})


@pytest.mark.parametrize("difference", [*DIFFERENCES, CRASHES, ABSENT_IS_FALSE], ids=lambda each: each.says)
async def test_known_differences(
    emulator: TableStore, served: TableStore, engine: TableStore, difference: Difference
) -> None:
    """Each is one still: the engine and our server keep to the reference, and Azurite does not."""
    properties, compare = difference.example
    row = {"PartitionKey": "p", "RowKey": "r", **properties}
    where: Filter = Not(compare) if difference is ABSENT_IS_FALSE else compare
    assert difference.meets(row, compare)
    name = new_name()
    for store in (engine, served, emulator):
        await store.create_table(name)
        await store.write(name, Operation(Verb.INSERT, row))
    for store in (engine, served):
        assert bool(await everything(store, name, RowQuery(where=where))) is difference.holds

    if difference is CRASHES:
        assert (await refusal(emulator.query(name, RowQuery(where=where)))).code == Code.INTERNAL_ERROR
    else:
        assert bool(await everything(emulator, name, RowQuery(where=where))) is not difference.holds
    await emulator.delete_table(name)
