"""
Writing rows as they are into a table that may have some of them already.

New rows are inserted, so that nothing is overwritten. Where an insert is rejected, or its reply is lost, the rows of
the table are read: what is there with the same content is done, and the caller says what becomes of the rest. So the
same rows can be written again after a crash, and a row of the table that somebody changes meanwhile is never lost.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Literal, get_args

import attrs

from ..connection.connection import Connection
from ..connection.nearby import read_rows
from ..connection.races import ATTEMPTS, pause_of
from ..connection.tasks import map_together
from ..connection.translate import translate
from ..errors import AccessDenied, ModelError, TableNotFound, Unavailable, shown
from ..jobs.counts import JobCounts
from ..protocol.codes import LOST_RACE, Fault
from ..protocol.limits import MAX_TRANSACTION_BYTES, MAX_TRANSACTION_OPERATIONS, check_row
from ..stores import Operation, Row, Verb, row_keys
from ..writes.stages.execute import most_row_bytes
from .content import differing_properties

_MOST_BUSY = 5  # how often a store may say that it is busy, whose backend has repeated the request already

IfExists = Literal["fail", "skip", "replace"]
"""What becomes of a row that is in the target with other content: a failure; or either row is kept."""


def check_if_exists(verb: str, if_exists: object) -> None:
    """Refuse what says nothing about rows that exist. Raises ModelError."""
    if if_exists not in get_args(IfExists):
        raise ModelError(f"{verb}(if_exists={shown(if_exists)}) is rejected: give 'fail', 'skip' or 'replace'")


@attrs.define(eq=False)
class RowWriter:
    """
    Writes rows to one table, in transactions of one partition each.

    Args:
        db: The database.
        table: Name of the table.
        if_exists: What becomes of a row that is there with other content.
        what: What writes, for messages.
        turns: Limits how many transactions are sent at the same time.
    """

    db: Connection
    table: str
    if_exists: IfExists
    what: str
    turns: asyncio.Semaphore
    # Whether rows were found that are there already: then the next ones are read before they are written.
    _looks: bool = False

    async def write(self, rows: Iterable[Row], counts: JobCounts) -> None:
        """
        Write rows, and count what became of each: `written`, `replaced`, `equal`, `skipped` or `failed`.

        Raises:
            TableOrmError: The store refused what concerns every row, or cannot be reached.
        """
        good: list[Row] = []
        for row in rows:
            try:
                check_row(row, read=row)  # a value that is none of its type is for the store to refuse
            except Fault as fault:
                counts.fail(row, fault.message)
            else:
                good.append(row)
        todo = await self._decide(good, counts) if self._looks else [_insert(row) for row in good]
        await map_together(partial(self._send, counts), list(_divide(todo)))

    async def _send(self, counts: JobCounts, batch: list[Operation]) -> None:
        todo, races = [batch], 0
        while todo:
            some = todo.pop()
            store, _ = self.db.sending("transaction", "")
            try:
                async with self.turns:
                    await store.transact(self.table, some)
            except Fault as fault:
                self.db.count_fault(fault)
                error = translate(fault, self.what, self.table)
                if fault.transient or fault.code in LOST_RACE:
                    races += 1
                    if races >= (ATTEMPTS if fault.doubt or fault.code in LOST_RACE else _MOST_BUSY):
                        raise error from None
                    if races > 1:
                        await asyncio.sleep(pause_of(self.db, races))
                    rest = await self._decide([each.row for each in some], counts, sent=fault.doubt)
                    todo += [rest] if rest else []
                elif isinstance(error, AccessDenied | TableNotFound | Unavailable):
                    raise error from None
                elif len(some) == 1:
                    counts.fail(some[0].row, fault.message)
                else:  # the others are sent without the one that is rejected; or each alone, if none is named
                    at = range(len(some)) if fault.index is None else [fault.index]
                    todo += [[some[number]] for number in at]
                    rest = [each for number, each in enumerate(some) if number not in at]
                    todo += [rest] if rest else []
            else:
                counts.written += len(some)
                counts.count("replaced", sum(each.verb is Verb.REPLACE for each in some))

    async def _decide(self, rows: Sequence[Row], counts: JobCounts, *, sent: bool = False) -> list[Operation]:
        """
        Return how some rows are written, after a look at what is there.

        Args:
            rows: The rows.
            counts: Counts those that are not written.
            sent: Whether these rows may have been written just now, by a request whose reply was lost.
        """
        there = await read_rows(self.db, self.table, [*map(row_keys, rows)])
        self._looks = any(row is not None for row in there.values())
        todo: list[Operation] = []
        for row in rows:
            await self.db.yield_to_loop(1)
            other = there[row_keys(row)]
            if other is None:
                todo.append(_insert(row))
                continue
            differing = differing_properties(row, other)
            if not differing and sent:
                counts.written += 1
            elif not differing:
                counts.count("equal")
            elif self.if_exists == "replace":
                todo.append(Operation(Verb.REPLACE, row, other["odata.etag"], canonical=True))
            elif self.if_exists == "skip":
                counts.count("skipped")
            else:
                counts.fail(row, f"is in table {self.table} already, with other content: {', '.join(differing)}")
        return todo


def _insert(row: Row) -> Operation:
    return Operation(Verb.INSERT, row, canonical=True)


def _divide(operations: Iterable[Operation]) -> Iterator[list[Operation]]:
    """Yield operations by transactions: of one partition, each of another row, within the limits of the service."""
    partitions: dict[str, list[Operation]] = {}
    for each in operations:
        partitions.setdefault(each.row["PartitionKey"], []).append(each)
    for some in partitions.values():
        batch: dict[str, Operation] = {}
        size = 0
        for each in some:
            more = most_row_bytes(each.row)
            full = len(batch) == MAX_TRANSACTION_OPERATIONS or size + more > MAX_TRANSACTION_BYTES
            if batch and (full or each.row["RowKey"] in batch):
                yield [*batch.values()]
                batch, size = {}, 0
            batch[each.row["RowKey"]] = each
            size += more
        yield [*batch.values()]
