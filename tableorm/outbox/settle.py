"""
What a worker does for a doorbell: it finds out what became of the changes, and carries out those that have committed.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from logging import getLogger

from ..connection.connection import Connection
from ..errors import NotSupported
from .bell import ring
from .decision import Decision, delete_decision, note_failure, settle_decision
from .doorbell import Begun, Doorbell, doorbell_of
from .worker import Handler, Outcome

__all__ = ["DOORBELL", "CarryOut", "handle_doorbells"]

_LOG = getLogger("tableorm.worker")

_SECONDS_UNTIL_ALONE = 1  # until a change is tried again that failed beside others

DOORBELL = "doorbell"
"""The type of doorbells."""

CarryOut = Callable[[str, Decision], Awaitable[Decision | None]]
"""
Makes right what a committed change of a table has left to do; it may be called twice, and for two changes at the same
time. It returns what the decision row says then, if it has written it.
"""


def handle_doorbells(db: Connection, tables: Mapping[str, Collection[str]], carry_out: CarryOut) -> Handler:
    """
    Return what a worker does for doorbells.

    Args:
        db: Where the decision rows are.
        tables: By kind, with its version, as stored, the tables of the entities whose changes it works on. Doorbells of
            other kinds, and changes of other tables, are left to others.
        carry_out: What it does for each change that has committed.
    """

    async def work(body: bytes) -> Outcome:
        doorbell = doorbell_of(body)
        unknown = {*doorbell.kinds} - tables.keys()
        if unknown:
            raise NotSupported(f"this worker does not know the kinds {sorted(unknown)}")
        outcomes = [Outcome.VOID]
        for change in doorbell.changes:
            try:
                outcomes.append(await settle(change, doorbell.kinds))
            except Exception as error:
                if len(doorbell.changes) == 1:
                    raise
                # It goes on by itself: with tries of its own, and others may be able to carry it out.
                _LOG.info("%s gets a message of its own: %s", change.token, error)
                alone = Doorbell(changes=(change,), kinds=doorbell.kinds)
                await ring(db, alone, delay_seconds=_SECONDS_UNTIL_ALONE)
                outcomes.append(Outcome.DONE)
        return Outcome.DONE if Outcome.DONE in outcomes else Outcome.VOID

    async def settle(change: Begun, kinds: Collection[str]) -> Outcome:
        if not any(change.table in tables[kind] for kind in kinds):
            # A void decision row would be in the way of programs whose rows are there.
            raise NotSupported(f"this worker knows no table {change.table} with entities of kind {', '.join(kinds)}")
        decision = await settle_decision(db, change.table, change.partition_key, change.token)
        if not decision.committed:
            return Outcome.VOID
        written = await carry_out(change.table, decision)
        await delete_decision(db, change.table, written or decision)
        return Outcome.DONE

    async def give_up(body: bytes, error: str, tries: int) -> None:
        for change in doorbell_of(body).changes:
            await note_failure(db, change, error, tries)

    return Handler(work, give_up)
