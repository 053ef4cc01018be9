"""
The contract of entity group transactions, and of the limits of every write.
"""

import asyncio
from collections.abc import Awaitable

import pytest

from ...protocol.codes import Code, Fault
from ...protocol.edm import Edm
from ...protocol.limits import MAX_VALUE_BYTES
from ...stores import Operation, Row, RowQuery, TableStore, Verb
from .base import StoreContract, everything, in_key_order, insert, keys_of, need, refusal, row, typed, user_part


def _inserts(*rows: Row) -> list[Operation]:
    """Make an insert of each row."""
    return [Operation(Verb.INSERT, each) for each in rows]


_LARGE = {f"S{number}": "x" * 30_000 for number in range(16)}


class TransactionContract(StoreContract):
    """Transactions: all or nothing, in order, in one partition."""

    async def test_all_verbs_together(self, store: TableStore, table: str) -> None:
        """A transaction may hold every verb, each with its own condition; the ETags come back in order."""
        tags = await insert(store, table, *(row(row_key=str(number), A=number, B=0) for number in range(5)))
        results = await store.transact(
            table,
            [
                Operation(Verb.INSERT, row(row_key="new", A=9)),
                Operation(Verb.MERGE, row(row_key="0", B=1), tags[0]),
                Operation(Verb.REPLACE, row(row_key="1", B=1), "*"),
                Operation(Verb.INSERT_OR_MERGE, row(row_key="2", B=1)),
                Operation(Verb.INSERT_OR_REPLACE, row(row_key="3", B=1)),
                Operation(Verb.DELETE, row(row_key="4"), tags[4]),
                Operation(Verb.INSERT_OR_MERGE, row(row_key="made", B=1)),
            ],
        )

        stored = {each["RowKey"]: each for each in await everything(store, table)}
        assert {key: user_part(each) for key, each in stored.items()} == {
            "new": row(row_key="new", A=9),
            "0": row(row_key="0", A=0, B=1),
            "1": row(row_key="1", B=1),
            "2": row(row_key="2", A=2, B=1),
            "3": row(row_key="3", B=1),
            "made": row(row_key="made", B=1),
        }
        assert results[5] is None
        order = ["new", "0", "1", "2", "3", "made"]
        assert [tag for tag in results if tag is not None] == [stored[key]["odata.etag"] for key in order]

    @pytest.mark.parametrize("count", [100, 8])
    async def test_largest_transactions(self, store: TableStore, table: str, count: int) -> None:
        """One hundred operations are allowed, and somewhat less than 4 MiB."""
        values = _LARGE if count < 100 else {}
        results = await store.transact(table, _inserts(*(row(row_key=f"{n:03d}", **values) for n in range(count))))

        assert len(results) == count
        assert None not in results
        assert len(await everything(store, table, RowQuery(select=("RowKey",)))) == count

    @pytest.mark.parametrize(
        ("bad", "code"),
        [
            (Operation(Verb.INSERT, row(row_key="old")), Code.ENTITY_EXISTS),
            (Operation(Verb.MERGE, row(row_key="none"), "*"), Code.RESOURCE_NOT_FOUND),
            (Operation(Verb.DELETE, row(row_key="none"), "*"), Code.RESOURCE_NOT_FOUND),
            (
                Operation(Verb.REPLACE, row(row_key="old"), "W/\"datetime'2001-01-01T00%3A00%3A00.0000000Z'\""),
                Code.CONDITION_NOT_SATISFIED,
            ),
            (Operation(Verb.REPLACE, row(row_key="old")), Code.INVALID_INPUT),
            (Operation(Verb.INSERT, row(row_key="x", A=2**40)), Code.INVALID_INPUT),
            (Operation(Verb.INSERT, row(row_key="x/y")), Code.KEY_OUT_OF_RANGE),
        ],
    )
    @pytest.mark.parametrize("index", [0, 2, 4])
    async def test_one_failure_undoes_all(
        self, store: TableStore, table: str, bad: Operation, code: Code, index: int
    ) -> None:
        """If an operation fails nothing is applied, and the fault names its index and its own code."""
        await insert(store, table, row(row_key="old", A=1), row(row_key="other", A=1))
        before = in_key_order(await everything(store, table))
        good = [
            Operation(Verb.INSERT, row(row_key="1")),
            Operation(Verb.DELETE, row(row_key="other"), "*"),
            Operation(Verb.INSERT_OR_REPLACE, row(row_key="2")),
            Operation(Verb.INSERT_OR_MERGE, row(row_key="3")),
        ]

        fault = await refusal(store.transact(table, [*good[:index], bad, *good[index:]]))
        assert (fault.code, fault.index) == (code, index)
        assert in_key_order(await everything(store, table)) == before

    async def test_first_failure_decides(self, store: TableStore, table: str) -> None:
        """Operations are done in order, so the first that fails is reported."""
        await insert(store, table, row(row_key="a"))
        operations = [
            Operation(Verb.INSERT, row(row_key="b")),
            Operation(Verb.MERGE, row(row_key="missing"), "*"),
            Operation(Verb.INSERT, row(row_key="a")),
        ]

        fault = await refusal(store.transact(table, operations))
        assert (fault.code, fault.index) == (Code.RESOURCE_NOT_FOUND, 1)

    @pytest.mark.parametrize("at", [(0,), (2,), (4,), (1, 3)])
    async def test_inserts_of_which_one_is_there(self, store: TableStore, table: str, at: tuple[int, ...]) -> None:
        """Among inserts alone the first whose row exists is named; existing rows stay, and no row is added."""
        await insert(store, table, *(row(row_key=str(number), A="old") for number in at))
        before = in_key_order(await everything(store, table))

        together = _inserts(*(row(row_key=str(number), A="new") for number in range(5)))
        other = _inserts(row("other", "1"), row("other", "2"))
        refused, _ = await asyncio.gather(refusal(store.transact(table, together)), store.transact(table, other))

        assert (refused.code, refused.index) == (Code.ENTITY_EXISTS, at[0])
        found = in_key_order(await everything(store, table))
        assert [each for each in found if each["PartitionKey"] != "other"] == before

    async def test_row_twice(self, store: TableStore, table: str) -> None:
        """A row may occur once; keys that differ in case are two rows."""
        assert len(await store.transact(table, _inserts(row(row_key="a"), row(row_key="A")))) == 2

    @pytest.mark.parametrize(
        ("operations", "code", "index"),
        [
            ([], Code.INVALID_INPUT, None),
            (_inserts(*(row(row_key=str(number)) for number in range(101))), Code.INVALID_INPUT, None),
            (_inserts(row("p", "1"), row("p", "2"), row("P", "3")), Code.BATCH_PARTITIONS, 2),
            (
                [*_inserts(row(row_key="1"), row(row_key="2")), Operation(Verb.DELETE, row(row_key="1"), "*")],
                Code.DUPLICATE_ROW,
                2,
            ),
            (
                _inserts(*(row(row_key=str(number), **_LARGE) for number in range(10))),
                Code.REQUEST_BODY_TOO_LARGE,
                None,
            ),
        ],
        ids=["empty", "101 operations", "two partitions", "a row twice", "more than 4 MiB"],
    )
    async def test_transaction_that_cannot_be(
        self, store: TableStore, table: str, operations: list[Operation], code: Code, index: int | None
    ) -> None:
        """It is rejected and nothing is applied; the fault names the first operation at fault, if it is one's."""
        if code == Code.REQUEST_BODY_TOO_LARGE:
            need(store, "exact_limits")

        fault = await refusal(store.transact(table, operations))
        assert (fault.code, fault.index) == (code, index)
        assert await everything(store, table) == []

    async def test_type_change_and_null_as_in_single_merges(self, store: TableStore, table: str) -> None:
        """A merge in a transaction follows the rules of a single one."""
        await insert(store, table, row(A=1) | typed("B", "5", Edm.INT64))
        await store.transact(table, [Operation(Verb.MERGE, row(A=None, B="text"), "*")])

        assert user_part(await store.get(table, "p", "r")) == row(A=1, B="text")


async def _fault_of(call: Awaitable[object]) -> Fault | None:
    """Return the fault that a call raises, or None."""
    try:
        await call
    except Fault as fault:
        return fault
    return None


_PROPERTIES: Row = {
    **{f"P{number}": number for number in range(200)},
    **{name: value for n in range(52) for name, value in typed(f"T{n}", str(n), Edm.INT64).items()},
}
_TEXTS = {f"S{number}": "x" * 32_000 for number in range(16)}
_LIMITS: dict[str, tuple[Row, Code | None]] = {
    "252 properties": (_PROPERTIES, None),
    "253 properties": ({"More": 1, **_PROPERTIES}, Code.TOO_MANY_PROPERTIES),
    "name of 255": ({"A" * 255: 1}, None),
    "name of 256": ({"A" * 256: 1}, Code.PROPERTY_NAME_TOO_LONG),
    "name with a line": ({"_x1": 1}, None),
    "name beyond ASCII": ({"Größe": 1}, None),
    **{f"name {name!r}": ({name: 1}, Code.PROPERTY_NAME_INVALID) for name in ("a-b", "1a", "", "a b", "a.b")},
    "text of 32768": ({"V": "x" * 32_768}, None),
    "text of 32769": ({"V": "x" * 32_769}, Code.PROPERTY_VALUE_TOO_LARGE),
    "ä of 32768": ({"V": "ä" * 32_768}, None),
    "ä of 32769": ({"V": "ä" * 32_769}, Code.PROPERTY_VALUE_TOO_LARGE),
    "pairs of 32768": ({"V": "😀" * 16_384}, None),
    "pairs of 32769": ({"V": "😀" * 16_384 + "x"}, Code.PROPERTY_VALUE_TOO_LARGE),
    "binary of 65536": (typed("V", "AAAA" * 21_845 + "AA==", Edm.BINARY), None),
    "binary of 65537": (typed("V", "AAAA" * 21_845 + "AAA=", Edm.BINARY), Code.PROPERTY_VALUE_TOO_LARGE),
    "16 large texts": (_TEXTS, None),
    "17 large texts": ({**_TEXTS, "S16": "x" * 32_000}, Code.ENTITY_TOO_LARGE),
}
"""Rows at a limit and one beyond, and the code of the refusal."""


class LimitsContract(StoreContract):
    """Each limit of the service, at it and one beyond."""

    async def code_of(self, store: TableStore, table: str, written: Row) -> str | None:
        """Insert a row and return the code of its refusal, or None. A transaction must be rejected in the same way."""
        need(store, "exact_limits")
        alone = await _fault_of(store.write(table, Operation(Verb.INSERT, written)))
        together = await _fault_of(store.transact(table, _inserts(written | {"PartitionKey": "in a transaction"})))
        if alone is None:
            assert together is None
            assert user_part(await store.get(table, "p", written["RowKey"])) == written
            return None
        assert together is not None
        assert (together.code, together.index) == (alone.code, 0)
        return alone.code

    async def test_canonical_rows(self, store: TableStore, table: str) -> None:
        """A row that is marked canonical is stored as it is, but its keys and size are checked."""
        need(store, "exact_limits")
        most = MAX_VALUE_BYTES // 2
        for written, code in (
            (row(row_key="a/b", A="x"), Code.KEY_OUT_OF_RANGE),
            (row(A="x" * (most + 1)), Code.PROPERTY_VALUE_TOO_LARGE),
            (row() | {f"P{number}": "x" * most for number in range(17)}, Code.ENTITY_TOO_LARGE),
        ):
            operation = Operation(Verb.INSERT_OR_REPLACE, written, canonical=True)
            assert (await refusal(store.write(table, operation))).code == code
            assert (await refusal(store.transact(table, [operation]))).code == code
        fine = row(A="x" * most) | typed("N", "5", Edm.INT64)
        await store.write(table, Operation(Verb.INSERT, fine, canonical=True))

        assert user_part(await store.get(table, "p", "r")) == fine

    async def test_properties_after_a_merge(self, store: TableStore, table: str) -> None:
        """At 252 properties a merge may change any of them."""
        need(store, "exact_limits")
        await insert(store, table, row() | {f"P{number}": number for number in range(251)})
        await store.write(table, Operation(Verb.MERGE, row(P251=1), "*"))

        await store.write(table, Operation(Verb.MERGE, row(P0="x", P251="y"), "*"))
        assert (await store.get(table, "p", "r"))["P251"] == "y"

    @pytest.mark.parametrize(("written", "code"), _LIMITS.values(), ids=_LIMITS)
    async def test_limit_of_a_row(self, store: TableStore, table: str, written: Row, code: Code | None) -> None:
        """
        A row has 252 properties besides the keys and 1 MiB, names 255 characters, values 64 KiB; no more.

        Annotations are not counted; text counts as UTF-16; names are identifiers.
        """
        assert await self.code_of(store, table, row() | written) == code

    @pytest.mark.parametrize(
        ("stored", "more", "code"),
        [(_PROPERTIES, 1, Code.TOO_MANY_PROPERTIES), (_TEXTS, "x" * 32_000, Code.ENTITY_TOO_LARGE)],
        ids=["properties", "bytes"],
    )
    async def test_limit_of_a_merged_row(
        self, store: TableStore, table: str, stored: Row, more: object, code: Code
    ) -> None:
        """A merge may not bring a row beyond 252 properties, or beyond 1 MiB."""
        need(store, "exact_limits")
        need(store, "faithful")
        await insert(store, table, row(**stored))
        before = await store.get(table, "p", "r")

        for merge in (Operation(Verb.MERGE, row(More=more), "*"), Operation(Verb.INSERT_OR_MERGE, row(More=more))):
            assert (await refusal(store.write(table, merge))).code == code
        assert await store.get(table, "p", "r") == before

    @pytest.mark.parametrize("text", ["x" * 512, "ä" * 512, "😀" * 256])
    async def test_longest_keys(self, store: TableStore, table: str, text: str) -> None:
        """A key has at most 512 UTF-16 units."""
        need(store, "exact_limits")
        await insert(store, table, row(text, text))

        assert (await store.get(table, text, text))["RowKey"] == text
        assert keys_of(await everything(store, table, limit=1)) == [(text, text)]
        for keys in ((text + "x", "r"), ("p", text + "x")):
            fault = await refusal(store.write(table, Operation(Verb.INSERT, row(*keys))))
            assert fault.code == Code.KEY_OUT_OF_RANGE

    @pytest.mark.parametrize("char", ["/", "\\", "#", "?", "\0", "\t", "\n", "\r", "\x1f", "\x7f", "\x9f"], ids=repr)
    async def test_forbidden_characters(self, store: TableStore, table: str, char: str) -> None:
        """Keys have no slash, backslash, number sign, question mark or control character."""
        need(store, "exact_limits")
        for keys in ((f"a{char}", "r"), ("p", f"{char}b")):
            for verb in Verb:
                tag = "*" if verb in (Verb.MERGE, Verb.REPLACE, Verb.DELETE) else None
                fault = await refusal(store.write(table, Operation(verb, row(*keys), tag)))
                assert fault.code == Code.KEY_OUT_OF_RANGE

    @pytest.mark.parametrize("missing", ["PartitionKey", "RowKey"])
    @pytest.mark.parametrize("value", ["absent", None, 5])
    async def test_keys_are_required(self, store: TableStore, table: str, missing: str, value: object) -> None:
        """A row has both keys, as text."""
        need(store, "exact_limits")
        bad = row(A=1) | {missing: value}
        if value == "absent":
            del bad[missing]

        fault = await refusal(store.write(table, Operation(Verb.INSERT, bad)))
        assert fault.code == Code.PROPERTIES_NEED_VALUE
        assert (await refusal(store.transact(table, _inserts(row(row_key="x"), bad)))).index == 1
