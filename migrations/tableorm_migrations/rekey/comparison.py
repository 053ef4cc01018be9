"""
The comparison of both sides of an online re-key, while programs go on.

The forward at an older key keeps what the entity was. As long as it names its move, the row at the newer key is what
the mover made of that; so both are added up, in shares of the newer keys. Who writes the entity settles the forward
first: then there is nothing to compare. Where two sums differ, as they also do if somebody writes meanwhile, the rows
of the share are compared one by one.
"""

from collections.abc import Collection
from contextlib import aclosing, suppress
from typing import Any

import attrs

from tableorm import DecodeError
from tableorm.connection.rows import read_row
from tableorm.connection.tasks import map_together
from tableorm.jobs.counts import JobCounts
from tableorm.jobs.process import Job
from tableorm.jobs.report import RunReport
from tableorm.jobs.scan import pages
from tableorm.keys.ranges import KeyRegion
from tableorm.models.marker_rows import TENTATIVE, MoveMark, MoveState, is_marker, mark_of, row_of_marker
from tableorm.models.reserved import ENTITY_TYPE
from tableorm.models.write_tokens import newest_token
from tableorm.stores import Row, RowAddress, row_keys

from .hashing import HashSums, differing_shares, hash_entity, share_of
from .phases import OnlineRekey, rekey_filter
from .sides import Side, rekey_job

_SAMPLES = 20


def comparison(rekey: OnlineRekey, what: str) -> Job[JobCounts, RunReport]:
    """Return the job that compares both sides."""
    compare = _Comparison(rekey)
    old, new = rekey.rekeying.old, rekey.rekeying.new
    sides = [
        Side(
            db=rekey.connection, schema=old, where=rekey_filter(rekey.old_kinds, entities=True), deal=compare.count_old
        ),
        Side(
            db=rekey.connection, schema=new, where=rekey_filter(rekey.new_kinds, entities=True), deal=compare.count_new
        ),
    ]
    return rekey_job(rekey, what, *sides, judge=compare.judge)


@attrs.frozen(eq=False)
class _Comparison:
    rekey: OnlineRekey

    async def count_old(self, rows: list[Row], counts: JobCounts) -> None:
        """Add up what the entities that forwards keep have become; name those that have their older keys."""
        rekey, sums = self.rekey, HashSums()
        left: list[Row] = []
        for row in rows:
            try:
                mark = mark_of(row) if is_marker(row) else None
                if mark is None:
                    if rekey.old_kinds.resolve(row) is not None:
                        left.append(row)
                    continue
                if mark.state is MoveState.TENTATIVE and TENTATIVE in row[ENTITY_TYPE] and not mark.stays:
                    left.append(row)  # of a move by the older model
                    continue
                counts.entities += 1
                if mark.state is MoveState.FORWARD:
                    made = self._convert(row)
                    sums.add(f"expected {_share(mark)}", hash_entity(rekey.rekeying.new, made))
                else:
                    counts.count("written since")
            except Exception as error:  # noqa: BLE001 - the functions are the user's: one bad row is a failure, and no more
                counts.fail(row, error)
        counts.entities += len(left)
        for each in await map_together(self._tell_why_left, left[:_SAMPLES]):
            counts.fail(each)
        counts.failed += max(0, len(left) - _SAMPLES)
        counts.add(JobCounts(sums=sums.take()))

    async def _tell_why_left(self, row: Row) -> str:
        """Say of an entity that has its older key what to do."""
        rekey, new = self.rekey, self.rekey.rekeying.new
        with suppress(Exception):  # the functions are the user's; who moves the row says what is wrong
            made: Any = rekey.rekeying.to_new(rekey.old_kinds.load(row))
            target = RowAddress(new.table_name(), *new.make_keys(made.__dict__))
            there = await read_row(rekey.connection, target)
            if there is not None and not is_marker(there):
                return (
                    f"{row_keys(row)}: has its older key, and another entity has the newer one, {target}; keep one of "
                    f"the two: read the other with db.get(), by {rekey.rekeying.old.name} or {new.name}, delete it, "
                    "and move once more"
                )
        return f"{row_keys(row)}: has its older key still; move once more"

    async def count_new(self, rows: list[Row], counts: JobCounts) -> None:
        """Add up the entities that are as the mover made them."""
        rekey, sums = self.rekey, HashSums()
        for row in rows:
            try:
                mark = mark_of(row)
                made = self._made(row, mark)
                if mark is not None and made is not None:
                    keys = row_keys(row)
                    sums.add(f"found {share_of(*keys)}", hash_entity(rekey.rekeying.new, made, keys))
            except Exception as error:  # noqa: BLE001 - as above
                counts.fail(row, error)
        counts.add(JobCounts(sums=sums.take()))

    async def judge(self, counts: JobCounts) -> None:
        """Count what differs between the two sides, if their sums differ."""
        shares = differing_shares(counts.sums)
        for each in await self._find_differences(shares) if shares else ():
            counts.fail(each)

    async def _find_differences(self, shares: Collection[int]) -> list[str]:
        """Compare the rows of some shares one by one; return the first differences."""
        rekey, failures = self.rekey, list[str]()
        table = rekey.rekeying.old.table_name()
        where = rekey_filter(rekey.old_kinds)
        async with aclosing(pages(rekey.connection, table, where, [KeyRegion()], None, rekey.verb)) as found:
            async for rows in found:
                forwards = [row for row in rows if (mark := _mark_of_forward(row)) and _share(mark) in shares]
                failures += [each for each in await map_together(self._compare, forwards) if each is not None]
                if len(failures) >= _SAMPLES:
                    break
        return failures[:_SAMPLES]

    async def _compare(self, row: Row) -> str | None:
        """Return what is wrong with the entity that a forward names; None if nothing is."""
        rekey, mark = self.rekey, mark_of(row)
        assert mark is not None
        try:
            there = await read_row(rekey.connection, mark.other)
            found = mark_of(there)
            new = rekey.rekeying.new
            if there is not None and found is None and newest_token(there) and rekey.new_kinds.resolve(there):
                return None  # written by a program with tableorm, after one without it had removed the mark
            made = None if there is None or found is None or found.move != mark.move else self._made(there, found)
            if made is not None and hash_entity(new, made) == hash_entity(new, self._convert(row)):
                return None
            problem = "is missing" if there is None else "has other content"
        except Exception as error:  # noqa: BLE001 - as above
            problem = f"{type(error).__name__}: {error}"
        # Who has written the entity meanwhile has settled the forward before.
        place = RowAddress.of_row(rekey.rekeying.old.table_name(), row)
        again = await read_row(rekey.connection, place)
        if again is None or again["odata.etag"] != row["odata.etag"]:
            return None
        return f"{row_keys(row)}: {mark.other} {problem}"

    def _convert(self, row: Row) -> Any:
        """Return what the entity that a forward keeps has become."""
        rekeying = self.rekey.rekeying
        return rekeying.to_new(self.rekey.old_kinds.load(row_of_marker(rekeying.old, row)))

    def _made(self, row: Row, mark: MoveMark | None) -> Any:
        """Return the entity of a row that is as the mover has made it; None for any other row."""
        if mark is None:
            return None
        if mark.state is MoveState.TENTATIVE:
            return self.rekey.new_kinds.load(row_of_marker(self.rekey.rekeying.new, row))
        as_made = mark.state is MoveState.CONFIRMED and newest_token(row) == mark.move
        return self.rekey.new_kinds.load(row) if as_made else None


def _mark_of_forward(row: Row) -> MoveMark | None:
    """Return the mark of a forward that names a move; None for other rows, and those that were found to be damaged."""
    try:
        mark = mark_of(row)
    except DecodeError:
        return None
    return mark if mark is not None and mark.state is MoveState.FORWARD else None


def _share(mark: MoveMark) -> int:
    return share_of(mark.other.partition_key, mark.other.row_key)
