"""
Queries: an immutable description of what to read, and the stages of reading it.

    plan -> pages of rows -> kind -> upgrade -> decode -> residual conditions
"""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs

from .connection import TURN
from .errors import ModelError
from .expressions import Expression
from .kinds import Kinds
from .planner import QueryPlan, plan_query
from .protocol.codes import Fault
from .protocol.limits import MAX_PAGE
from .translate import translate

if TYPE_CHECKING:
    from .connection import Connection

__all__ = ["Select"]

E = TypeVar("E")

_FIRST_PART = 4
_PART_SECONDS = 0.002  # longer than this no part shall keep the event loop


@attrs.frozen(eq=False, repr=False)
class Select(Generic[E]):
    """
    A query. Immutable: each method returns another; nothing is sent before it is iterated or awaited.

    Made by `db.select(Model)`.
    """

    _db: "Connection"
    _kinds: Kinds
    _where: tuple[Expression, ...] = ()
    _limit: int | None = None
    _scan: bool = False

    def where(self, *conditions: Expression) -> "Select[E]":
        """
        Narrow the query: all conditions must hold, those given before included.

        Raises:
            ModelError: Something is no condition.
        """
        for condition in conditions:
            if not isinstance(condition, Expression):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ModelError(
                    f"{condition!r} is no condition; compare a field of the class, as in Employee.age >= 30"
                )
        return attrs.evolve(self, where=self._where + conditions)

    def limit(self, count: int) -> "Select[E]":
        """
        At most `count` entities, from 0, the first in key order.

        Raises:
            ModelError: A negative count.
        """
        if type(count) is not int or count < 0:
            raise ModelError(f"limit({count!r}) is refused: give a number of entities from 0")
        return attrs.evolve(self, limit=count)

    def allow_scan(self) -> "Select[E]":
        """Let the query visit every partition, where its conditions do not give one."""
        return attrs.evolve(self, scan=True)

    async def all(self) -> list[E]:
        """
        Every entity, in key order.

        Raises:
            ScanRefused: The query would visit every partition; add a condition, or `.allow_scan()`.
            TableNotFound: There is no such table.
            DecodeError: A row does not fit its model.
        """
        return [entity async for entity in self]

    def __aiter__(self) -> AsyncIterator[E]:
        return self._run(plan_query(self._kinds, self._where, allow_scan=self._scan))

    async def _run(self, plan: QueryPlan) -> AsyncIterator[E]:
        db, load, left = self._db, self._kinds.load_all, self._limit
        store = db.usable()
        if plan.access is None or left == 0:
            return
        stats, table = db.stats, self._kinds.table
        continuation: str | None = None
        size_of_part = _FIRST_PART
        while True:
            # Rows can be dropped here, so a small limit does not ask for as few rows when conditions are left over.
            size = MAX_PAGE if left is None or plan.residual else min(left, MAX_PAGE)
            stats.requests += 1
            try:
                page = await store.query(table, plan.query, size, continuation)
            except Fault as fault:
                raise translate(fault, f"query of {self._names()}", table) from fault
            stats.rows += len(page.rows)
            rows, start = page.rows, 0
            while start < len(rows):
                part = rows[start : start + size_of_part]
                start += len(part)
                await db.take_turn(len(part))
                begun = time.perf_counter()
                for test in plan.residual:
                    part = [row for row in part if test(row)]
                entities: list[Any] = load(part)
                # Rows differ: of some a thousand, of others a few keep the event loop for as long.
                quick = time.perf_counter() - begun < _PART_SECONDS
                size_of_part = min(size_of_part * 2, TURN) if quick else max(size_of_part // 2, 1)
                if not quick:
                    await asyncio.sleep(0)
                if left is not None:
                    entities = entities[:left]
                    left -= len(entities)
                for entity in entities:
                    yield entity
                if left == 0:
                    return
            continuation = page.continuation
            if continuation is None:
                return

    def _names(self) -> str:
        return ", ".join([s.name for s in self._kinds.schemas] + ["PropertyBag"] * self._kinds.bags)

    def __repr__(self) -> str:
        where = f".where({', '.join(map(str, self._where))})" if self._where else ""
        limit = "" if self._limit is None else f".limit({self._limit})"
        return f"<select({self._names()}){where}{limit}{'.allow_scan()' * self._scan}>"
