"""
Logs on the emulator of the service, as two programs write them.
"""

import datetime as dt

import pytest

from tableorm import connect
from tableorm.logs import LogStream, read_log
from tests.azurite import Azurite


@pytest.mark.parametrize("durable", [False, True])
async def test_on_azurite(azurite: Azurite, durable: bool) -> None:
    """
    A log of requests to a queue, by two programs, on the service's emulator: the names of the hours, the times in the
    metadata, and the records of a span.
    """
    evening = dt.datetime(2014, 7, 31, 18, tzinfo=dt.UTC)
    minute = dt.timedelta(minutes=1)
    container = f"logs-{int(durable)}"
    async with connect(azurite.connection_string) as db:
        streams = [LogStream(db, "queue", container=container, durable=durable) for _ in range(2)]
        async with streams[0] as one, streams[1] as other:
            for n in range(6):
                record = {"operation": "PutMessage", "status": 201, "n": n}
                await (one if n % 2 else other).write(record, at=evening + n * 20 * minute)

        blobs = (await db.blobs.list_blobs(container)).blobs
        assert {blob.name[: len("queue/2014/07/31/1800/")] for blob in blobs} == {
            "queue/2014/07/31/1800/",
            "queue/2014/07/31/1900/",
        }
        firsts = [blob.metadata["first"] for blob in blobs]
        assert (min(firsts), max(blob.metadata["last"] for blob in blobs)) == (
            "2014-07-31T18:00:00Z",
            "2014-07-31T19:40:00Z",
        )
        found = [
            record.data["n"]
            async for record in read_log(db, "queue", evening + 20 * minute, evening + 90 * minute, container=container)
        ]
        assert found == [1, 2, 3, 4]
