"""
What a client parses of an answer, and of what others may have written into rows.
"""

import re

import msgspec
import pytest

from tableorm import AccessDenied, DecodeError, Throttled
from tableorm.derived.feed import rows as feed_rows
from tableorm.models.marker_rows import CHANGE_KIND
from tableorm.outbox.decision import decision_of
from tests.azure.stub import Answer
from tests.security.world import client_of


async def test_the_bytes_of_a_blob_are_not_looked_at() -> None:
    """A blob may be XML of any number of elements."""
    content = b"<a/>" * 100_000
    span = f"bytes 0-{len(content) - 1}/{len(content)}"
    headers = {"Content-Type": "application/xml", "x-ms-blob-type": "BlockBlob", "Content-Range": span}
    headers |= {"ETag": '"a"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
    async with client_of(Answer(206, headers, content)) as (db, _):
        found = await db.blobs.read("container", "name")
    assert found == content


@pytest.mark.parametrize(("status", "error"), [(403, AccessDenied), (503, Throttled)])
async def test_a_page_of_a_proxy_is_told_by_its_status(status: int, error: type[Exception]) -> None:
    """A refusal that is not the service's, is what its status says."""
    page = "<html>" + '<div class="a" id="b"><a href="c" class="d">e</a></div>' * 400 + "</html>"
    async with client_of(Answer(status, {"Content-Type": "text/html"}, page.encode())) as (db, _):
        with pytest.raises(error):
            await db.queues.list_queues()


def test_a_change_of_a_feed_does_not_become_many_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Together its pieces are no longer than a row can be; otherwise they are not parsed, and the row is damaged."""
    parsed: list[str] = []
    monkeypatch.setattr(feed_rows, "_decode", parsed.append)
    monkeypatch.setattr(feed_rows, "_is_feed", bool)
    for length, times in ((600_000, 0), (60_000, 1)):
        row = {"PartitionKey": "p", "RowKey": "r", "EntityType": CHANGE_KIND, "Feed": "a", "Changes": "[" * length}
        with pytest.raises(DecodeError, match="is not a change of a change feed"):
            feed_rows.parse_change(row)
        assert len(parsed) == times


@pytest.mark.parametrize("name", ["Work", "Progress"])
def test_a_decision_row_does_not_become_many_objects(name: str) -> None:
    """Neither of its JSON texts is parsed if it is longer than a property can be."""
    work = msgspec.json.encode({"format": 1, "works": []}).decode()
    row = {"PartitionKey": "p", "RowKey": "~o_" + "a" * 12, "State": "committed", "Work": work, "Progress": "[]"}
    row[name] += " " * 40_000
    with pytest.raises(DecodeError, match="it is longer than a String"):
        decision_of(row)


async def test_lists_are_asked_for_in_pages_that_are_parsed_quickly() -> None:
    """However many items the service would give at once, no more than 500 are asked for."""
    empty = b"<EnumerationResults><Queues/><Containers/><Blobs/></EnumerationResults>"
    async with client_of(Answer(200, {"Content-Type": "application/xml"}, empty)) as (db, stub):
        await db.queues.list_queues()
        await db.blobs.list_containers()
        await db.blobs.list_blobs("container")
        await db.blobs.list_blobs("container", limit=7)

    asked = [re.search(r"maxresults=([0-9]+)", request.target) for request in stub.requests]
    assert [found and found[1] for found in asked] == ["500", "500", "500", "7"]
