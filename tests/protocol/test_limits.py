"""
What the contract of stores does not reach of the limits: sizes to the last byte, every character, what a fault says.
"""

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm.protocol.codes import STATUS, Code, Fault
from tableorm.protocol.limits import (
    MAX_ENTITY_BYTES,
    MAX_KEY_UNITS,
    bad_in_property_name,
    check_key,
    check_row,
    entity_size,
)

ASTRAL = "\U0001f600"  # two UTF-16 units


def row(**properties: Any) -> dict[str, Any]:
    return {"PartitionKey": "p", "RowKey": "r", **properties}


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


# The categories of characters in a C# identifier, at its beginning and after that.
CATEGORIES = {"Lu": 1, "Ll": 1, "Lt": 1, "Lm": 1, "Lo": 1, "Nl": 1, "Mn": 2, "Mc": 2, "Nd": 2, "Pc": 2, "Cf": 2}


@given(st.characters())
def test_characters_of_property_names(char: str) -> None:
    """A character may begin a name, or stand in one, as C# has it; one of two UTF-16 units may do neither."""
    place = 0 if char > "\uffff" else 1 if char == "_" else CATEGORIES.get(unicodedata.category(char), 0)

    assert bad_in_property_name(char) == (None if place == 1 else 0)
    assert bad_in_property_name(f"é{char}") == (None if place else 1)


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
        {"a@odata.type": "Edm.Int64"},
        {"a": 1, "a@odata.type": "Edm.Int64"},
        {"a": "2024-02-29T00:00:00.00000001Z", "a@odata.type": "Edm.DateTime"},
    ],
)
@pytest.mark.parametrize("encoded_size", [None, 60])
def test_values_that_no_type_has(properties: dict[str, Any], encoded_size: int | None) -> None:
    """
    A member that is no value of its type is rejected as bad input, naming the property. That a row is known to be small
    spares measuring it, nothing else.
    """
    with pytest.raises(Fault, match="a") as caught:
        check_row(row(**properties), encoded_size)
    assert caught.value.code == Code.INVALID_INPUT
    assert caught.value.property is not None


def test_rows_without_keys() -> None:
    """A row without a key is rejected, naming the key."""
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
