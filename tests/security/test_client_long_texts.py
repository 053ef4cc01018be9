"""
Long texts of a hostile server: what is looked through for secrets is no longer than what is shown, and what is parsed
no longer than a property can be.
"""

import datetime as dt
import json
from html import unescape
from typing import Any
from uuid import UUID

import pytest

from tableorm import DecodeError, Entity, Mapped, PropertyBag, TableOrmError, field
from tableorm.models.manifest import manifest_of
from tableorm.protocol import redaction
from tests.azure.stub import Answer, row_answer
from tests.security.world import Thing, client_of, gzipped, memory_below


class Doc(Entity, table="Docs", partition_key="{p}", row_key="{r}"):
    p: Mapped[str]
    r: Mapped[str]
    items: Mapped[list[Any]] = field(factory=list)


class Counted(Entity, table="Counted", partition_key="{p}", row_key="{r}", kind=None):
    p: Mapped[str]
    r: Mapped[str]
    n: Mapped[int]


class Dated(Entity, table="Counted", partition_key="{p}", row_key="{r}", kind=None):
    p: Mapped[str]
    r: Mapped[str]
    n: Mapped[dt.datetime]


class Named(Entity, table="Counted", partition_key="{p}", row_key="{r}", kind=None):
    p: Mapped[str]
    r: Mapped[str]
    n: Mapped[UUID]


@pytest.mark.parametrize("what", ["refusal of a read", "list of queues in UTF-16"])  # the former holds
async def test_a_long_answer_is_not_looked_through(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A refusal of some hundred bytes in gzip, which says 300,000 characters, is shortened before it is searched for
    signatures: its references of HTML are decoded one by one, ten times over.
    """
    looked = 0

    def count(text: str) -> str:
        nonlocal looked
        looked += len(text)
        return unescape(text)

    monkeypatch.setattr(redaction, "unescape", count)
    if what == "refusal of a read":
        text = "&a;" * 100_000
        packed = gzipped(json.dumps({"odata.error": {"code": "InvalidInput", "message": {"value": text}}}).encode())
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        answer = Answer(400, headers, packed)
    else:
        text = f'<!DOCTYPE q [<!ENTITY a "x">]><EnumerationResults>{"&a;" * 100_000}</EnumerationResults>'
        headers = {"Content-Type": "application/xml; charset=utf-16", "Content-Encoding": "gzip"}
        answer = Answer(200, headers, gzipped(text.encode("utf-16")))
    async with client_of(answer) as (db, _):
        with pytest.raises(TableOrmError):
            await (db.get(Thing, p="p", r="r") if what == "refusal of a read" else db.queues.list_queues())
    assert looked < 100_000


@pytest.mark.parametrize(
    "members",
    [
        {"n@odata.type": "Edm." + "x" * 100_000, "n": "1"},
        {"n@odata.type": "Edm.Double", "n": "x" * 100_000},
        {"n@odata.type": "Edm.Int64", "n": "9" * 100_000},
        {"n@odata.type": "Edm.DateTime", "n": "2" * 100_000},
        {"n@odata.type": "Edm.Guid", "n": "x" * 100_000},
        {"n": ["x" * 100_000]},
        {"n": "\ud800" + "x" * 100_000},
    ],
)
async def test_what_a_row_says_does_not_fill_the_error(members: dict[str, Any]) -> None:
    """The error of a value that cannot be read quotes no more than its start, however long it or its type is."""
    async with client_of(row_answer(id="a", **members)) as (db, _):
        bag = await db.get(PropertyBag.key("Counted", "p", "r"))
        for model in (Counted, Dated, Named):
            with pytest.raises(DecodeError) as caught:
                await db.get(model, p="p", r="r")
            assert len(str(caught.value)) < 500
    with pytest.raises(DecodeError) as caught:
        bag["n"]
    assert len(str(caught.value)) < 500


async def test_json_in_a_property_does_not_become_many_objects() -> None:
    """JSON in a property is parsed if it has 32,768 characters, as many as a String can have, and not with more."""
    text = "[" + "1," * 16_000 + "1]"
    long = "[" + "[]," * 300_000 + "[]]"
    items = iter([text.ljust(32_768), text.ljust(32_769), long])
    async with client_of(lambda _: row_answer(EntityType="Doc", items=next(items))) as (db, _):
        assert (await db.get(Doc, p="p", r="r")).items == [1] * 16_001
        with pytest.raises(DecodeError, match="JSON text of 32,769 characters"):
            await db.get(Doc, p="p", r="r")
        with memory_below(10 * len(long)), pytest.raises(DecodeError, match="JSON text of 900,004 characters"):
            await db.get(Doc, p="p", r="r")


def test_a_manifest_is_as_long_as_a_string() -> None:
    """A manifest of 32,768 characters is read, and a longer one is damage, which is not parsed."""
    row = {"PartitionKey": "p", "RowKey": "r", "EntityType": "Doc"}
    manifest = json.dumps({"a": "x" * (32_768 - 9)})
    assert len(manifest) == 32_768
    assert list(manifest_of({**row, "_ix": manifest})) == ["a"]
    with pytest.raises(DecodeError, match="which is not a manifest"):
        manifest_of({**row, "_ix": manifest + " "})
