"""
Long texts of a hostile server: what is looked through for secrets is no longer than what is shown, and what is parsed
no longer than a property can be.
"""

import datetime as dt
import json
import tracemalloc
import zlib
from html import unescape
from typing import Any
from uuid import UUID

import pytest

from tableorm import DecodeError, Entity, Mapped, PropertyBag, RetryPolicy, TableOrmError, connect, field
from tableorm.models.manifest import manifest_of
from tableorm.protocol import redaction
from tests.azure.stub import KEY, Answer, Stub, row_answer


class Looked(Entity, table="Looked", partition_key="{id}", row_key="x"):
    id: Mapped[str]


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


def gzip(body: bytes) -> bytes:
    compress = zlib.compressobj(9, zlib.DEFLATED, 31)
    return compress.compress(body) + compress.flush()


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
        packed = gzip(json.dumps({"odata.error": {"code": "InvalidInput", "message": {"value": text}}}).encode())
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        answer = Answer(400, headers, packed)
    else:
        text = f'<!DOCTYPE q [<!ENTITY a "x">]><EnumerationResults>{"&a;" * 100_000}</EnumerationResults>'
        headers = {"Content-Type": "application/xml; charset=utf-16", "Content-Encoding": "gzip"}
        answer = Answer(200, headers, gzip(text.encode("utf-16")))
    async with Stub() as stub:
        stub.handler = lambda _: answer
        async with connect(stub.url, key=KEY, timeout=5, retry=RetryPolicy(attempts=1), queues=stub.url) as db:
            with pytest.raises(TableOrmError):
                if what == "refusal of a read":
                    await db.get(Looked, id="1")
                else:
                    await db.queues.list_queues()
    assert looked < 100_000


@pytest.mark.parametrize(
    "members",
    [
        {"n@odata.type": "Edm." + "x" * 100_000, "n": "1"},
        {"n@odata.type": "Edm.Double", "n": "x" * 100_000},
        {"n@odata.type": "Edm.DateTime", "n": "2" * 100_000},
        {"n@odata.type": "Edm.Guid", "n": "x" * 100_000},
        {"n": ["x" * 100_000]},
        {"n": "\ud800" + "x" * 100_000},
    ],
)
async def test_what_a_row_says_does_not_fill_the_error(members: dict[str, Any]) -> None:
    """The error of a value that cannot be read quotes no more than its start, however long it or its type is."""
    async with Stub() as stub:
        stub.answers = [row_answer(id="a", **members)]
        async with connect(stub.url, key=KEY, timeout=5, retry=RetryPolicy(attempts=1)) as db:
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
    async with Stub() as stub:
        stub.answers = [
            row_answer(EntityType="Doc", items=text.ljust(32_768)),
            row_answer(EntityType="Doc", items=text.ljust(32_769)),
            row_answer(EntityType="Doc", items=long),
        ]
        async with connect(stub.url, key=KEY, timeout=5, retry=RetryPolicy(attempts=1)) as db:
            assert (await db.get(Doc, p="p", r="r")).items == [1] * 16_001
            with pytest.raises(DecodeError, match="JSON text of 32,769 characters"):
                await db.get(Doc, p="p", r="r")
            tracemalloc.start()
            try:
                with pytest.raises(DecodeError, match="JSON text of 900,004 characters"):
                    await db.get(Doc, p="p", r="r")
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
    assert peak < 10 * len(long)


def test_a_manifest_is_as_long_as_a_string() -> None:
    """A manifest of 32,768 characters is read, and a longer one is damage, which is not parsed."""
    row = {"PartitionKey": "p", "RowKey": "r", "EntityType": "Doc"}
    manifest = json.dumps({"a": "x" * (32_768 - 9)})
    assert len(manifest) == 32_768
    assert list(manifest_of({**row, "_ix": manifest})) == ["a"]
    with pytest.raises(DecodeError, match="which is not a manifest"):
        manifest_of({**row, "_ix": manifest + " "})
