"""
What a plan does when nothing goes wrong, with which all other runs are compared.
"""

import attrs
import pytest

from tableorm.stores import CLOCK, Operation, TableStore
from tableorm.testing import MemoryStore
from tests.faults import FaultyStore
from tests.outbox.network import HOUR, Death, connected, failing_at
from tests.outbox.plans import Plan, prepare
from tests.outbox.staff import MODELS, Content, content_of, find_misread, find_problems, is_in_a_move, recover


@attrs.frozen
class CleanRun:
    """
    A run of a plan.

    Args:
        plan: The plan.
        contents: What it passes: what was stored at first, after each commit, and after a worker.
        writes: How many writes it sends.
    """

    plan: Plan
    contents: list[Content]
    writes: int

    def find_loss(
        self, content: Content, *, begun: bool = False, done: bool = False, nothing: bool = False
    ) -> list[str]:
        """
        Return what is wrong with the people that are stored after recovery.

        Args:
            content: What is stored.
            nothing: Whether the plan has not begun.
            begun: Whether its first commit has happened, or has to.
            done: Whether it has succeeded.
        """
        if not self.plan.passes(self.contents, content):
            return [f"something is lost or doubled: {content}"]
        if done and content != self.contents[-1]:
            return [f"the plan has succeeded, and {content} is stored"]
        if begun and content == self.contents[0]:
            return ["what was committed is lost"]
        return [f"what was not begun was done: {content}"] if nothing and content != self.contents[0] else []


class _Watching(FaultyStore):
    """A network that notes the content after each write."""

    def __init__(self, store: TableStore, contents: list[Content]) -> None:
        super().__init__(store)
        self._contents = contents

    async def _arrive(self, table: str, operations: tuple[Operation, ...], *, transaction: bool) -> list[str | None]:
        etags = await super()._arrive(table, operations, transaction=transaction)
        # A tentative row is nobody's until the move is committed: before and after it all is plain.
        if not await is_in_a_move(self.store) and (content := await content_of(self.store)) != self._contents[-1]:
            self._contents.append(content)
        return etags


async def prepared(plan: Plan) -> MemoryStore:
    """Return a store in which a plan can begin."""
    store = MemoryStore()
    async with connected(store) as db:
        await prepare(db, plan)
    return store


_RUNS: dict[str, CleanRun] = {}
_WORKER_WRITES: dict[str, int] = {}


async def run_plan(plan: Plan) -> CleanRun:
    """Run a plan in memory; each plan once, as it does the same each time."""
    if plan.name not in _RUNS:
        _RUNS[plan.name] = await _run_anew(plan)
    return _RUNS[plan.name]


async def _run_anew(plan: Plan) -> CleanRun:
    store = await prepared(plan)
    contents = [await content_of(store)]
    network = _Watching(store, contents)
    async with connected(network) as db:
        await plan.act(db)
    assert await recovered(store) == []
    if (content := await content_of(store)) != contents[-1]:
        contents.append(content)  # by a workflow
    assert contents[-1] not in contents[:-1]
    return CleanRun(plan, contents, len(network.sent))


async def worker_writes(plan: Plan) -> int:
    """Return how many writes a worker sends, after the writer has died at its first commit."""
    if plan.name not in _WORKER_WRITES:
        _WORKER_WRITES[plan.name] = await _count_worker_writes(plan)
    return _WORKER_WRITES[plan.name]


async def _count_worker_writes(plan: Plan) -> int:
    store = await prepared(plan)
    await die_after_commit(store, plan)
    network = FaultyStore(store)
    async with connected(network) as db:
        CLOCK.advance(HOUR)
        await recover(db)
    return len(network.sent)


async def die_after_commit(store: TableStore, plan: Plan) -> None:
    """Let a writer die at its first commit."""
    async with connected(failing_at(store, plan.commit - 1, Death.AFTER)) as db:
        with pytest.raises(Exception):  # noqa: B017, PT011 - what it would have said, nobody hears
            await plan.act(db)


async def recovered(store: TableStore, *, extra: bool = False) -> list[str]:
    """
    Let workers do what is left, also of messages that were hidden; return what is wrong then.

    Args:
        store: The store.
        extra: Whether a request that came late may have left rows and members of lists that are of nobody: no read
            returns them, and an audit takes them out.
    """
    async with connected(store) as db:
        for _ in range(3):
            CLOCK.advance(HOUR)
            await recover(db)
        problems = await find_problems(db)
        if extra and any(each.startswith("extra") for each in problems):
            problems = await find_misread(db)
            CLOCK.advance(2 * HOUR)  # what is younger may be under way
            await db.audit(*MODELS, repair=True)
            problems += await find_problems(db)
        return problems
