"""
The contract of queries: the rows that they find, their order, and their pages.
"""

import datetime as dt
import operator
from bisect import bisect_left, bisect_right
from itertools import product
from typing import Any
from uuid import UUID

import pytest

from ...protocol.codes import Code
from ...protocol.edm import ANNOTATION, Edm, Value, natural_type, ticks_from_text, utf16_key
from ...protocol.filters import And, Compare, Constant, Filter, Not, Op, Or, constant
from ...stores import Bounds, Operation, Row, RowQuery, TableStore, Verb
from .base import StoreContract, everything, in_key_order, insert, keys_of, names_of, need, refusal, row, typed

# In the order of UTF-16 units, where U+E000 and above come after characters outside the BMP.
SORTED_KEYS = [
    "",
    " ",
    "!",
    "-",
    "0",
    "1",
    "10",
    "2",
    "A",
    "B",
    "a",
    "a b",
    "aa",
    "b",
    "~",
    "é",
    "日",
    "😀",
    "\U0010ffff",
    "\ue000",
    "\uffff",
]


class QueryContract(StoreContract):
    """Order of keys, bounds, and projection."""

    async def test_empty_table(self, store: TableStore, table: str) -> None:
        """Nothing is found in an empty table."""
        page = await store.query(table, RowQuery())

        assert (page.rows, page.continuation) == ([], None)

    async def test_rows_come_in_key_order(self, store: TableStore, table: str) -> None:
        """Rows are sorted by PartitionKey, then RowKey, each by UTF-16 unit, across pages."""
        need(store, "ordered")
        expected = [(first, second) for first in SORTED_KEYS for second in ("", "😀", "\ue000")]
        await insert(store, table, *(row(*keys) for keys in sorted(expected, key=repr, reverse=True)))

        assert keys_of(await everything(store, table, limit=7)) == expected

    @pytest.mark.parametrize(
        ("lower", "upper"),
        [
            ("", "a"),
            ("A", "aa"),
            ("a", "a"),
            ("😀", "\ue000"),
            ("é", None),
            (None, "1"),
            (None, None),
            ("b", "a"),
            ("5", "7"),
        ],
    )
    async def test_bounds(self, store: TableStore, table: str, lower: str | None, upper: str | None) -> None:
        """Bounds of either key, or both, open or closed, hold rows by UTF-16 order."""
        keys = SORTED_KEYS[::2]
        for first in keys:
            await store.transact(table, [Operation(Verb.INSERT, row(first, second)) for second in keys])
        units = [utf16_key(key) for key in keys]

        for lower_open, upper_open in product((False, True), repeat=2):
            bounds, free = Bounds(lower, upper, lower_open, upper_open), Bounds()
            start = 0 if lower is None else (bisect_right if lower_open else bisect_left)(units, utf16_key(lower))
            end = len(keys) if upper is None else (bisect_left if upper_open else bisect_right)(units, utf16_key(upper))
            inside = keys[start:end]
            for query, expected in (
                (RowQuery(bounds, free), product(inside, keys)),
                (RowQuery(free, bounds), product(keys, inside)),
                (RowQuery(bounds, bounds), product(inside, inside)),
            ):
                found = keys_of(await everything(store, table, query, limit=50))
                assert sorted(found) == sorted(expected), query

    async def test_point(self, store: TableStore, table: str) -> None:
        """Equal closed bounds find that key alone, and not those that it begins."""
        await insert(store, table, row("a", "b"), row("a", "bb"), row("aa", "b"), row("a ", "b"), row("", "ab"))

        for query, expected in (
            (RowQuery(Bounds.only("a"), Bounds.only("b")), [("a", "b")]),
            (RowQuery(Bounds.only("a")), [("a", "b"), ("a", "bb")]),
            (RowQuery(Bounds.only("")), [("", "ab")]),
        ):
            assert sorted(keys_of(await everything(store, table, query))) == expected

    async def test_row_bounds_in_many_partitions(self, store: TableStore, table: str) -> None:
        """Bounds of the RowKey hold in each partition of a range, also in large ones that have few such rows."""
        partitions = [f"p{number:02d}" for number in range(12)]
        for partition in partitions:
            await store.transact(
                table, [Operation(Verb.INSERT, row(partition, f"{number:03d}")) for number in range(60)]
            )
        query = RowQuery(Bounds("p03", "p09", upper_open=True), Bounds("030", "032"))

        found = keys_of(await everything(store, table, query, limit=4))
        assert sorted(found) == [(partition, key) for partition in partitions[3:9] for key in ("030", "031", "032")]

    async def test_projection(self, store: TableStore, table: str) -> None:
        """`select` returns the named properties and their types, None for an absent one, and always the ETag."""
        await insert(store, table, row(row_key="1", A=1, B=2), row(row_key="2", B=3) | typed("A", "5", Edm.INT64))

        rows = await everything(store, table, RowQuery(select=("A", "RowKey")))
        assert sorted((set(each), each["RowKey"], each["A"]) for each in rows if each["RowKey"] == "1") == [
            ({"odata.etag", "A", "RowKey"}, "1", 1)
        ]
        assert [(each["A"], each["A@odata.type"]) for each in rows if each["RowKey"] == "2"] == [("5", "Edm.Int64")]
        absent = await everything(store, table, RowQuery(select=("Z",)))
        assert [(set(each), each["Z"]) for each in absent] == [({"odata.etag", "Z"}, None)] * 2

    async def test_filter_sees_what_is_not_selected(self, store: TableStore, table: str) -> None:
        """The filter is evaluated on the whole row, not on the properties that are selected."""
        await insert(store, table, row(row_key="1", A=1), row(row_key="2", A=2))

        rows = await everything(store, table, RowQuery(where=Compare("A", Op.EQ, constant(2)), select=("RowKey",)))
        assert names_of(rows) == ["2"]


LATE, EARLY = dt.datetime(2024, 2, 29, 12, 34, 56, 789123, dt.UTC), dt.datetime(1999, 1, 1, tzinfo=dt.UTC)
GUID = UUID("c9da6455-213d-42c9-9a79-3e9149a57833")
FILTER_ROWS = {
    "int32": row(row_key="int32", V=7),
    "int64": row(row_key="int64") | typed("V", "7", Edm.INT64),
    "huge": row(row_key="huge") | typed("V", "9007199254740993", Edm.INT64),
    "double": row(row_key="double", V=7.0),
    "half": row(row_key="half", V=7.5),
    "nan": row(row_key="nan") | typed("V", "NaN", Edm.DOUBLE),
    "text": row(row_key="text", V="seven"),
    "astral": row(row_key="astral", V="😀"),
    "private": row(row_key="private", V="\ue000"),
    "empty": row(row_key="empty", V=""),
    "true": row(row_key="true", V=True),
    "false": row(row_key="false", V=False),
    "date": row(row_key="date") | typed("V", "2024-02-29T12:34:56.7891234Z", Edm.DATETIME),
    "old": row(row_key="old") | typed("V", "1999-01-01T00:00:00Z", Edm.DATETIME),
    "guid": row(row_key="guid") | typed("V", str(GUID), Edm.GUID),
    "binary": row(row_key="binary") | typed("V", "AP8=", Edm.BINARY),
    "absent": row(row_key="absent", W=1),
}
TYPED = set(FILTER_ROWS) - {"absent"}


def _v(op: Op, value: Value, kind: Edm | None = None) -> Filter:
    """Compare the property V with a constant."""
    return Compare("V", op, Constant(kind, value) if kind else constant(value, natural_type(value)))


FILTERS: list[tuple[Filter, set[str]]] = [
    (_v(Op.EQ, 7), {"int32", "int64", "double"}),
    (_v(Op.EQ, 7, Edm.INT64), {"int64", "double"}),
    (_v(Op.EQ, 7.0), {"double"}),
    (_v(Op.EQ, 9007199254740993), {"huge"}),
    (_v(Op.EQ, 9007199254740992), set()),
    (And((_v(Op.GT, 6), _v(Op.LT, 8))), {"int32", "int64", "double", "half"}),
    (_v(Op.NE, 7), TYPED - {"int32", "int64", "double"}),
    (_v(Op.EQ, "seven"), {"text"}),
    (_v(Op.EQ, str(GUID)), set()),
    (_v(Op.NE, ""), TYPED - {"empty"}),
    (_v(Op.GT, "😀"), {"private"}),
    (And((_v(Op.GE, ""), _v(Op.LT, "\ue000"))), {"empty", "text", "astral"}),
    (_v(Op.EQ, True), {"true"}),
    (_v(Op.EQ, False), {"false"}),
    (Not(_v(Op.EQ, True)), TYPED - {"true"}),
    (_v(Op.EQ, EARLY), {"old"}),
    (_v(Op.EQ, LATE), set()),
    (And((_v(Op.GT, LATE), _v(Op.LT, LATE + dt.timedelta(microseconds=1)))), {"date"}),
    (_v(Op.EQ, GUID), {"guid"}),
    (_v(Op.EQ, b"\x00\xff"), {"binary"}),
    (_v(Op.EQ, b"\x00"), set()),
    (Compare("W", Op.EQ, constant(1)), {"absent"}),
    (Compare("W", Op.NE, constant(2)), {"absent"}),
    (Not(Compare("W", Op.EQ, constant(1))), set()),
    (Not(Compare("W", Op.EQ, constant(2))), {"absent"}),
    (Or((Compare("W", Op.EQ, constant(1)), _v(Op.EQ, "seven"))), {"absent", "text"}),
    (Not(Or((_v(Op.EQ, "seven"), _v(Op.EQ, 7)))), TYPED - {"text", "int32", "int64", "double"}),
    (Not(And((Compare("W", Op.EQ, constant(1)), _v(Op.EQ, "seven")))), TYPED - {"text"}),
    (Compare("v", Op.EQ, constant(7)), set()),
    (Compare("RowKey", Op.EQ, constant("text")), {"text"}),
    (
        And((Compare("RowKey", Op.GE, constant("n")), Compare("PartitionKey", Op.EQ, constant("p")))),
        {"nan", "old", "private", "text", "true"},
    ),
    (Compare("Timestamp", Op.GT, constant(EARLY)), set(FILTER_ROWS)),
    (Compare("Timestamp", Op.LT, constant(EARLY)), set()),
    (And(()), set(FILTER_ROWS)),
    (Or(()), set()),
    (And((Compare("W", Op.EQ, constant(1)), Not(Or(())))), {"absent"}),
    (Or((Compare("W", Op.EQ, constant(1)), Or(()))), {"absent"}),
]


def _column(kind: Edm, *values: tuple[object, Any]) -> tuple[list[Row], list[Any], Edm]:
    """Make rows with one value each, in rising order, and the constants that equal these values."""
    annotation = {} if kind in (Edm.STRING, Edm.BOOLEAN, Edm.INT32, Edm.DOUBLE) else {"V" + ANNOTATION: kind.value}
    rows = [row(row_key=str(index), V=stored) | annotation for index, (stored, _) in enumerate(values)]
    return rows, [value for _, value in values], kind


COLUMNS = {
    "String": _column(Edm.STRING, *((text, text) for text in ("", "'", "A", "a", "a'b", "ab", "b", "é", "日", "😀"))),
    "Boolean": _column(Edm.BOOLEAN, (False, False), (True, True)),
    "Int32": _column(Edm.INT32, *((number, number) for number in (-(2**31), -1, 0, 7, 2**31 - 1))),
    "Int64": _column(Edm.INT64, *((str(n), n) for n in (-(2**63), -7, 0, 2**40, 2**53 + 1, 2**63 - 1))),
    "Double": _column(Edm.DOUBLE, *((number, number) for number in (-1000.5, -1.0, 0.0, 0.1, 7.5, 1e7))),
    "DateTime": _column(
        Edm.DATETIME,
        *(
            (text, ticks_from_text(text))
            for text in (
                "1999-01-01T00:00:00.0000000Z",
                "2024-02-29T12:34:56.7891234Z",
                "2024-02-29T12:34:56.7901234Z",
                "9999-12-31T23:59:59.9999999Z",
            )
        ),
    ),
    "Guid": _column(Edm.GUID, *((str(UUID(int=n)), UUID(int=n)) for n in (0, 2**64, 2**127))),
    "Binary": _column(Edm.BINARY, ("", b""), ("AP8=", b"\x00\xff"), ("AAEC", b"\x00\x01\x02")),
}


class FilterContract(StoreContract):
    """
    The rows that a filter finds among values of every type.

    Source: Table service REST, "Querying tables and entities"; the rules of comparison.
    """

    @pytest.mark.parametrize(("where", "expected"), FILTERS)
    async def test_filter(self, store: TableStore, table: str, where: Filter, expected: set[str]) -> None:
        """
        A constant is compared with its own type and wider numbers; other types are unequal; what is absent is unknown.
        """
        need(store, "faithful")
        await store.transact(table, [Operation(Verb.INSERT, each) for each in FILTER_ROWS.values()])

        assert set(names_of(await everything(store, table, RowQuery(where=where)))) == expected

    @pytest.mark.parametrize("column", list(COLUMNS))
    async def test_filter_of_one_type(self, store: TableStore, table: str, column: str) -> None:
        """Among values of one type, every operator finds exactly the rows that it should."""
        rows, values, kind = COLUMNS[column]
        await store.transact(table, [Operation(Verb.INSERT, each) for each in rows])

        for place, value in enumerate(values):
            for op in Op:
                if kind in (Edm.GUID, Edm.BINARY) and op not in (Op.EQ, Op.NE):
                    continue
                where = Compare("V", op, Constant(kind, value))
                found = names_of(await everything(store, table, RowQuery(where=where)))
                assert found == [str(index) for index in range(len(values)) if getattr(operator, op)(index, place)], (
                    where
                )

    async def test_filter_that_nests_too_deeply(self, store: TableStore, table: str) -> None:
        """A filter that nests too deeply is rejected with InvalidInput, and exhausts nothing."""
        where = _v(Op.EQ, 7)
        for _ in range(2000):
            where = And((Or((where, _v(Op.EQ, 1))), _v(Op.NE, 2)))

        assert (await refusal(store.query(table, RowQuery(where=where)))).code == Code.INVALID_INPUT

    async def test_filter_within_bounds(self, store: TableStore, table: str) -> None:
        """Bounds and filter must both hold."""
        await insert(store, table, *(row(str(part), str(each), A=each % 2) for part in range(3) for each in range(6)))
        query = RowQuery(Bounds("1"), Bounds("2", "4"), Compare("A", Op.EQ, constant(0)))

        assert sorted(keys_of(await everything(store, table, query))) == [
            ("1", "2"),
            ("1", "4"),
            ("2", "2"),
            ("2", "4"),
        ]


class PagingContract(StoreContract):
    """Pages, and continuations, which lead to the next page."""

    async def fill(self, store: TableStore, table: str, count: int) -> list[tuple[str, str]]:
        """Insert rows in two partitions and return their keys."""
        keys = [(str(number % 2), f"{number:04d}") for number in range(count)]
        for part in "01":
            mine = [Operation(Verb.INSERT, row(*key, N=int(key[1]))) for key in keys if key[0] == part]
            for start in range(0, len(mine), 100):
                await store.transact(table, mine[start : start + 100])
        return sorted(keys)

    @pytest.mark.parametrize("limit", [1, 2, 7, 10, 19, 20, 21, 1000])
    async def test_pages_hold_every_row_once(self, store: TableStore, table: str, limit: int) -> None:
        """For every page size, all pages together have each row once."""
        keys = await self.fill(store, table, 20)

        assert sorted(keys_of(await everything(store, table, limit=limit))) == keys

    async def test_default_page_is_a_thousand(self, store: TableStore, table: str) -> None:
        """Without a limit a page has at most 1000 rows, and more follow."""
        keys = await self.fill(store, table, 1100)

        first = await store.query(table, RowQuery())
        assert 0 < len(first.rows) <= 1000
        assert first.continuation is not None
        assert sorted(keys_of(await everything(store, table))) == keys

    @pytest.mark.parametrize("limit", [0, -1, 1001])
    async def test_bad_limit(self, store: TableStore, table: str, limit: int) -> None:
        """A page has 1 to 1000 rows."""
        assert (await refusal(store.query(table, RowQuery(), limit))).code == Code.INVALID_INPUT

    async def test_filter_and_bounds_across_pages(self, store: TableStore, table: str) -> None:
        """Filter, bounds and projection hold on every page of a query."""
        await self.fill(store, table, 60)
        query = RowQuery(Bounds.only("1"), Bounds("0010", "0050"), Compare("N", Op.GT, constant(20)), ("RowKey",))

        found = await everything(store, table, query, limit=3)
        assert names_of(found) == [f"{number:04d}" for number in range(21, 50, 2)]
        assert all(set(each) == {"odata.etag", "RowKey"} for each in found)

    async def test_filter_that_finds_nothing(self, store: TableStore, table: str) -> None:
        """The pages of a query without result end, and are empty."""
        await self.fill(store, table, 100)

        assert await everything(store, table, RowQuery(where=Compare("N", Op.LT, constant(0))), limit=5) == []

    async def test_continuation_is_a_short_text_fit_for_urls(self, store: TableStore, table: str) -> None:
        """A continuation can be stored and sent: printable ASCII, also after odd keys."""
        await insert(store, table, row("ä😀", "日" * 200), row("ä😀", "日" * 200 + "x"), row("\ue000", ""))

        page = await store.query(table, RowQuery(), limit=1)
        assert page.continuation is not None
        assert page.continuation.isascii()
        assert page.continuation.isprintable()
        rest = await store.query(table, RowQuery(), continuation=page.continuation)
        assert len(rest.rows) == 2

    async def test_continuation_may_be_used_again(self, store: TableStore, table: str) -> None:
        """A continuation is a position, not an object: it leads to the same page each time."""
        await self.fill(store, table, 20)
        first = await store.query(table, RowQuery(), limit=5)

        second = await store.query(table, RowQuery(), 5, first.continuation)
        again = await store.query(table, RowQuery(), 5, first.continuation)
        assert in_key_order(second.rows) == in_key_order(again.rows)
        assert second.continuation == again.continuation

    async def test_rows_come_and_go_between_pages(self, store: TableStore, table: str) -> None:
        """Deleting and inserting between pages neither skips nor repeats the rows that stay."""
        need(store, "ordered")
        keys = await self.fill(store, table, 20)
        first = await store.query(table, RowQuery(), limit=10)
        for key in (keys[0], keys[9], keys[10]):
            await store.write(table, Operation(Verb.DELETE, row(*key), "*"))
        await insert(store, table, row("0", "!"), row("1", "9999"))

        rest = await store.query(table, RowQuery(), continuation=first.continuation)
        assert keys_of(rest.rows) == [*keys[11:], ("1", "9999")]

    @pytest.mark.parametrize("token", ["", "x", "ü", "1!2!3", "AAAA" * 10, "=="])
    async def test_malformed_continuation(self, store: TableStore, table: str, token: str) -> None:
        """Text that no page has returned is rejected as a continuation."""
        await self.fill(store, table, 4)

        assert (await refusal(store.query(table, RowQuery(), continuation=token))).code == Code.INVALID_INPUT
