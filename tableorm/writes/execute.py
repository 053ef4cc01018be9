"""
Stage 10, execute: send a plan, put new ETags into the entities, and report an error where it came from.
"""

from ..bag import PropertyBag
from ..entity import Entity
from ..errors import TransactionFailed
from ..protocol.codes import Fault
from ..protocol.edm import timestamp_of_etag
from ..stores import TableStore
from ..translate import translate
from .plan import PlannedWrite, WritePlan, in_transaction

__all__ = ["execute"]


async def execute(store: TableStore, plan: WritePlan, *, transaction: bool) -> None:
    """
    Send a plan.

    Args:
        store: Where to.
        plan: What.
        transaction: Whether the user asked for a transaction, and gets its errors.

    Raises:
        TransactionFailed: An operation of a transaction failed; its cause is that operation's error.
        TableOrmError: What a single write raises.
    """
    writes = plan.writes
    try:
        if len(writes) == 1 and not transaction:
            etags = [await store.write(plan.table, writes[0].operation)]
        else:
            etags = await store.transact(plan.table, [write.operation for write in writes])
    except Fault as fault:
        at = fault.index if fault.index is not None and fault.index < len(writes) else None
        write = writes[at or 0]
        change = write.change
        error = translate(fault, str(change), plan.table, change.subject, (change.partition_key, change.row_key))
        if not transaction:
            raise error from fault
        if at is None:
            raise TransactionFailed(
                f"transaction of {len(writes)} operations in {plan.table}, partition {plan.partition_key!r}: "
                f"{fault.message}",
                fault.code,
            ) from error
        raise in_transaction(change, write.index, error, "; nothing was applied") from error
    for write, etag in zip(writes, etags, strict=True):
        _applied(write, etag)


def _applied(write: PlannedWrite, etag: str | None) -> None:
    subject = write.change.subject
    if isinstance(subject, Entity):
        own = subject.__dict__
        own.pop("_upgraded", None)
        if write.after is None or etag is None:
            _ = subject.extra  # what the model does not know stays with the entity, should it be inserted again
            own.pop("_row", None)
            return
        row = write.after
        row["odata.etag"] = etag
        row["Timestamp"] = timestamp_of_etag(etag)
        own["_row"] = row
    elif isinstance(subject, PropertyBag):
        for name, value in (("odata.etag", etag), ("Timestamp", etag and timestamp_of_etag(etag))):
            if value is None:
                subject.row.pop(name, None)
            else:
                subject.row[name] = value
