"""
Pages: which rows a query reads to find those it asks for, and where a page ends.
"""

import itertools
import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.edm import utf16_key
from tableorm.protocol.filters import And, Compare, Filter, Not, Op, Or, constant, matcher
from tableorm.protocol.key_range import KeyRange
from tableorm.stores import Bounds, Row, RowQuery, narrowed
from tableorm_local.engine import Engine, scan
from tableorm_local.engine.catalog import find_table, key_of
from tableorm_local.engine.scan import PageScan, filter_intervals, narrow_to_rows, partition_interval, row_interval
from tableorm_local.engine.sqlite import Connection
from tableorm_local.engine.writes import decode
from tests.local.engine.rows import insert_rows, make_rows


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The bodies of the rows that scans have read."""
    bodies: list[bytes] = []

    def note(body: bytes) -> Row:
        bodies.append(body)
        return decode(body)

    monkeypatch.setattr(scan, "decode", note)
    return bodies


async def test_a_range_of_keys_reads_no_row_outside(memory: Engine, read: list[bytes]) -> None:
    """A range that begins near the end of one partition, and ends near the start of another, reads its rows alone."""
    for partition in "abc":
        await insert_rows(memory, make_rows(partition, 300, T=""))
    keys = KeyRange(start_partition="a", start_row="0295", end_partition="c", end_row="0004")
    query = narrowed(RowQuery(Bounds(lower="a"), where=Compare("T", Op.EQ, constant(""))), keys)
    assert query is not None
    page = await memory.query("Shared", query)

    assert [(row["PartitionKey"], row["RowKey"]) for row in page.rows[:6]] == [
        *(("a", f"{n:04d}") for n in range(295, 300)),
        ("b", "0000"),
    ]
    assert page.rows[-1]["RowKey"] == "0004"
    assert len(page.rows) == len(read) == 5 + 300 + 5


async def test_a_continuation_shows_no_key_after_the_range(memory: Engine) -> None:
    """A full page at the end of a range is the last one; the key of the next row, outside, is not told."""
    for partition in "ab":
        await insert_rows(memory, make_rows(partition, 20, T=""))
    keys = KeyRange(start_partition="a", start_row="0018", end_partition="b", end_row="0004")
    query = narrowed(RowQuery(), keys)
    assert query is not None

    assert (await memory.query("Shared", query, limit=7)).continuation is None
    assert (await memory.query("Shared", query, limit=6)).continuation is not None


_KEYS = ["", "a", "a\U0001f600", "a\uffff", "ab", "b"]
_comparisons = st.builds(
    Compare,
    st.sampled_from(["PartitionKey", "RowKey", "Other"]),
    st.sampled_from(list(Op)),
    st.sampled_from([*map(constant, _KEYS), constant(5)]),
)
_filters: st.SearchStrategy[Filter] = st.recursive(
    _comparisons,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(And, st.lists(inner, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, max_size=3).map(tuple)),
    ),
)


@given(_filters)
def test_the_intervals_of_a_filter_hold_every_row_that_satisfies_it(where: Filter) -> None:
    """No row outside of the interval of keys, or of RowKeys, satisfies the filter."""
    (low, high), (first, last) = filter_intervals(where)
    test = matcher(where)

    for partition, row in itertools.product(_KEYS, _KEYS):
        if not low <= key_of(partition, row) < high or not first <= utf16_key(row) < last:
            assert not test({"PartitionKey": partition, "RowKey": row, "Other": "a"})


_ends = st.none() | st.sampled_from(_KEYS)
_BOUNDS = st.builds(Bounds, _ends, _ends, st.booleans(), st.booleans())


@given(_BOUNDS, _BOUNDS)
def test_bounds_and_conditions_mean_the_same_keys(partition: Bounds, row: Bounds) -> None:
    """A query by conditions on the keys reads no more than one by bounds."""
    conditions = And((*partition.conditions("PartitionKey"), *row.conditions("RowKey")))
    keys, rows = partition_interval(partition), row_interval(row)
    narrow = narrow_to_rows(keys, rows) or keys

    assert filter_intervals(conditions) == (narrow, rows)


def test_conditions_within_conditions_mean_the_same_keys() -> None:
    """A filter reads no more if some of its conditions on the keys stand together in a condition."""
    partition, *rows = (
        Compare("PartitionKey", Op.EQ, constant("a")),
        Compare("RowKey", Op.GE, constant("a")),
        Compare("RowKey", Op.LT, constant("b")),
        Compare("RowKey", Op.LT, constant("ab")),
    )

    assert filter_intervals(And((And((partition, *rows[:2])), rows[2]))) == filter_intervals(And((partition, *rows)))


async def test_a_page_does_not_go_on_in_another_table(memory: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """If its table is deleted between two slices, there is no such table, also if a new one has its name."""
    await insert_rows(memory, make_rows("p", 300, T=""))
    ticks = itertools.count()
    monkeypatch.setattr(scan, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    page = PageScan(RowQuery(), 1000, "shared", None, None)

    def advance(connection: Connection) -> bool:
        table = find_table(connection, "shared")
        assert table is not None
        return page.advance(connection, table, 2)

    assert await memory.read(advance) is False
    await memory.delete_table("Shared")
    await memory.create_table("Shared")
    with pytest.raises(Fault) as caught:
        await memory.read(advance)
    assert caught.value.code == Code.TABLE_NOT_FOUND


async def test_a_condition_on_the_row_key_skips_other_rows(memory: Engine, read: list[bytes]) -> None:
    """A condition on the RowKey alone is looked up in each partition, and the other rows are not decoded."""
    for partition in "abc":
        await insert_rows(memory, make_rows(partition, 200, T=""))
    where = And((Compare("RowKey", Op.GE, constant("0100")), Compare("RowKey", Op.LT, constant("0103"))))
    page = await memory.query("Shared", RowQuery(where=where))

    assert [row["RowKey"] for row in page.rows] == ["0100", "0101", "0102"] * 3
    assert len(read) == 9


@pytest.mark.parametrize("query", [RowQuery(), RowQuery(row=Bounds("0000"))], ids=["all", "RowKeys"])
@pytest.mark.parametrize("more", [0, 1, -1])
async def test_a_page_ends_when_its_bytes_are_reached(
    memory: Engine, read: list[bytes], monkeypatch: pytest.MonkeyPatch, more: int, query: RowQuery
) -> None:
    """A page whose rows have exactly the bytes of its budget is full; with one byte to spare it takes one more row."""
    await insert_rows(memory, make_rows("p", 30, T=""))
    await memory.query("Shared", RowQuery(), limit=10)
    size = len(read[0])
    assert {len(body) for body in read} == {size}
    monkeypatch.setattr(scan, "_PAGE_BYTES", 10 * size + more)
    pages = [await memory.query("Shared", query)]
    while (token := pages[-1].continuation) is not None:
        assert re.fullmatch("[A-Za-z0-9_-]+", token)  # so that it needs no quotation in a URL
        pages.append(await memory.query("Shared", query, continuation=token))

    assert [len(page.rows) for page in pages] == {0: [10, 10, 10], 1: [11, 11, 8], -1: [10, 10, 10]}[more]
    assert [row["RowKey"] for page in pages for row in page.rows] == [f"{n:04d}" for n in range(30)]


async def test_a_page_is_not_filled_by_rows_that_are_filtered_out(
    memory: Engine, read: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only rows that are found count towards the bytes of a page."""
    await insert_rows(memory, make_rows("p", 200, T="x"))
    await insert_rows(memory, make_rows("q", 1, T="y"))
    monkeypatch.setattr(scan, "_PAGE_BYTES", 500)
    page = await memory.query("Shared", RowQuery(where=Compare("T", Op.EQ, constant("y"))))

    assert [row["PartitionKey"] for row in page.rows] == ["q"]
    assert page.continuation is None
    assert len(read) == 201


async def test_a_page_has_4_mib(memory: Engine, read: list[bytes]) -> None:
    """With what a caller makes of its rows, as in the service: one with less goes on, one with as much ends."""
    await insert_rows(memory, make_rows("p", 130))
    await memory.query("Shared", RowQuery(), limit=1)
    least = 4 * 1024 * 1024 // 100 - len(read[0])
    sizes = list[int]()
    for more in (least, least + 1):

        def count(_: Row, more: int = more) -> int:
            return more

        sizes.append(len((await memory.query("Shared", RowQuery(), 1000, None, count)).rows))

    assert sizes == [101, 100]


@pytest.mark.parametrize(
    ("query", "where"),
    [
        (RowQuery(partition=Bounds("\ud800")), r"PartitionKey has a lone surrogate U\+D800 at position 0"),
        (RowQuery(row=Bounds("a", "b\ud800")), r"RowKey has a lone surrogate U\+D800 at position 1"),
    ],
)
async def test_a_bound_that_is_no_text_is_refused(engine: Engine, query: RowQuery, where: str) -> None:
    """A lone surrogate has no place in the order of keys; the error says where it is."""
    await engine.create_table("Tab")

    with pytest.raises(Fault, match=where) as caught:
        await engine.query("Tab", query)
    assert caught.value.code == Code.INVALID_INPUT
