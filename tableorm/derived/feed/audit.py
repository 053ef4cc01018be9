"""
What an audit checks of change feeds: there is a row for each number from the first one that is kept to the last one.

A row of each number up to what the counter says was committed before the counter was read, and is there unless it was
trimmed since. So the counter is read, then the rows, then the counter again, while others write.
"""

from collections.abc import Mapping, Sequence

import attrs

from ...audit.check import WRONG, Check, Claims, IsCandidate, Phase
from ...audit.context import AuditContext
from ...audit.report import Damage
from ...connection.races import Attempts
from ...errors import DecodeError
from ...models.marker_rows import CHANGE_KIND, FEED_KIND
from ...models.schema import Schema
from ...models.write_tokens import new_token
from ...protocol.limits import MAX_TRANSACTION_OPERATIONS
from ...stores import Row, RowAddress
from .rows import (
    COUNTER_KEY,
    MOST_CHANGES,
    MOST_COUNTED,
    Counter,
    change_key,
    counter_of,
    deletion,
    number_of,
    parse_change,
    read_changes,
    trimming,
)

_CLAIM = "\n~f"  # the address of the claims on the feed of a partition
_EACH = 1 << 40  # what a row claims beside its number, so that both how many there are and their numbers count


def _factor(feed: str) -> int:
    """Return what the claims of a feed are multiplied by: an odd number, so that none but zero becomes zero."""
    return hash(feed) | 1


class FeedCheck(Check):
    """
    The check of the change feeds of a table.

    Args:
        context: The rows of the table.
        schema: A model that declares one.
        name: Name of the declaration.
    """

    row_phases = frozenset({Phase.AFTER})
    row_kinds = frozenset({CHANGE_KIND, FEED_KIND})

    def __init__(self, context: AuditContext, schema: Schema, name: str) -> None:
        super().__init__(context, schema, name)
        self._verified: set[str] = set()

    def row_claims(self, row: Row) -> Claims:
        """Claim the number of a change; for the counter take away the claims of the numbers that are kept."""
        try:
            if row["RowKey"] == COUNTER_KEY:
                counter = counter_of(row)
                first, last = counter.trimmed + 1, counter.last
                count = last - first + 1
                return ((_CLAIM, -(count * _EACH + (first + last) * count // 2) * _factor(counter.feed)),)
            feed, _ = parse_change(row)
            return ((_CLAIM, (_EACH + (number_of(row["RowKey"]) or 0)) * _factor(feed)),)
        except DecodeError:
            return ((_CLAIM, WRONG),)

    async def verify_row(self, address: RowAddress, phase: Phase, is_candidate: IsCandidate) -> None:
        """Verify the feed that a row belongs to, each once."""
        partition_key = address.partition_key
        if partition_key in self._verified:
            return
        self._verified.add(partition_key)
        async for _ in Attempts(self.context.db):
            if await self._verify(partition_key):
                return
        self.context.counts.leave()

    async def _verify(self, partition_key: str) -> bool:
        """Verify the feed of a partition; return False if it has to be looked at again."""
        context = self.context
        _, before = await self._read_counter(partition_key)
        feeds = await read_changes(context.db, context.kinds.table, partition_key, 1, MOST_CHANGES, _feed_of)
        etag, counter = await self._read_counter(partition_key)
        text = _find_problem(feeds, Counter(feed="") if before is None else before, counter)
        if text is None:
            return True
        rebuilt = bool(feeds or etag)
        if context.repair and rebuilt and not await self._repair(partition_key, feeds, counter, etag):
            return False
        self.record(context.at(partition_key, COUNTER_KEY), Damage.GAP, text, rebuilt=rebuilt)
        return True

    async def _read_counter(self, partition_key: str) -> tuple[str | None, Counter | None]:
        """Return the ETag of the counter, and the counter; None for one that is not there, or is damaged."""
        row = await self.context.read(self.context.at(partition_key, COUNTER_KEY))
        try:
            return (None, None) if row is None else (row["odata.etag"], counter_of(row))
        except DecodeError:
            return (None if row is None else row["odata.etag"]), None

    async def _repair(
        self, partition_key: str, feeds: Mapping[int, str | None], counter: Counter | None, etag: str | None
    ) -> bool:
        """
        Let the counter count all rows that are there, and trim the feed up to the last change that is missing or
        damaged. Where nothing is left of it, or a made up number leaves too few behind
        it, the feed begins anew.

        Args:
            partition_key: The partition.
            feeds: What tells the feed of each change that is there, by number; None for one that is damaged.
            counter: The counter; None if there is none, or it is damaged.
            etag: The ETag of its row; None if there is none.

        Returns:
            Whether that was done; False if another writer has written meanwhile.
        """
        last = max([0 if counter is None else counter.last, *feeds])
        if last > MOST_COUNTED // 2 or not (counter or feeds):
            anew = trimming(partition_key, Counter(feed=new_token(), etag=etag), [])
            return await self._delete(partition_key, sorted(feeds)) and await self.context.send(anew)
        if counter is None:
            counter = Counter(feed=feeds[last] or new_token(), trimmed=min(feeds) - 1)
        kept = last
        while kept > counter.trimmed and feeds.get(kept) == counter.feed:
            kept -= 1
        sound = attrs.evolve(counter, last=last, trimmed=max(kept, counter.trimmed), etag=etag)
        trimmed = [number for number in sorted(feeds) if number <= sound.trimmed]
        beside = MAX_TRANSACTION_OPERATIONS - 1
        shorter = trimming(partition_key, sound, list(map(change_key, trimmed[:beside])))
        return await self.context.send(shorter) and await self._delete(partition_key, trimmed[beside:])

    async def _delete(self, partition_key: str, numbers: Sequence[int]) -> bool:
        """Delete changes; return False if one of them is gone."""
        for start in range(0, len(numbers), MAX_TRANSACTION_OPERATIONS):
            some = numbers[start : start + MAX_TRANSACTION_OPERATIONS]
            if not await self.context.send([deletion(partition_key, change_key(number)) for number in some]):
                return False
        return True


def _find_problem(feeds: Mapping[int, str | None], before: Counter, counter: Counter | None) -> str | None:
    """
    Return what is wrong with a feed; None if nothing is.

    Args:
        feeds: What tells the feed of each of its rows, by number; None for a row that is damaged.
        before: The counter before they were read; 0 if there was none.
        counter: The counter after that; None if there is none, or it is damaged.
    """
    if counter is None:
        return "the counter of the change feed is missing, or damaged"
    expected = counter.trimmed + 1
    while expected in feeds:
        expected += 1
    if expected <= before.last:
        return f"the change feed lacks the change {expected}"
    odd = [number for number in feeds if not before.trimmed < number <= counter.last]
    if odd:
        return (
            f"the change feed has the change {odd[0]}, and its counter says that it goes from {counter.trimmed + 1} to "
            f"{counter.last}"
        )
    damaged = [number for number, feed in feeds.items() if feed != counter.feed]
    if damaged:
        return f"the change {damaged[0]} of the change feed is damaged, or of another feed"
    return None


def _feed_of(row: Row) -> str | None:
    """Return what tells the feed of a change; None if the row is damaged."""
    try:
        return parse_change(row)[0]
    except DecodeError:
        return None
