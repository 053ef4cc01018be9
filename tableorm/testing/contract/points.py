"""
The contract of single rows: reading, writing under conditions, merging, and every type's values.
"""

import pytest

from ...protocol.codes import Code
from ...protocol.edm import ANNOTATION, Edm, Value, etag_from_ticks
from ...stores import Operation, Row, TableStore, Verb
from .base import StoreContract, insert, need, refusal, row, typed, user_part

CONDITIONAL = [Verb.MERGE, Verb.REPLACE, Verb.DELETE]
UPSERTS = [Verb.INSERT_OR_MERGE, Verb.INSERT_OR_REPLACE]
STALE = etag_from_ticks(638_000_000_000_000_001)


def _operation(verb: Verb, target: Row, if_match: str | None = None) -> Operation:
    """Make an operation; a delete gets only the row's keys."""
    if verb is Verb.DELETE:
        target = row(target["PartitionKey"], target["RowKey"])
    return Operation(verb, target, if_match)


class PointContract(StoreContract):
    """Reading and writing one row by its keys."""

    async def test_row_comes_back(self, store: TableStore, table: str) -> None:
        """A row that was inserted is read with its keys, ETag, Timestamp and properties, in whose names case counts."""
        (tag,) = await insert(store, table, row(Name="Ann", Age=7, name="ann"))

        stored = await store.get(table, "p", "r")
        assert user_part(stored) == row(Name="Ann", Age=7, name="ann")
        assert stored["odata.etag"] == tag
        assert isinstance(stored["Timestamp"], str)

    async def test_missing_row(self, store: TableStore, table: str) -> None:
        """Reading a row that does not exist is rejected, also next to rows that do."""
        await insert(store, table, row("a", "b"))

        for keys in (("a", "c"), ("b", "b"), ("A", "b"), ("a", ""), ("", "b"), ("ab", "")):
            assert (await refusal(store.get(table, *keys))).code == Code.RESOURCE_NOT_FOUND

    @pytest.mark.parametrize(
        "keys",
        [
            ("", ""),
            ("", "r"),
            ("p", ""),
            ("O'Neil", "a''b"),
            ("a,b", "',RowKey='"),
            ("(x)", "=1"),
            ("%20", "+ &"),
            (" lead", "trail "),
            ("äöü", "日本"),
            ("😀", "\U0010ffff"),
            ("\ue000", "\uffff"),
            ("A", "a"),
            ('"', "{}"),
            ("~", "|^`"),
        ],
    )
    async def test_odd_keys(self, store: TableStore, table: str, keys: tuple[str, str]) -> None:
        """Keys may be empty and hold everything but the few forbidden characters; they come back as they were."""
        await insert(store, table, row(*keys, A=1))

        stored = await store.get(table, *keys)
        assert user_part(stored) == row(*keys, A=1)

    @pytest.mark.parametrize("name", ["_a1", "名前", "ชื่อ", "नाम", "a‿b", "a\u200db", "e\u0301"])
    async def test_odd_property_names(self, store: TableStore, table: str, name: str) -> None:
        """A property name may have letters of all languages, marks and connectors; it comes back as it was."""
        sent = {**row(), name: 1}
        await insert(store, table, sent)

        assert user_part(await store.get(table, "p", "r")) == sent

    async def test_keys_do_not_run_together(self, store: TableStore, table: str) -> None:
        """The border between PartitionKey and RowKey is part of the key, and so is letter case."""
        all_keys = [("", "ab"), ("a", "b"), ("ab", ""), ("a", "bc"), ("ab", "c"), ("p", "A"), ("p", "a"), ("P", "a")]
        for index, keys in enumerate(all_keys):
            await insert(store, table, row(*keys, Index=index))

        for index, keys in enumerate(all_keys):
            assert (await store.get(table, *keys))["Index"] == index

    async def test_projection(self, store: TableStore, table: str) -> None:
        """`select` returns the named properties with their types, None for an absent one, and always the ETag."""
        (tag,) = await insert(store, table, row(A=1, B="x") | typed("C", "5", Edm.INT64))

        stored = await store.get(table, "p", "r", ("C", "A", "Missing", "RowKey"))
        assert stored == {
            "odata.etag": tag,
            "C": "5",
            "C@odata.type": "Edm.Int64",
            "A": 1,
            "Missing": None,
            "RowKey": "r",
        }
        assert await store.get(table, "p", "r", ()) == {"odata.etag": tag}

    async def test_null_is_absent(self, store: TableStore, table: str) -> None:
        """A property that is None is not stored, nor is its type, by an insert or a replace."""
        null = row(A=1, B=None) | {"C": None, "C" + ANNOTATION: "Edm.Int64"}
        await insert(store, table, null)
        assert user_part(await store.get(table, "p", "r")) == row(A=1)

        await store.write(table, Operation(Verb.REPLACE, row(A=None, B=2), "*"))
        assert user_part(await store.get(table, "p", "r")) == row(B=2)

    async def test_system_members_are_ignored(self, store: TableStore, table: str) -> None:
        """A row that was read may be written again: its ETag and Timestamp are the store's."""
        (first,) = await insert(store, table, row(A=1))
        stored = await store.get(table, "p", "r")
        second = await store.write(
            table, Operation(Verb.REPLACE, stored | {"Timestamp": "2001-01-01T00:00:00Z"}, first)
        )

        again = await store.get(table, "p", "r")
        assert user_part(again) == row(A=1)
        assert again["odata.etag"] == second != first
        assert again["Timestamp"] > stored["Timestamp"]

    @pytest.mark.parametrize("verb", [verb for verb in Verb if verb is not Verb.DELETE])
    async def test_the_callers_row_is_not_changed(self, store: TableStore, table: str, verb: Verb) -> None:
        """A store does not change the row that it is given, and keeps no reference to it."""
        await store.write(table, Operation(Verb.INSERT_OR_REPLACE, row(A=1)))
        if verb is Verb.INSERT:
            await store.write(table, Operation(Verb.DELETE, row(), "*"))
        mine = row(B=2, C=None) | typed("D", "5", Edm.INT64)
        copy = dict(mine)
        await store.write(table, _operation(verb, mine, "*" if verb in CONDITIONAL else None))

        assert mine == copy
        mine["B"] = 3
        assert (await store.get(table, "p", "r"))["B"] == 2

    async def test_a_read_row_is_the_callers(self, store: TableStore, table: str) -> None:
        """Changing a row that was read changes nothing stored."""
        await insert(store, table, row(A=1))
        (await store.get(table, "p", "r"))["A"] = 2

        assert (await store.get(table, "p", "r"))["A"] == 1


class ConditionalWriteContract(StoreContract):
    """
    Every verb on a row that exists and on one that does not, under every condition.

    Source: Table service REST, "Operations on entities"; the table of conditional writes.
    """

    async def test_insert_of_what_exists(self, store: TableStore, table: str) -> None:
        """An insert of a row that exists is rejected, and the row is unchanged."""
        await insert(store, table, row(A=1))
        before = await store.get(table, "p", "r")

        fault = await refusal(store.write(table, Operation(Verb.INSERT, row(A=2))))
        assert fault.code == Code.ENTITY_EXISTS
        assert await store.get(table, "p", "r") == before

    @pytest.mark.parametrize("verb", UPSERTS)
    async def test_upsert_creates(self, store: TableStore, table: str, verb: Verb) -> None:
        """An upsert makes the row where there is none."""
        tag = await store.write(table, Operation(verb, row(A=1, B=None)))

        stored = await store.get(table, "p", "r")
        assert stored["odata.etag"] == tag
        assert user_part(stored) == row(A=1)

    @pytest.mark.parametrize("verb", UPSERTS)
    async def test_upsert_updates(self, store: TableStore, table: str, verb: Verb) -> None:
        """An upsert merges into, or replaces, the row that is there."""
        await insert(store, table, row(A=1, B=1))
        tag = await store.write(table, Operation(verb, row(B=2, C=3)))

        stored = await store.get(table, "p", "r")
        expected = row(B=2, C=3) if verb is Verb.INSERT_OR_REPLACE else row(A=1, B=2, C=3)
        assert user_part(stored) == expected
        assert stored["odata.etag"] == tag

    @pytest.mark.parametrize("any_tag", [True, False])
    @pytest.mark.parametrize("verb", CONDITIONAL)
    async def test_condition_that_holds(self, store: TableStore, table: str, verb: Verb, *, any_tag: bool) -> None:
        """With `*` or the current ETag the write happens, and a new ETag comes back."""
        (tag,) = await insert(store, table, row(A=1, B=1))
        new = await store.write(table, _operation(verb, row(B=2), "*" if any_tag else tag))

        if verb is Verb.DELETE:
            assert new is None
            assert (await refusal(store.get(table, "p", "r"))).code == Code.RESOURCE_NOT_FOUND
        else:
            stored = await store.get(table, "p", "r")
            assert stored["odata.etag"] == new != tag
            assert user_part(stored) == (row(B=2) if verb is Verb.REPLACE else row(A=1, B=2))

    @pytest.mark.parametrize("verb", CONDITIONAL)
    async def test_stale_etag_is_refused(self, store: TableStore, table: str, verb: Verb) -> None:
        """With the ETag of an earlier version, or of no row at all, the write is rejected, and the row is unchanged."""
        (old,) = await insert(store, table, row(A=1))
        await store.write(table, Operation(Verb.MERGE, row(), old))
        before = await store.get(table, "p", "r")

        for tag in (old, STALE, 'W/"wrong"'):
            fault = await refusal(store.write(table, _operation(verb, row(A=2), tag)))
            assert fault.code == Code.CONDITION_NOT_SATISFIED
        assert await store.get(table, "p", "r") == before

    @pytest.mark.parametrize("tag", ["*", STALE])
    @pytest.mark.parametrize("verb", CONDITIONAL)
    async def test_missing_row_is_refused_before_its_tag(
        self, store: TableStore, table: str, verb: Verb, tag: str
    ) -> None:
        """A conditional write of a row that does not exist raises ResourceNotFound for every ETag, and makes no row."""
        fault = await refusal(store.write(table, _operation(verb, row(A=1), tag)))

        assert fault.code == Code.RESOURCE_NOT_FOUND
        assert (await refusal(store.get(table, "p", "r"))).code == Code.RESOURCE_NOT_FOUND

    @pytest.mark.parametrize("exists", [True, False])
    @pytest.mark.parametrize("verb", list(Verb))
    async def test_malformed_condition_is_refused(
        self, store: TableStore, table: str, verb: Verb, *, exists: bool
    ) -> None:
        """Merge, replace and delete need `*` or an ETag, and other text is not a stale one; other verbs take none."""
        if exists:
            await insert(store, table, row(A=1))

        bad = [None, "", "x", "W/", "W/\"datetime'", "* *", "W/\"datetime'x'\", *"]
        for tag in bad if verb in CONDITIONAL else ["*"]:
            assert (await refusal(store.write(table, _operation(verb, row(A=2), tag)))).code == Code.INVALID_INPUT

    async def test_deleted_and_inserted_again(self, store: TableStore, table: str) -> None:
        """The ETag of a row that was deleted does not fit the row that took its place."""
        (old,) = await insert(store, table, row(A=1))
        await store.write(table, Operation(Verb.DELETE, row(), old))
        await insert(store, table, row(A=1))

        fault = await refusal(store.write(table, Operation(Verb.REPLACE, row(A=2), old)))
        assert fault.code == Code.CONDITION_NOT_SATISFIED


GUID = "c9da6455-213d-42c9-9a79-3e9149a57833"
_OTHER_TYPES = row(B="text") | typed("A", "7", Edm.INT64) | typed("C", GUID, Edm.GUID)


class MergeContract(StoreContract):
    """The properties that a merge changes, and those that it leaves."""

    @pytest.fixture(params=[Verb.MERGE, Verb.INSERT_OR_MERGE])
    def verb(self, request: pytest.FixtureRequest) -> Verb:
        """Both verbs that merge."""
        return Verb(request.param)

    @pytest.mark.parametrize(
        ("stored", "change", "expected"),
        [
            (
                row(A=1, B="x") | typed("C", "5", Edm.INT64),
                row(B="y", D=True),
                row(A=1, B="y", D=True) | typed("C", "5", Edm.INT64),
            ),
            (row(A=1, C="text") | typed("B", "5", Edm.INT64), _OTHER_TYPES, _OTHER_TYPES),
            (
                row(A=1) | typed("B", "5", Edm.INT64),
                row(A=None, B=None, C=None),
                row(A=1) | typed("B", "5", Edm.INT64),
            ),
            (row(A=1), row(), row(A=1)),
        ],
        ids=["some properties", "other types", "nulls", "nothing"],
    )
    async def test_merge(
        self, store: TableStore, table: str, verb: Verb, stored: Row, change: Row, expected: Row
    ) -> None:
        """
        Named properties get the new values and types, and the ETag changes; the others keep theirs.

        A property that is None in a merge is neither removed, nor made, and keeps its type.
        """
        (tag,) = await insert(store, table, stored)
        new = await store.write(table, Operation(verb, change, "*" if verb is Verb.MERGE else None))

        merged = await store.get(table, "p", "r")
        assert user_part(merged) == expected
        assert merged["odata.etag"] == new != tag


PLAIN_VALUES: list[Value] = [
    "",
    "text",
    "'\"\\/ \b\f\n\r\t\x00\x7f",
    "ä日本😀\U0010ffff\ue000\uffff",
    "\u2028\u2029",
    "null",
    "12",
    True,
    False,
    0,
    -1,
    2**31 - 1,
    -(2**31),
    0.0,
    -0.0,
    3.0,
    0.1,
    -1.5e300,
    5e-324,
    1.7976931348623157e308,
    1e22,
    2.0**53,
]
TYPED_VALUES = [
    ("NaN", Edm.DOUBLE),
    ("Infinity", Edm.DOUBLE),
    ("-Infinity", Edm.DOUBLE),
    ("0", Edm.INT64),
    ("9223372036854775807", Edm.INT64),
    ("-9223372036854775808", Edm.INT64),
    ("1601-01-01T00:00:00.0000000Z", Edm.DATETIME),
    ("2024-02-29T12:34:56.7891234Z", Edm.DATETIME),
    ("9999-12-31T23:59:59.9999999Z", Edm.DATETIME),
    (GUID, Edm.GUID),
    ("00000000-0000-0000-0000-000000000000", Edm.GUID),
    ("", Edm.BINARY),
    ("AAEC/v8=", Edm.BINARY),
]
BAD_VALUES = [
    ("9223372036854775808", Edm.INT64),
    ("-9223372036854775809", Edm.INT64),
    ("1.5", Edm.INT64),
    ("", Edm.INT64),
    ("abc", Edm.GUID),
    ("1600-12-31T23:59:59Z", Edm.DATETIME),
    ("2023-02-29T00:00:00Z", Edm.DATETIME),
    ("yesterday", Edm.DATETIME),
    ("nan", Edm.DOUBLE),
    ("A", Edm.BINARY),
    ("%%%%", Edm.BINARY),
]


class TypesContract(StoreContract):
    """Values of every type come back exactly as they were written."""

    @pytest.mark.parametrize("value", PLAIN_VALUES, ids=repr)
    async def test_plain_value(self, store: TableStore, table: str, value: Value) -> None:
        """Text, Booleans, Int32 and Doubles, whose type JSON tells: 3.0 stays a Double, 3 an Int32."""
        if repr(value) == "-0.0":
            need(store, "faithful")
        await insert(store, table, row(V=value))

        stored = await store.get(table, "p", "r")
        assert repr(stored["V"]) == repr(value)
        assert "V" + ANNOTATION not in stored

    @pytest.mark.parametrize(("value", "kind"), TYPED_VALUES)
    async def test_typed_value(self, store: TableStore, table: str, value: str, kind: Edm) -> None:
        """Values whose type needs an annotation, to the last digit."""
        await insert(store, table, row() | typed("V", value, kind))

        assert user_part(await store.get(table, "p", "r")) == row() | typed("V", value, kind)

    async def test_all_types_in_one_row(self, store: TableStore, table: str) -> None:
        """Properties of different types do not disturb each other, also when a replace writes them again."""
        wide = row()
        for index, value in enumerate(PLAIN_VALUES):
            wide[f"P{index}"] = value  # zeros of both signs are equal
        for index, (text, kind) in enumerate(TYPED_VALUES):
            wide |= typed(f"T{index}", text, kind)
        await insert(store, table, wide)
        await store.write(table, Operation(Verb.REPLACE, await store.get(table, "p", "r"), "*"))

        assert user_part(await store.get(table, "p", "r")) == wide

    @pytest.mark.parametrize(("value", "kind"), BAD_VALUES)
    @pytest.mark.parametrize("verb", [Verb.INSERT, Verb.INSERT_OR_MERGE, Verb.REPLACE])
    async def test_value_that_is_not_of_its_type(
        self, store: TableStore, table: str, value: str, kind: Edm, verb: Verb
    ) -> None:
        """
        A value that does not fit its type is rejected; the fault names the property, and nothing is stored.

        A date outside of the range has a code of its own.
        """
        need(store, "exact_limits")
        bad = Operation(verb, row() | typed("V", value, kind), "*" if verb is Verb.REPLACE else None)

        fault = await refusal(store.write(table, bad))
        assert fault.code == (Code.KEY_OUT_OF_RANGE if value.startswith("1600") else Code.INVALID_INPUT)
        assert "V" in fault.message
        assert (await refusal(store.get(table, "p", "r"))).code == Code.RESOURCE_NOT_FOUND

    @pytest.mark.parametrize(
        "bad",
        [
            *({"V": value} for value in (2**31, -(2**31) - 1, float("nan"), float("inf"), [1], {"a": 1}, b"x")),
            {"V": "x", "V" + ANNOTATION: "Edm.Decimal"},
        ],
        ids=repr,
    )
    async def test_value_that_needs_a_type(self, store: TableStore, table: str, bad: Row) -> None:
        """A value that JSON cannot hold without a type is rejected, never changed silently; so is an unknown type."""
        assert (await refusal(store.write(table, Operation(Verb.INSERT, row(**bad))))).code == Code.INVALID_INPUT

    @pytest.mark.parametrize("target", ["V", "PartitionKey"])
    async def test_half_a_character(self, store: TableStore, table: str, target: str) -> None:
        """Text with a lone surrogate has no UTF-8 form; it is rejected, in values and in keys."""
        fault = await refusal(store.write(table, Operation(Verb.INSERT, row() | {target: "a\ud800"})))

        assert fault.code in (Code.INVALID_INPUT, Code.KEY_OUT_OF_RANGE)
