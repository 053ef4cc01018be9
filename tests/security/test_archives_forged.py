"""
Blobs of an archive that somebody else has made: an entity is made of one, or an error of this package says what is
wrong.
"""

import json
from contextlib import suppress
from typing import Any

import pytest

from tableorm import BlobArchive, Entity, Mapped, TableOrmError, field


class Kept(Entity, table="ForgedKept", partition_key="{department}", row_key="kept_{id}", version=2):
    department: Mapped[str]
    id: Mapped[int]
    email: Mapped[str | None] = field(default=None)


ARCHIVE = BlobArchive("forged-kept", Kept)
ROW = {"PartitionKey": "a", "RowKey": "kept_1", "EntityType": "Kept:2", "odata.etag": "x", "Timestamp": "t"}
MEMBERS = [*ROW, "email", "email@odata.type", "_ix", "_w", "_mv", "EntityVersion"]
VALUES: list[Any] = [
    None,
    5,
    1.5,
    True,
    "",
    "x",
    [],
    {"a": 1},
    "Kept:1",
    "Kept:0",
    "9" * 5000,
    10**40,
    "Kept#_tentative",
]


@pytest.mark.parametrize("member", MEMBERS)
def test_a_row_of_a_blob_may_be_anything(member: str) -> None:
    """A property of any type, or a missing one, is an error of this package at most."""
    without: dict[str, Any] = {name: value for name, value in ROW.items() if name != member}
    for row in (without, *({**ROW, member: value} for value in VALUES)):
        with suppress(TableOrmError):
            ARCHIVE.load(json.dumps({"format": 1, "table": "ForgedKept", "row": row}).encode())


@pytest.mark.parametrize(
    "content", [b"", b"[", b"[]", b"{}", b"\xff", b'{"format":1,"table":"x","row":' + b'{"a":' * 20_000]
)
def test_a_blob_may_be_anything(content: Any) -> None:
    """What is no blob of an archive is an error of this package."""
    with pytest.raises(TableOrmError):
        ARCHIVE.load(content)
