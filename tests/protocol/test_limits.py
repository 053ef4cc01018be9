"""
The service's limits, each at its exact edge.
"""

import unicodedata
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm.protocol.codes import STATUS, Code, Fault
from tableorm.protocol.limits import (
    MAX_CUSTOM_PROPERTIES,
    MAX_ENTITY_BYTES,
    MAX_KEY_UNITS,
    MAX_PROPERTY_NAME,
    bad_in_property_name,
    check_key,
    check_property_name,
    check_row,
    check_table_name,
    entity_size,
    key_fault,
)

ASTRAL = "\U0001f600"  # two UTF-16 units


def row(**properties: Any) -> dict[str, Any]:
    return {"PartitionKey": "p", "RowKey": "r", **properties}


@pytest.mark.parametrize("name", ["abc", "A" * 63, "Tables1", "t0Z", "tablesX"])
def test_table_names(name: str) -> None:
    """3 to 63 letters and digits that start with a letter make a table name."""
    check_table_name(name)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("ab", Code.KEY_OUT_OF_RANGE),
        ("A" * 64, Code.KEY_OUT_OF_RANGE),
        ("", Code.INVALID_RESOURCE_NAME),
        ("1abc", Code.INVALID_RESOURCE_NAME),
        ("a_bc", Code.INVALID_RESOURCE_NAME),
        ("abcé", Code.INVALID_RESOURCE_NAME),
        ("abc\n", Code.INVALID_RESOURCE_NAME),
        ("ab٣", Code.INVALID_RESOURCE_NAME),
        ("Tables", Code.INVALID_RESOURCE_NAME),
        ("tables", Code.INVALID_RESOURCE_NAME),
    ],
)
def test_bad_table_names(name: str, code: Code) -> None:
    """Anything else is refused with the service's code, showing the name."""
    with pytest.raises(Fault) as caught:
        check_table_name(name)
    assert caught.value.code == code
    assert repr(name) in caught.value.message


@pytest.mark.parametrize("key", ["", "a", "a" * MAX_KEY_UNITS, ASTRAL * (MAX_KEY_UNITS // 2), "é ü%+'\"^", "\xa0"])
def test_keys(key: str) -> None:
    """A key holds up to 512 UTF-16 units, and may be empty."""
    assert check_key("RowKey", key) == key
    assert key_fault(key) is None


@pytest.mark.parametrize("char", [*"/\\#?", "\x00", "\t", "\n", "\x1f", "\x7f", "\x80", "\x9f"])
def test_forbidden_in_keys(char: str) -> None:
    """Slash, backslash, hash, question mark and control characters are refused, with their number and position."""
    with pytest.raises(Fault, match=rf"U\+{ord(char):04X} at position 1") as caught:
        check_key("RowKey", f"a{char}b")
    assert caught.value.code == Code.KEY_OUT_OF_RANGE
    assert caught.value.property == "RowKey"


@pytest.mark.parametrize(
    ("key", "length"),
    [
        ("a" * (MAX_KEY_UNITS + 1), "513 characters"),
        (ASTRAL * (MAX_KEY_UNITS // 2) + "a", "257 characters, which count as 513 UTF-16 code units"),
    ],
)
def test_long_keys(key: str, length: str) -> None:
    """The 513th UTF-16 unit is one too many, and the message counts as the writer of the text does."""
    with pytest.raises(Fault, match=f"has {length}, 512 are allowed"):
        check_key("PartitionKey", key)


def test_key_without_utf8_form() -> None:
    """A lone surrogate is refused."""
    with pytest.raises(Fault, match="lone surrogate"):
        check_key("RowKey", "a\udc00")


@pytest.mark.parametrize("key", [None, 1, b"x"])
def test_key_that_is_no_text(key: object) -> None:
    """A missing key, or one that is no text, has its own code."""
    with pytest.raises(Fault, match="RowKey") as caught:
        check_key("RowKey", key)
    assert caught.value.code == Code.PROPERTIES_NEED_VALUE


@pytest.mark.parametrize(
    "name",
    ["a", "_a", "A1_b", "é", "名前", "a" * MAX_PROPERTY_NAME, "ชื่อ", "नाम", "a‿b", "a\u200db", "e\u0301", "Ⅷ", "a٣"],
)
def test_property_names(name: str) -> None:
    """A property name is a C# identifier of up to 255 characters, with marks, connectors and format characters."""
    check_property_name(name)


# The categories of characters in a C# identifier, at its beginning and after that.
CATEGORIES = {"Lu": 1, "Ll": 1, "Lt": 1, "Lm": 1, "Lo": 1, "Nl": 1, "Mn": 2, "Mc": 2, "Nd": 2, "Pc": 2, "Cf": 2}


@given(st.characters())
def test_characters_of_property_names(char: str) -> None:
    """A character may begin a name, or stand in one, as C# has it; one of two UTF-16 units may do neither."""
    place = 0 if char > "\uffff" else 1 if char == "_" else CATEGORIES.get(unicodedata.category(char), 0)

    assert bad_in_property_name(char) == (None if place == 1 else 0)
    assert bad_in_property_name(f"é{char}") == (None if place else 1)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("a" * (MAX_PROPERTY_NAME + 1), Code.PROPERTY_NAME_TOO_LONG),
        ("", Code.PROPERTY_NAME_INVALID),
        ("1a", Code.PROPERTY_NAME_INVALID),
        ("a-b", Code.PROPERTY_NAME_INVALID),
        ("a b", Code.PROPERTY_NAME_INVALID),
        ("a@b", Code.PROPERTY_NAME_INVALID),
        ("a\n", Code.PROPERTY_NAME_INVALID),
        ("٣a", Code.PROPERTY_NAME_INVALID),
        ("\u0e31a", Code.PROPERTY_NAME_INVALID),
        ("‿a", Code.PROPERTY_NAME_INVALID),
        ("a²", Code.PROPERTY_NAME_INVALID),
        ("a\U00010400", Code.PROPERTY_NAME_INVALID),
        ("a\ud800", Code.PROPERTY_NAME_INVALID),
    ],
)
def test_bad_property_names(name: str, code: Code) -> None:
    """Anything else is refused, the first time and again."""
    for _ in range(2):
        with pytest.raises(Fault) as caught:
            check_property_name(name)
        assert caught.value.code == code
        assert caught.value.property == name


def test_property_count() -> None:
    """A row holds 252 properties besides the system's; annotations do not count."""
    full: dict[str, Any] = {}
    for number in range(MAX_CUSTOM_PROPERTIES):
        full |= {f"p{number}": "1", f"p{number}@odata.type": "Edm.Int64"}
    check_row(row(**full, Timestamp="2024-01-01T00:00:00.0000000Z"))

    with pytest.raises(Fault, match="253 properties, 252 are allowed") as caught:
        check_row(row(**full, one_more=True))
    assert caught.value.code == Code.TOO_MANY_PROPERTIES


def test_string_size() -> None:
    """A String holds 64 KiB of UTF-16: 32768 units, half as many astral characters."""
    check_row(row(a="x" * 32_768, b=ASTRAL * 16_384))

    astral = "16385 characters, which count as 32769 UTF-16 code units"
    for value, length in (
        ("x" * 32_769, "32769 characters"),
        ("é" * 32_769, "32769 characters"),
        (ASTRAL * 16_384 + "x", astral),
    ):
        with pytest.raises(Fault, match=f"'a' has {length}, 32768 are allowed") as caught:
            check_row(row(a=value))
        assert (caught.value.code, caught.value.property) == (Code.PROPERTY_VALUE_TOO_LARGE, "a")


def test_binary_size() -> None:
    """A Binary holds 64 KiB, not counted in base64."""

    def binary(size: int) -> dict[str, Any]:
        return row(**{"a": b64encode(bytes(size)).decode(), "a@odata.type": "Edm.Binary"})

    check_row(binary(65_536))

    with pytest.raises(Fault, match="65537 bytes"):
        check_row(binary(65_537))


def test_entity_size() -> None:
    """An entity holds 1 MiB by the published formula, and the last byte of it is usable."""
    # 4 + 2 * (1 + 1) for the keys; 8 + 2 * 3 + 4 + 2 * length for a String with a name of three characters.
    full = {f"s{number:02}": "x" * 32_000 for number in range(16)}
    rest = MAX_ENTITY_BYTES - entity_size(row(**full)) - (8 + 2 * 3 + 4)
    assert rest % 2 == 0
    full["max"] = "x" * (rest // 2)
    check_row(row(**full))
    assert entity_size(row(**full)) == MAX_ENTITY_BYTES

    full["max"] += "x"
    with pytest.raises(Fault, match=f"{MAX_ENTITY_BYTES + 2} bytes, {MAX_ENTITY_BYTES} are allowed") as caught:
        check_row(row(**full))
    assert caught.value.code == Code.ENTITY_TOO_LARGE


@pytest.mark.parametrize(
    ("properties", "size"),
    [
        ({}, 0),
        ({"a": ""}, 10 + 4),
        ({"a": ASTRAL}, 10 + 4 + 4),
        ({"é": "é"}, 10 + 4 + 2),
        ({"a": True}, 10 + 1),
        ({"a": 1}, 10 + 4),
        ({"a": 1.0}, 10 + 8),
        ({"a": "1", "a@odata.type": "Edm.Int64"}, 10 + 8),
        ({"a": "NaN", "a@odata.type": "Edm.Double"}, 10 + 8),
        ({"a": "2024-01-01T00:00:00.0000000Z", "a@odata.type": "Edm.DateTime"}, 10 + 8),
        ({"a": "00000000-0000-0000-0000-000000000001", "a@odata.type": "Edm.Guid"}, 10 + 16),
        ({"a": "AAAA", "a@odata.type": "Edm.Binary"}, 10 + 4 + 3),
        ({"Timestamp": "2024-01-01T00:00:00.0000000Z", "odata.etag": "W/x"}, 0),
    ],
)
def test_size_of_each_type(properties: dict[str, Any], size: int) -> None:
    """4 + 2 x key units + per property 8 + 2 x name units + the size of its type."""
    assert entity_size(row(**properties)) == 4 + 2 * 2 + size


@pytest.mark.parametrize(
    "properties",
    [
        {"a": None},
        {"a": [1]},
        {"a": {"b": 1}},
        {"a": 2**31},
        {"a": float("nan")},
        {"a": float("inf")},
        {"a@odata.type": "Edm.Int64"},
        {"a": 1, "a@odata.type": "Edm.Int64"},
        {"a": "x", "a@odata.type": "Edm.Int64"},
        {"a": "x", "a@odata.type": "Edm.Guid"},
        {"a": "x", "a@odata.type": "Edm.Nonsense"},
        {"a": "2023-02-29T00:00:00.0000000Z", "a@odata.type": "Edm.DateTime"},
        {"a": "2024-02-29T00:00:00.00000001Z", "a@odata.type": "Edm.DateTime"},
    ],
)
def test_values_that_no_type_has(properties: dict[str, Any]) -> None:
    """A member that is no value of its type is refused as bad input, naming the property."""
    with pytest.raises(Fault, match="a") as caught:
        check_row(row(**properties))
    assert caught.value.code == Code.INVALID_INPUT
    assert caught.value.property is not None


@pytest.mark.parametrize("moment", ["1600-12-31T23:59:59.9999999Z", "1601-01-01T00:00+00:01", "9999-12-31T23:59-00:01"])
def test_dates_outside_the_range(moment: str) -> None:
    """A DateTime before 1601 or after 9999 has a code of its own."""
    with pytest.raises(Fault, match="1601-01-01 to 9999-12-31") as caught:
        check_row(row(**{"a": moment, "a@odata.type": "Edm.DateTime"}))
    assert (caught.value.code, caught.value.property) == (Code.KEY_OUT_OF_RANGE, "a")


def test_a_small_row_is_checked_too() -> None:
    """That a row is known to be small spares measuring it, nothing else."""
    for properties in ({"a": None}, {"1": "x"}, {"a": "x", "a@odata.type": "Edm.Int64"}):
        with pytest.raises(Fault):
            check_row(row(**properties), encoded_size=60)


def test_rows_without_keys() -> None:
    """A row without a key is refused, naming the key."""
    with pytest.raises(Fault, match="PartitionKey"):
        check_row({"RowKey": "r"})
    with pytest.raises(Fault, match="RowKey"):
        check_row({"PartitionKey": "p"})


def test_every_code_has_a_status() -> None:
    """Each error code is known with its HTTP status."""
    assert set(STATUS) == set(Code)
    assert {STATUS[code] for code in Code if "NOT_FOUND" in code.name} == {404}
    assert {STATUS[code] for code in Code if code.name.endswith("_EXISTS")} == {409}
    assert {STATUS[code] for code in Code if code.name.startswith("AUTHORIZATION_")} == {403}
