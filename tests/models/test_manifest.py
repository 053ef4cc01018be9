"""
The manifest of a row: its forms are stored as they always were, and what is not understood is kept.
"""

from typing import Any

import pytest

from tableorm import DecodeError
from tableorm.models.manifest import (
    AggregateEntry,
    EachEntry,
    HolderEntry,
    IndexEntry,
    ListEntry,
    ManifestEntry,
    SourceEntry,
    UnknownEntry,
    manifest_form,
    manifest_of,
    manifest_text,
    parse_entry,
)

FORMS: list[tuple[str, ManifestEntry, str | None]] = [
    ('"email_x"', IndexEntry("email_x"), "email_x"),
    ('{"each":[["tag_x","tag_y"]]}', EachEntry(("tag_x", "tag_y")), None),
    ('{"list":["lastname_x","Employee#by_last_name"]}', ListEntry("lastname_x", "Employee#by_last_name"), "lastname_x"),
    ('{"add":["department",{"Count":-1}]}', AggregateEntry("department", {"Count": -1}), "department"),
    (
        '{"from":["empid_1","Dept.boss:it"]}',
        SourceEntry("empid_1", "Dept.boss:it"),
        "empid_1",
    ),
    (
        '{"to":["it",{"name":"boss"}]}',
        HolderEntry("it", {"name": "boss"}),
        "it",
    ),
]


@pytest.mark.parametrize(("text", "entry", "local_key"), FORMS)
def test_each_form_is_read_and_written_byte_for_byte(text: str, entry: ManifestEntry, local_key: str | None) -> None:
    """An entry knows the row that it is about, whether its name is declared or not."""
    stored = f'{{"name":{text}}}'
    assert manifest_of({"_ix": stored}) == {"name": entry}
    assert manifest_text({"name": entry}) == stored
    assert entry.local_key == local_key


def test_names_are_written_in_order() -> None:
    """So equal manifests are equal texts."""
    assert manifest_text({"b": IndexEntry("2"), "a": IndexEntry("1")}) == '{"a":"1","b":"2"}'


NOT_UNDERSTOOD: list[Any] = [
    1,
    None,
    [],
    {},
    {"new": ["form"]},
    {"list": ["lastname_x"]},
    {"list": ["lastname_x", 1]},
    {"add": ["department", {"Count": "1"}]},
    {"add": ["department", {"Count": True}]},
    {"from": "empid_1"},
    {"to": ["department", ["name"]]},
    {"to": ["department", {"name": 1}]},
    {"list": ["lastname_x", "kind"], "add": ["department", {}]},
]


@pytest.mark.parametrize("value", NOT_UNDERSTOOD)
def test_what_is_not_understood_is_kept(value: Any) -> None:
    """Damaged, or of a newer program: it is written as it was read."""
    entry = parse_entry(value)
    assert (entry, entry.to_json(), entry.local_key) == (UnknownEntry(value), value, None)


@pytest.mark.parametrize("text", ["", "[]", '"email_x"', "{", 7])
def test_a_damaged_manifest_is_named(text: object) -> None:
    """With the row that has it, and the remedy."""
    row = {"PartitionKey": "p", "RowKey": "r", "EntityType": "Employee", "_ix": text}
    with pytest.raises(DecodeError, match=r"Employee.*'p', 'r'.* is not a manifest .*audit --repair"):
        manifest_of(row)


def test_a_row_without_manifest_has_no_entries() -> None:
    """Nor has a row that is not there."""
    assert (manifest_of(None), manifest_of({"PartitionKey": "p"})) == ({}, {})


def test_a_form_belongs_to_one_class() -> None:
    """A pattern that takes the form of another one is rejected."""
    with pytest.raises(ValueError, match=r"'list' is that of ListEntry; choose another name"):

        @manifest_form("list")
        class Other(ManifestEntry, frozen=True):  # pyright: ignore[reportUnusedClass]
            pass
