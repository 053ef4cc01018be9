"""
A first look at the candidates of an audit: many of them together, so that few requests tell which are right.

It compares a row as its page had it with rows that are read after it. If these agree, the candidate is right. If not,
somebody may have written meanwhile, and nothing is said of it: it is verified by itself, with reads of its own.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence

import attrs

from ..connection.nearby import NearbyRows
from ..connection.tasks import stop_tasks, work_off
from ..stores import Row, RowAddress
from .context import OUT_OF_REACH, AuditContext

Verification = Callable[[], Awaitable[None]]
"""Verifies one candidate, and counts what it finds."""

_MOST_KEPT = 4000
"""Rows that are read for the candidates of a page together; what more they need is read for each by itself."""

_SLICE = 10
"""Candidates that go on at the same time, so that other tasks get their turn."""

_Asked = tuple[str, RowAddress]  # with what is read: rows of one sort lie close together, or do not


@attrs.frozen(eq=False)
class Candidate:
    """
    What an audit has to look at.

    Args:
        verify: Verifies it.
        is_right: Tells by a first look whether it is right; None if only its verification does.
    """

    verify: Verification
    is_right: "Callable[[FirstLook], Awaitable[bool]] | None" = None


class FirstLook:
    """
    Reads what the candidates of a range need for a first look: rows that several of them ask for at the same time are
    read together, each once.

    Args:
        context: The rows of the table.
        parallel: How many requests are sent at the same time.
    """

    def __init__(self, context: AuditContext, parallel: int) -> None:
        self._context, self._parallel = context, parallel
        self._nearby: dict[tuple[str, str], NearbyRows] = {}
        self._found: dict[_Asked, Row | None] = {}
        self._due: list[tuple[_Asked, asyncio.Future[Row | None]]] = []
        self._task: asyncio.Task[None] | None = None
        self._started = asyncio.Event()
        self._turn = asyncio.Lock()

    async def find_left(self, candidates: Sequence[Candidate]) -> list[Verification]:
        """
        Look at some candidates, and return how to verify those that are not seen to be right.

        Raises:
            TableOrmError: One of `OUT_OF_REACH`.
        """
        self._started = asyncio.Event()
        tasks: list[asyncio.Task[bool]] = []
        try:
            for start in range(0, len(candidates), _SLICE):
                tasks += [asyncio.create_task(self._is_right(each)) for each in candidates[start : start + _SLICE]]
                await asyncio.sleep(0)
            self._started.set()
            if tasks:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            right = [task.result() for task in tasks if task.done()]
        finally:
            await stop_tasks([*tasks, self._task])
            self._found.clear()
            self._due.clear()
            self._task = None
        return [each.verify for each, is_right in zip(candidates, right, strict=True) if not is_right]

    async def _is_right(self, candidate: Candidate) -> bool:
        try:
            return candidate.is_right is not None and await candidate.is_right(self)
        except OUT_OF_REACH:
            raise
        except Exception:  # noqa: BLE001 - its verification says what is wrong
            return False

    async def read(self, address: RowAddress, sort: str) -> Row | None:
        """
        Read a row; None if there is none, or no row can be there.

        Args:
            address: Where it is.
            sort: What it is a row of: a model, or a declaration of it.
        """
        (row,) = await self.read_all([address], sort)
        return row

    async def read_all(self, addresses: Sequence[RowAddress], sort: str) -> list[Row | None]:
        """Read several rows, as `read` does."""
        if len(self._found) + len(self._due) + len(addresses) > _MOST_KEPT:
            async with self._turn:  # one candidate after the other, so that few rows are held
                found = await self._read_sort(sort, addresses)
            return [found[address] for address in addresses]
        loop = asyncio.get_running_loop()
        waiting = [loop.create_future() for _ in addresses]
        self._due += zip([(sort, address) for address in addresses], waiting, strict=True)
        if self._task is None:
            self._task = asyncio.create_task(self._read_due())
        return [await future for future in waiting]

    async def _read_due(self) -> None:
        await self._started.wait()  # all have asked then
        while self._due:
            due, self._due = self._due, []
            by_sort: defaultdict[str, set[RowAddress]] = defaultdict(set)
            for (sort, address), _ in due:
                if (sort, address) not in self._found:
                    by_sort[sort].add(address)
            error: Exception | None = None
            try:
                for sort, addresses in by_sort.items():
                    found = await self._read_sort(sort, list(addresses))
                    self._found |= {(sort, address): row for address, row in found.items()}
            except Exception as caught:  # noqa: BLE001 - raised in each that has asked
                error = caught
            # Each that waits goes on by itself, and only some in one turn of the event loop: what they do takes time.
            for number, (wanted, future) in enumerate(due):
                if number % _SLICE == 0:
                    await asyncio.sleep(0)
                if error is None:
                    future.set_result(self._found[wanted])
                else:
                    future.set_exception(error)
            await asyncio.sleep(0)  # those that ask for more do so now
        self._task = None

    async def _read_sort(self, sort: str, addresses: Sequence[RowAddress]) -> dict[RowAddress, Row | None]:
        """Read rows of one sort: by ranges of keys where they lie close together, the others one by one."""
        context = self._context
        found: dict[RowAddress, Row | None] = dict.fromkeys(addresses)
        left = addresses
        for table in {address.table for address in left}:
            nearby = self._nearby.get((table, sort))
            if nearby is None:
                nearby = NearbyRows(context.db, table, concurrency=self._parallel, across=True)
                self._nearby[table, sort] = nearby
            sent = nearby.requests
            near = await nearby.read([(each.partition_key, each.row_key) for each in left if each.table == table])
            context.counts.requests += nearby.requests - sent
            if context.pace is not None:
                await context.pace.wait(len(near))
            found |= {RowAddress(table, *keys): row for keys, row in near.items()}
            left = [each for each in left if each.table != table or (each.partition_key, each.row_key) not in near]

        async def read(address: RowAddress) -> None:
            found[address] = await context.read(address)

        await work_off(read, left, min(self._parallel, len(left)))
        return found
