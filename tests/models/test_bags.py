"""
Property bags: a row without a model, each property with its type.
"""

import copy
import datetime as dt
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm import DecodeError, Edm, EncodeError, PropertyBag
from tableorm.models.property_bag import bag_of_row
from tableorm.protocol.edm import INT64_MAX, INT64_MIN
from tableorm.protocol.limits import check_row
from tableorm.testing.contract.base import user_part

NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
names = st.text("abcXYZ_", min_size=1, max_size=4)
values: st.SearchStrategy[Any] = st.one_of(
    texts,
    st.booleans(),
    st.integers(INT64_MIN, INT64_MAX),
    st.floats(allow_nan=False),
    st.uuids(),
    st.binary(max_size=10),
    st.datetimes(dt.datetime(1601, 1, 2), dt.datetime(9999, 12, 30), timezones=st.just(dt.UTC)),  # noqa: DTZ001
)


def bag(**properties: Any) -> PropertyBag:
    return PropertyBag("Directory", "p", "r", properties)


@given(st.dictionaries(names, values))
def test_a_bag_is_a_mapping(content: dict[str, Any]) -> None:
    """What is put in comes out, equal and of its type; the row is one that the service takes."""
    found = bag(**content)

    assert dict(found) == content
    assert {name: type(value) for name, value in found.items()} == {n: type(v) for n, v in content.items()}
    assert len(found) == len(content)
    assert set(found) == set(content)
    check_row(found.row)


@pytest.mark.parametrize(
    ("kind", "old", "new", "after"),
    [
        (Edm.INT32, 5, 6, Edm.INT32),
        (Edm.INT64, 5, 6, Edm.INT64),
        (Edm.DOUBLE, 5.5, 6, Edm.DOUBLE),
        (Edm.INT32, 5, 6.5, Edm.DOUBLE),
        (Edm.INT32, 5, "x", Edm.STRING),
        (Edm.INT32, 5, True, Edm.BOOLEAN),
        (Edm.STRING, "x", 5, Edm.INT64),
        (Edm.BOOLEAN, True, 5, Edm.INT64),
        (Edm.DATETIME, NOON, "x", Edm.STRING),
    ],
)
def test_types_of_changed_properties(kind: Edm, old: Any, new: Any, after: Edm) -> None:
    """A number put where a number was keeps the type, if it can be held; anything else takes its own."""
    found = bag()
    found.set("a", old, kind)

    found["a"] = new

    assert found.type_of("a") is after
    assert found["a"] == new
    check_row(found.row)


def test_setting_a_type() -> None:
    """`set` chooses the type; an annotation that is no longer true goes."""
    found = bag(a=5)
    assert found.row == {"PartitionKey": "p", "RowKey": "r", "a": "5", "a@odata.type": "Edm.Int64"}

    found.set("a", 5, Edm.INT32)
    assert found.row == {"PartitionKey": "p", "RowKey": "r", "a": 5}

    found.set("a", 5, Edm.DOUBLE)
    assert found.row["a"] == 5.0
    assert type(found.row["a"]) is float


def test_removing() -> None:
    """None, `del` and `pop` remove a property and its annotation; None for an absent one does nothing."""
    found = bag(a=5, b=6, c=7)

    found["a"] = None
    del found["b"]
    assert found.pop("c") == 7
    found["d"] = None

    assert found.row == {"PartitionKey": "p", "RowKey": "r"}
    assert bag(a=None) == bag()


@pytest.mark.parametrize("name", ["PartitionKey", "RowKey", "Timestamp", "odata.etag", "a@odata.type", "missing"])
def test_what_is_no_property(name: str) -> None:
    """The service's own members and annotations are not among the properties."""
    found = bag(a=5)
    found.row["Timestamp"] = "2024-02-29T12:00:00.0000000Z"
    found.row["odata.etag"] = "W/x"

    assert name not in found
    assert list(found) == ["a"]
    for read in (found.__getitem__, found.__delitem__, found.type_of):
        with pytest.raises(KeyError, match=name):
            read(name)
    assert found.get(name) is None


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("PartitionKey", "x", ["belongs to the service"]),
        ("", "x", ["invalid"]),
        ("x" * 256, "x", ["255"]),
        ("a", "\ud800", ["surrogate"]),
        ("a", 2**63, ["range"]),
        ("a", [1], ["list"]),
        ("a", dt.date(2024, 1, 1), ["date"]),
        ("a", dt.datetime(2024, 1, 1), ["naive"]),  # noqa: DTZ001
        ("small", 2**31, ["range", "Edm.Int32"]),
        ("real", 2**53 + 1, ["exact"]),
        ("real", 10**400, ["exact"]),
    ],
)
def test_what_cannot_be_set(name: str, value: Any, words: list[str]) -> None:
    """A bad name or a value that does not fit is rejected, naming the row and the property; the bag is unchanged."""
    found = bag(real=1.5)
    found.set("small", 5, Edm.INT32)
    before = dict(found.row)

    with pytest.raises(EncodeError) as caught:
        found[name] = value
    for word in ["PropertyBag('Directory', 'p', 'r')", name[:20], *words]:
        assert word in str(caught.value)
    assert found.row == before


def test_keys_and_state() -> None:
    """A bag has its table, keys, ETag and timestamp; it shows its keys and properties."""
    found = bag_of_row(
        "T", {"PartitionKey": "p", "RowKey": "r", "Timestamp": "2024-02-29T12:00:00.0000000Z", "odata.etag": "W/x"}
    )

    assert (found.table, found.partition_key, found.row_key) == ("T", "p", "r")
    assert (found.etag, found.timestamp) == ("W/x", NOON)
    assert (bag().etag, bag().timestamp) == (None, None)
    assert repr(bag(a=5)) == "PropertyBag('Directory', 'p', 'r', {'a': 5})"


def test_equality() -> None:
    """Bags are equal if table, keys, values and types are; ETag and timestamp do not matter. No bag is hashable."""
    read = bag_of_row("Directory", {**bag(a=5).row, "odata.etag": "W/x", "Timestamp": "x"})
    small = bag()
    small.set("a", 5, Edm.INT32)

    assert read == bag(a=5)
    assert bag(a=5) != small
    assert bag(a=1) != bag(a=True)
    assert bag(a=1) != bag(a=1.0)
    assert bag() != PropertyBag("Other", "p", "r")
    assert bag() != PropertyBag("Directory", "p", "x")
    assert bag(a=5) != {"a": 5}
    with pytest.raises(TypeError, match="unhashable"):
        hash(bag())


def test_copies_and_pickles() -> None:
    """Copies and pickles are equal, and share nothing; a bag does not share the row it was made of."""
    row = bag(a=5, at=NOON).row
    original = bag_of_row("Directory", row)

    for other in (
        original.copy(),
        copy.copy(original),
        copy.deepcopy(original),
        pickle.loads(pickle.dumps(original)),
        bag_of_row("Directory", row),
    ):
        assert other == original
        assert type(other) is PropertyBag
        other["a"] = 6
        assert original["a"] == bag_of_row("Directory", row)["a"] == 5


@pytest.mark.parametrize(
    ("value", "annotation"),
    [("no moment", "Edm.DateTime"), ("text", "Edm.Nothing"), ("text", 5), ([1], None), (True, "Edm.Double")],
)
def test_a_value_that_is_none_of_its_type(value: object, annotation: object) -> None:
    """A bag of a damaged row raises DecodeError for the value, which `row` has as it is stored."""
    row = {"PartitionKey": "p", "RowKey": "r", "EntityType": "Thing", "Bad": value, "Bad@odata.type": annotation}
    damaged = bag_of_row("Tab", row)

    with pytest.raises(
        DecodeError, match=r"^Thing.Bad: row \('p', 'r'\) has a value that is none of its type"
    ) as error:
        _ = damaged["Bad"]
    assert (error.value.key, error.value.field) == (("p", "r"), "Bad")
    if value is not True and value != "no moment":
        with pytest.raises(DecodeError):
            damaged.type_of("Bad")
    assert damaged.row["Bad"] == value
    assert repr(damaged) == f"PropertyBag('Tab', 'p', 'r', {{'EntityType': 'Thing', 'Bad': {value!r}}})"


# Copies of rows

READ: dict[str, Any] = {
    "PartitionKey": "p",
    "RowKey": "r",
    "Timestamp": "2024-02-29T12:00:00.0000000Z",
    "odata.etag": "W/x",
    "EntityType": "Sku:2",
    "small": 5,
    "at": "2024-02-29T12:00:00.0000007Z",
    "at@odata.type": "Edm.DateTime",
    "_w": "one,two",
    "_ix": '{"by_name":"n_1"}',
}


def test_a_bag_of_a_bag_is_a_copy() -> None:
    """Under the same keys it has all that is stored, with its types; but neither ETag nor Timestamp."""
    read = bag_of_row("Directory", READ)

    made = PropertyBag("Other", "p", "r", read)
    assert made.row == user_part(READ)
    assert (made.left_out, made.etag) == ((), None)
    made["small"] = 6
    assert read["small"] == 5
    assert (made["at"], made.row["at"]) == (NOON, READ["at"])  # whose last digit no datetime holds


@pytest.mark.parametrize("keys", [("p", "s"), ("q", "r")])
def test_a_bag_of_a_bag_with_other_keys(keys: tuple[str, str]) -> None:
    """It says which properties it leaves out, and warns if rows were derived from the row."""
    read = bag_of_row("Directory", READ)

    with pytest.warns(UserWarning, match=r"table 'Directory' .*leaves out _ix, _w: .*by its model") as caught:
        made = PropertyBag("Directory", *keys, read)
    assert caught[0].filename == __file__
    assert made.left_out == ("_ix", "_w")
    assert dict(made) == {name: read[name] for name in ("EntityType", "small", "at")}
    assert made.type_of("small") is Edm.INT32
    for other in (made.copy(), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert other.left_out == ("_ix", "_w")

    plain = bag_of_row("Directory", {name: value for name, value in READ.items() if name != "_ix"})
    assert PropertyBag("Directory", *keys, plain).left_out == ("_w",)


def test_a_bag_takes_over_another_one() -> None:
    """`update` keeps stored types as well, replaces those that differ, and takes other mappings as before."""
    read = bag_of_row("Directory", READ)
    same, other = PropertyBag("Directory", "p", "r", {"at": 1, "mine": 2}), PropertyBag("Directory", "p", "s")

    same.update(read, small=7)
    assert same.row == {**PropertyBag("Directory", "p", "r", read).row, **bag(mine=2).row, "small": 7}
    with pytest.warns(UserWarning, match="leaves out _ix, _w"):
        other.update(read)
    other.update({"x": True})
    assert (other.left_out, other["x"], other.type_of("small")) == (("_ix", "_w"), True, Edm.INT32)
