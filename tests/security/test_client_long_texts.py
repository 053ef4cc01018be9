"""
Long texts of a hostile server: what is looked through for secrets is no longer than what is shown.
"""

import json
import zlib
from html import unescape

import pytest

from tableorm import Entity, Mapped, RetryPolicy, TableOrmError, connect
from tableorm.protocol import redaction
from tableorm.protocol.codes import Fault
from tableorm_azure.codec import decode_row
from tests.azure.stub import KEY, Answer, Stub


class Looked(Entity, table="Looked", partition_key="{id}", row_key="x"):
    id: Mapped[str]


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
    "members", [{"n@odata.type": "Edm." + "x" * 100_000, "n": "1"}, {"n@odata.type": "Edm.Double", "n": "x" * 100_000}]
)
def test_what_a_row_says_does_not_fill_the_error(members: dict[str, str]) -> None:
    """The error of a row that cannot be read quotes no more than the start of a type or value, however long that is."""
    row = {"odata.etag": "c", "PartitionKey": "a", "RowKey": "b", **members}
    with pytest.raises(Fault) as caught:
        decode_row(json.dumps(row).encode())
    assert len(caught.value.message) < 1_000
