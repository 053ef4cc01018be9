"""
What a worker does for a doorbell: it finds out what became of the changes, and carries out those that have committed.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from ..connection.connection import Connection
from ..connection.logger import make_logger
from ..connection.rows import MOST_LOOKS, lost_look
from ..connection.tasks import Batcher, map_together
from ..errors import NotSupported, PreconditionFailed
from ..protocol.limits import MAX_TRANSACTION_OPERATIONS
from .bell import ring
from .decision import Decision, delete_decisions, note_failure, settle_decision
from .doorbell import Begun, Doorbell, doorbell_of
from .reservations import abandon
from .worker import LEFT_TO_OTHERS, Handler, Outcome, Patience

_LOG = make_logger("tableorm.worker")

_SECONDS_UNTIL_APART = 1  # until a change is tried again that failed, or was left, beside others

DOORBELL = "doorbell"
"""The type of doorbells."""

CarryOut = Callable[[str, Decision], Awaitable[Decision | None]]
"""
Makes right what a committed change of a table has left to do; it may be called twice, and for two changes at the same
time. It returns what the decision row says then, if it has written it.
"""


def handle_doorbells(
    db: Connection,
    tables: Mapping[str, Collection[str]],
    carry_out: CarryOut,
    patience: Mapping[str, Patience] | None = None,
) -> Handler:
    """
    Return what a worker does for doorbells.

    Args:
        db: Where the decision rows are.
        tables: By kind, with its version, as stored, the tables of the entities whose changes it works on. Doorbells of
            other kinds, and changes of other tables, are left to others.
        carry_out: What it does for each change that has committed.
        patience: By kind, how often those are tried which are not tried as any other. Of several kinds in one message
            the one with most tries decides.
    """

    async def delete_together(where: tuple[str, str], decisions: Sequence[Decision]) -> Sequence[Exception | None]:
        return await delete_decisions(db, where[0], decisions)

    deletions = Batcher(delete_together, MAX_TRANSACTION_OPERATIONS)

    async def work(body: bytes) -> Outcome:
        doorbell = doorbell_of(body)
        changes, kinds = doorbell.changes, doorbell.kinds
        unknown = {*kinds} - tables.keys()
        if unknown:
            raise NotSupported(f"this worker does not know the kinds {sorted(unknown)}")

        async def try_to_settle(change: Begun) -> Outcome | Exception:
            try:
                return await settle(change, kinds)
            except Exception as error:  # noqa: BLE001 - whatever carries it out
                return error

        results = await map_together(try_to_settle, changes)
        failed = {change: each for change, each in zip(changes, results, strict=True) if isinstance(each, Exception)}
        left = tuple(change for change, error in failed.items() if isinstance(error, LEFT_TO_OTHERS))
        if failed and len(changes) in (1, len(left)):
            raise failed[changes[0]]
        # What is left goes on by itself: others may be able to carry it out. What has failed has tries of its own.
        for some in [left, *((change,) for change in failed if change not in left)]:
            if some:
                _LOG.info("%s get a message of their own: %s", [each.token for each in some], failed[some[0]])
                await ring(db, Doorbell(changes=some, kinds=kinds), delay_seconds=_SECONDS_UNTIL_APART)
        return Outcome.DONE if failed or Outcome.DONE in results else Outcome.VOID

    async def settle(change: Begun, kinds: Sequence[str]) -> Outcome:
        if not any(change.table in tables[kind] for kind in kinds):
            # A void decision row would be in the way of programs whose rows are there.
            raise NotSupported(f"this worker knows no table {change.table} with entities of kind {', '.join(kinds)}")
        for _ in range(MOST_LOOKS):
            decision = await settle_decision(db, change.table, change.partition_key, change.token)
            if not decision.committed:
                await abandon(db, change)
                return Outcome.VOID
            written = await carry_out(change.table, decision)
            try:
                await deletions.call((change.table, change.partition_key), written or decision)
            except PreconditionFailed:
                continue  # another worker has written it meanwhile: what it says now is next
            return Outcome.DONE
        raise lost_look(f"the decision row of {change.token} in table {change.table}")

    async def give_up(body: bytes, error: str, tries: int) -> None:
        for change in doorbell_of(body).changes:
            await note_failure(db, change, error, tries)

    def patience_for(body: bytes) -> Patience | None:
        found = [patience[kind] for kind in doorbell_of(body).kinds if kind in patience] if patience else []
        return max(found, key=lambda each: each.tries, default=None)

    return Handler(work, give_up, patience_for)
