"""
The contract of entity group transactions, and of the limits of every write.
"""

import asyncio
from collections.abc import Awaitable

import pytest

from ..protocol.codes import Code, Fault
from ..protocol.edm import Edm
from ..protocol.limits import MAX_VALUE_BYTES
from ..stores import Operation, Row, RowQuery, TableStore, Verb
from .base import StoreContract, everything, insert, keys_of, need, new_name, refusal, row, typed, user_part

__all__ = ["LimitsContract", "TransactionContract"]


def _inserts(*rows: Row) -> list[Operation]:
    """Make an insert of each row."""
    return [Operation(Verb.INSERT, each) for each in rows]


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

    async def test_hundred_operations(self, store: TableStore, table: str) -> None:
        """One hundred are allowed."""
        results = await store.transact(table, _inserts(*(row(row_key=f"{number:03d}") for number in range(100))))

        assert len(results) == 100
        assert None not in results
        assert len(await everything(store, table)) == 100

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
        before = await everything(store, table)
        good = [
            Operation(Verb.INSERT, row(row_key="1")),
            Operation(Verb.DELETE, row(row_key="other"), "*"),
            Operation(Verb.INSERT_OR_REPLACE, row(row_key="2")),
            Operation(Verb.INSERT_OR_MERGE, row(row_key="3")),
        ]

        fault = await refusal(store.transact(table, [*good[:index], bad, *good[index:]]))
        assert (fault.code, fault.index) == (code, index)
        assert await everything(store, table) == before

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
        before = await everything(store, table)

        together = _inserts(*(row(row_key=str(number), A="new") for number in range(5)))
        other = _inserts(row("other", "1"), row("other", "2"))
        refused, _ = await asyncio.gather(refusal(store.transact(table, together)), store.transact(table, other))

        assert (refused.code, refused.index) == (Code.ENTITY_EXISTS, at[0])
        assert [each for each in await everything(store, table) if each["PartitionKey"] != "other"] == before

    async def test_empty_transaction(self, store: TableStore, table: str) -> None:
        """A transaction without operations is refused."""
        assert (await refusal(store.transact(table, []))).code == Code.INVALID_INPUT

    async def test_too_many_operations(self, store: TableStore, table: str) -> None:
        """One hundred and one are refused, and nothing is applied."""
        fault = await refusal(store.transact(table, _inserts(*(row(row_key=str(number)) for number in range(101)))))

        assert fault.code == Code.INVALID_INPUT
        assert await everything(store, table) == []

    async def test_two_partitions(self, store: TableStore, table: str) -> None:
        """All operations must have the same PartitionKey; the fault names the first that has not."""
        operations = _inserts(row("p", "1"), row("p", "2"), row("P", "3"))

        fault = await refusal(store.transact(table, operations))
        assert (fault.code, fault.index) == (Code.BATCH_PARTITIONS, 2)
        assert await everything(store, table) == []

    async def test_row_twice(self, store: TableStore, table: str) -> None:
        """A row may occur once; keys that differ in case are two rows."""
        assert len(await store.transact(table, _inserts(row(row_key="a"), row(row_key="A")))) == 2
        operations = [*_inserts(row(row_key="1"), row(row_key="2")), Operation(Verb.DELETE, row(row_key="1"), "*")]

        fault = await refusal(store.transact(table, operations))
        assert (fault.code, fault.index) == (Code.DUPLICATE_ROW, 2)
        assert sorted(keys_of(await everything(store, table))) == [("p", "A"), ("p", "a")]

    async def test_too_large(self, store: TableStore, table: str) -> None:
        """More than 4 MiB are refused; nothing is applied."""
        need(store, "exact_limits")
        large = {f"S{number}": "x" * 30_000 for number in range(16)}
        operations = _inserts(*(row(row_key=str(number), **large) for number in range(10)))

        assert (await refusal(store.transact(table, operations))).code == Code.REQUEST_BODY_TOO_LARGE
        assert await everything(store, table) == []

    async def test_almost_too_large(self, store: TableStore, table: str) -> None:
        """Somewhat less than 4 MiB are written."""
        large = {f"S{number}": "x" * 30_000 for number in range(16)}
        operations = _inserts(*(row(row_key=str(number), **large) for number in range(8)))

        assert len(await store.transact(table, operations)) == 8
        assert len(await everything(store, table, RowQuery(select=("RowKey",)))) == 8

    async def test_missing_table(self, store: TableStore) -> None:
        """A transaction on a table that does not exist raises TableNotFound."""
        assert (await refusal(store.transact(new_name(), _inserts(row())))).code == Code.TABLE_NOT_FOUND

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


class LimitsContract(StoreContract):
    """Each limit of the service, at it and one beyond."""

    async def code_of(self, store: TableStore, table: str, written: Row) -> str | None:
        """Insert a row and return the code of its refusal, or None. A transaction must be refused in the same way."""
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

    async def test_properties(self, store: TableStore, table: str) -> None:
        """A row has at most 252 properties besides the keys and the Timestamp; annotations are not counted."""
        most: Row = {f"P{number}": number for number in range(200)}
        for number in range(52):
            most |= typed(f"T{number}", str(number), Edm.INT64)

        assert await self.code_of(store, table, row() | most) is None
        assert await self.code_of(store, table, row(row_key="2", More=1) | most) == Code.TOO_MANY_PROPERTIES

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
        """A merge may not bring a row beyond 252 properties; at 252 it may change any of them."""
        need(store, "exact_limits")
        need(store, "faithful")
        await insert(store, table, row() | {f"P{number}": number for number in range(251)})
        await store.write(table, Operation(Verb.MERGE, row(P251=1), "*"))
        before = await store.get(table, "p", "r")

        for merge in (Operation(Verb.MERGE, row(More=1), "*"), Operation(Verb.INSERT_OR_MERGE, row(More=1))):
            assert (await refusal(store.write(table, merge))).code == Code.TOO_MANY_PROPERTIES
        assert await store.get(table, "p", "r") == before
        await store.write(table, Operation(Verb.MERGE, row(P0="x", P251="y"), "*"))
        assert (await store.get(table, "p", "r"))["P251"] == "y"

    @pytest.mark.parametrize(
        ("name", "code"),
        [
            ("A" * 255, None),
            ("A" * 256, Code.PROPERTY_NAME_TOO_LONG),
            ("_x1", None),
            ("Größe", None),
            ("a-b", Code.PROPERTY_NAME_INVALID),
            ("1a", Code.PROPERTY_NAME_INVALID),
            ("", Code.PROPERTY_NAME_INVALID),
            ("a b", Code.PROPERTY_NAME_INVALID),
            ("a.b", Code.PROPERTY_NAME_INVALID),
        ],
    )
    async def test_property_names(self, store: TableStore, table: str, name: str, code: Code | None) -> None:
        """A name is an identifier of at most 255 characters."""
        assert await self.code_of(store, table, row() | {name: 1}) == code

    @pytest.mark.parametrize(
        ("value", "code"),
        [
            ("x" * 32_768, None),
            ("x" * 32_769, Code.PROPERTY_VALUE_TOO_LARGE),
            ("ä" * 32_768, None),
            ("ä" * 32_769, Code.PROPERTY_VALUE_TOO_LARGE),
            ("😀" * 16_384, None),
            ("😀" * 16_384 + "x", Code.PROPERTY_VALUE_TOO_LARGE),
        ],
        ids=lambda value: f"{value[0]}{len(value)}" if isinstance(value, str) else "",
    )
    async def test_text(self, store: TableStore, table: str, value: str, code: Code | None) -> None:
        """A String has at most 32,768 UTF-16 units."""
        assert await self.code_of(store, table, row(V=value)) == code

    async def test_binary(self, store: TableStore, table: str) -> None:
        """A Binary has at most 65,536 bytes."""
        fits, too_large = "AAAA" * 21_845 + "AA==", "AAAA" * 21_845 + "AAA="

        assert await self.code_of(store, table, row() | typed("V", fits, Edm.BINARY)) is None
        bad = row(row_key="2") | typed("V", too_large, Edm.BINARY)
        assert await self.code_of(store, table, bad) == Code.PROPERTY_VALUE_TOO_LARGE

    async def test_entity(self, store: TableStore, table: str) -> None:
        """A row has at most 1 MiB, counted as UTF-16: 16 texts of 32,000 fit, 17 do not."""
        texts = {f"S{number}": "x" * 32_000 for number in range(16)}

        assert await self.code_of(store, table, row(**texts)) is None
        assert await self.code_of(store, table, row(row_key="2", **texts, S16="x" * 32_000)) == Code.ENTITY_TOO_LARGE

    async def test_entity_after_a_merge(self, store: TableStore, table: str) -> None:
        """A merge may not bring a row beyond 1 MiB."""
        need(store, "exact_limits")
        need(store, "faithful")
        await insert(store, table, row(**{f"S{number}": "x" * 32_000 for number in range(16)}))
        before = await store.get(table, "p", "r")

        fault = await refusal(store.write(table, Operation(Verb.MERGE, row(More="x" * 32_000), "*")))
        assert fault.code == Code.ENTITY_TOO_LARGE
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
