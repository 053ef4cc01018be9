"""
What a server answers does not make a client hold, or work on, more than an answer of the service can have.
"""

import json
import zlib

import pytest

from tableorm import TableOrmError
from tests.azure.stub import Answer
from tests.security.world import Thing, client_of

# A page has 4 MiB of rows; escapes and annotations may make some of that longer.
FAR_TOO_MUCH = 96 * 1024 * 1024


async def test_a_small_answer_does_not_become_large() -> None:
    """An answer of 100 KB that decompresses to 96 MiB is refused, not decompressed in one piece and believed."""
    compress = zlib.compressobj(9, zlib.DEFLATED, 31)
    body = compress.compress(b'{"value":[') + compress.compress(b" " * FAR_TOO_MUCH) + compress.compress(b"]}")
    body += compress.flush()
    async with client_of(Answer(200, {"Content-Encoding": "gzip"}, body)) as (db, _):
        with pytest.raises(TableOrmError):
            await db.select(Thing).where(Thing.p == "a").all()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, b'{"a":' * 3000),
        (200, b'{"a":' + b"[" * 100_000),
        (200, json.dumps({"PartitionKey": "a", "RowKey": "b", "g": 5, "g@odata.type": "Edm.Guid"}).encode()),
    ],
    ids=["deep error", "deep row", "guid that is a number"],
)
async def test_a_strange_answer_raises_an_error_of_ours(status: int, body: bytes) -> None:
    """JSON that nests deeply or has another type raises TableOrmError: else a write would not be known as in doubt."""
    async with client_of(Answer(status, {"Content-Type": "application/json"}, body)) as (db, _):
        with pytest.raises(TableOrmError):
            await db.get(Thing, p="a", r="b")
