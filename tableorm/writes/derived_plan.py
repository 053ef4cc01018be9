"""
The plan of writes with everything that is derived from them, once the rows are known that it depends on.
"""

from collections.abc import Mapping, Sequence

from ..errors import TableOrmError
from ..models.write_tokens import newest_token
from ..outbox.decision import Decision
from ..stores import Operation, Row, Verb
from .maintainer import Fill
from .plan import DecisionEffect, Effect, PlannedWrite, WritePlan
from .stages.derive import Derived, refuse_before_sending
from .stages.execute import plan_writes

__all__ = ["derived_plan"]


def derived_plan(derived: Derived, found: Mapping[str, Row | None]) -> WritePlan:
    """
    Return the plan of writes and their effects.

    Args:
        derived: What `derive` made.
        found: The rows that had to be read.

    Raises:
        ReferenceNotFound: An entity that is counted in, or referred to, does not exist.
        LimitExceeded: A limit of the service would be passed.
        TransactionFailed: One of these errors, in a transaction.
    """
    writes = list(derived.writes)
    for fill in derived.fills:
        number = next(n for n, write in enumerate(writes) if write.operation.row["RowKey"] == fill.row_key)
        writes[number] = _fill(derived, writes, number, fill, found)
    for effect in derived.effects.values():
        writes += _plan_effect(derived, effect, found.get(effect.address))
    decision = None
    if derived.deferred:
        works = tuple(each.work for each in derived.deferred)
        decision = Decision(partition_key=writes[0].change.partition_key, token=derived.claim, works=works)
        writes.append(_decision_write(derived, decision))
    return plan_writes(writes, transaction=derived.transaction, decision=decision)


def _decision_write(derived: Derived, decision: Decision) -> PlannedWrite:
    """Return the insert of a decision row."""
    origin = derived.deferred[0].origin
    try:
        row = decision.to_row()
    except TableOrmError as error:
        refuse_before_sending(origin, error, transaction=derived.transaction)
    return PlannedWrite(
        operation=Operation(Verb.INSERT, row),
        change=origin.change,
        index=origin.index,
        after=row,
        weight=None,
        token=decision.token,
        first=origin.first,
        effect=DecisionEffect(row["RowKey"], origin),
    )


def _plan_effect(derived: Derived, effect: Effect, stored: Row | None) -> list[PlannedWrite]:
    try:
        operation = effect.operation(stored, derived.token)
        if operation is None:
            return []
        operations = [operation, *effect.further_operations(stored, derived.token)]
    except TableOrmError as error:
        refuse_before_sending(effect.origin, error, transaction=derived.transaction)
    base = newest_token(stored) or None
    return [_effect_write(derived, effect, each, base if each is operation else None) for each in operations]


def _effect_write(derived: Derived, effect: Effect, operation: Operation, base: str | None) -> PlannedWrite:
    origin, row = effect.origin, None if operation.verb is Verb.DELETE else operation.row
    weight: int | None = 0
    if row is not None:
        weight = origin.weight
        weight = None if weight is None or effect.reads else weight + len(effect.address)
    return PlannedWrite(
        operation=operation,
        change=origin.change,
        index=origin.index,
        after=row,
        weight=weight,
        partial=operation.verb is Verb.MERGE,
        token=None if row is None else derived.token,
        base=base,
        first=origin.first,
        effect=effect,
    )


def _fill(
    derived: Derived, writes: Sequence[PlannedWrite], number: int, fill: Fill, found: Mapping[str, Row | None]
) -> PlannedWrite:
    """Return a write with the part that is made from another row, as that is stored or will be by these writes."""
    write = writes[number]
    source: Row | None = None
    if fill.source is not None:
        same = next((each for each in writes if each.operation.row["RowKey"] == fill.source), None)
        source = found.get(fill.source) if same is None else same.after
    try:
        return fill.apply_to(write, source)
    except TableOrmError as error:
        refuse_before_sending(write, error, transaction=derived.transaction)
