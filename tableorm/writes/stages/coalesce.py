"""
Part of stage 8: several changes of one row become the one operation that a transaction may have on it.

The result is what the changes would do one after the other to the row as it was before the transaction; so are their
conditions. What no single operation can do is refused.
"""

from typing import NoReturn

from msgspec import structs

from ...errors import EntityExists, EntityNotFound, NotSupported, PreconditionFailed, TableOrmError, TransactionFailed
from ...models.reserved import MANIFEST, MOVE
from ...protocol.codes import Code
from ...stores import Operation, Row, Verb
from ..plan import Change, Mode, PlannedWrite, in_transaction
from ..rows import overlaid

__all__ = ["coalesce", "gone"]

_WHOLE = frozenset({Verb.INSERT, Verb.REPLACE, Verb.INSERT_OR_REPLACE})
_UPSERTS = frozenset({Verb.INSERT_OR_MERGE, Verb.INSERT_OR_REPLACE})


def coalesce(one: PlannedWrite, two: PlannedWrite) -> PlannedWrite:
    """
    Two writes of one row as one.

    Args:
        one: What the transaction holds.
        two: What comes after it.

    Raises:
        TransactionFailed: No single operation does both, or the second must fail.
    """
    first, second = one.operation, two.operation
    if first.verb is Verb.DELETE:
        if second.verb is not Verb.INSERT and second.verb not in _UPSERTS:
            raise gone(two.change, two.index)
        return _coalesced(one, two, Verb.REPLACE, second.row, first.if_match, second.row)
    if second.verb is Verb.INSERT:
        _refuse(two, EntityExists, "the transaction has written the row", Code.ENTITY_EXISTS)
    condition = _condition(one, two)
    if second.verb is Verb.DELETE:
        if first.verb is Verb.INSERT or condition is None:
            _refuse(two, NotSupported, "the transaction puts the row there; leave out both", None)
        return _coalesced(one, two, Verb.DELETE, second.row, condition, None)
    if first.verb in _WHOLE or second.verb in _WHOLE:
        row = second.row if second.verb in _WHOLE else overlaid(first.row, second.row)
        if two.change.schema is None:  # of a bag that is the copy of a row
            row = {**{name: first.row[name] for name in (MANIFEST, MOVE) if name in first.row}, **row}
        insert = first.verb is Verb.INSERT
        verb = Verb.INSERT if insert else Verb.REPLACE if condition is not None else Verb.INSERT_OR_REPLACE
        return _coalesced(one, two, verb, row, condition, row)
    row = overlaid(first.row, second.row)
    verb = Verb.MERGE if condition is not None else Verb.INSERT_OR_MERGE
    after = overlaid(one.after or {}, second.row)
    everything = two.change.mode in (Mode.MERGE, Mode.UPSERT_MERGE) and two.change.only is None
    stale = two.stale or (one.stale and not everything)
    return _coalesced(one, two, verb, row, condition, after, partial=one.partial, stale=stale)


def gone(change: Change, index: int) -> TransactionFailed:
    """
    The error of a change of a row that the transaction deletes.

    Args:
        change: The change.
        index: Its position among the user's.
    """
    error = EntityNotFound(f"{change}: the transaction has deleted the row", Code.RESOURCE_NOT_FOUND)
    failed = in_transaction(change, index, error, "; nothing was sent")
    failed.__cause__ = error
    return failed


def _coalesced(
    one: PlannedWrite,
    two: PlannedWrite,
    verb: Verb,
    row: Row,
    if_match: str | None,
    after: Row | None,
    *,
    partial: bool = False,
    stale: bool = False,
) -> PlannedWrite:
    change = two.change
    if change.repeat and not one.change.repeat:
        change = structs.replace(change, repeat=False)  # holds for whatever becomes of it
    return PlannedWrite(
        operation=Operation(verb, row, if_match),
        change=change,
        index=one.index,
        after=after,
        weight=None,
        partial=partial,
        token=two.token or one.token,
        base=one.base,
        first=one.origin,
        stale=stale,
        starts=(*one.starts, *two.starts),
    )


def _condition(one: PlannedWrite, two: PlannedWrite) -> str | None:
    """Both conditions on the row as it was before the transaction."""
    first, second = one.operation.if_match, two.operation.if_match
    if second is None or second == "*":
        return first
    if one.operation.verb is Verb.INSERT or first not in (None, "*", second):
        _refuse(two, PreconditionFailed, "the transaction writes the row under another ETag", None)
    return second


def _refuse(write: PlannedWrite, kind: type[TableOrmError], problem: str, code: Code | None) -> NoReturn:
    error = kind(f"{write.change}: {problem}", code)
    raise in_transaction(write.change, write.index, error, "; nothing was sent") from error
