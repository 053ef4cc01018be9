"""
Part of stage 8: several changes of one row become the one that a transaction may have of it.

It does what they would do one after the other to the row as it was before the transaction, as `then` of
`writes/patch.py` has it; so do their conditions. What no single operation can do is rejected.
"""

from typing import NoReturn

from msgspec import structs

from ...errors import EntityExists, EntityNotFound, NotSupported, PreconditionFailed, TableOrmError
from ...models.reserved import MANIFEST, MOVE
from ...protocol.codes import Code
from ..patch import Expects, then
from ..plan import Change, Mode, PlannedWrite, in_transaction
from .encode import encode_patch, is_stale


def compose(one: PlannedWrite, change: Change, index: int, token: str | None) -> PlannedWrite:
    """
    Return the write of two changes of one row.

    Args:
        one: What the transaction holds.
        change: What comes after it.
        index: Position of the latter among the user's changes.
        token: The write token of the transaction.

    Raises:
        TransactionFailed: No single operation does both, or the second must fail.
    """
    first, second = one.change.patch, change.patch
    if first.set is None and second.expects is Expects.PRESENT:
        refuse_gone(change, index)
    if first.set is not None and second.expects is Expects.ABSENT:
        _refuse(change, index, EntityExists, "the transaction has written the row", Code.ENTITY_EXISTS)
    condition = one.operation.if_match if first.set is None else _condition(one, change, index)
    if second.set is None and (first.expects is Expects.ABSENT or condition is None):
        _refuse(change, index, NotSupported, "the transaction puts the row there; leave out both", None)
    if change.schema is None and first.set is not None and second.set is not None:  # of a bag that is the copy of a row
        kept = {name: first.set[name] for name in (MANIFEST, MOVE) if name in first.set}
        second = structs.replace(second, set=kept | second.set) if kept else second
    patch = then(first, second)
    if condition is not None and patch.expects is Expects.EITHER:
        patch = structs.replace(patch, expects=Expects.PRESENT)
    joined = structs.replace(
        change,
        patch=patch,
        if_match=condition,
        before=one.change.before,
        stored=one.change.stored,
        weight=None,
        repeat=change.repeat and one.change.repeat,  # holds for whatever becomes of it
    )
    write = encode_joined(joined, one.index, one.token or token)
    everything = change.mode in (Mode.MERGE, Mode.UPSERT_MERGE) and change.only is None
    return structs.replace(
        write,
        first=one.origin,
        stale=is_stale(change) or (one.stale and not everything and write.partial),
        starts=one.starts,
    )


def encode_joined(change: Change, index: int, token: str | None) -> PlannedWrite:
    """Return the operation of joined changes; that of a guard, if they leave the row as it is."""
    write = encode_patch(change, index, token)
    write = write or encode_patch(structs.replace(change, mode=Mode.GUARD), index, token)
    assert write is not None
    return write


def refuse_gone(change: Change, index: int) -> NoReturn:
    """
    Refuse a change of a row that the transaction deletes.

    Args:
        change: The change.
        index: Its position among the user's.

    Raises:
        TransactionFailed: Always.
    """
    _refuse(change, index, EntityNotFound, "the transaction has deleted the row", Code.RESOURCE_NOT_FOUND)


def _condition(one: PlannedWrite, change: Change, index: int) -> str | None:
    """Return both conditions on the row as it was before the transaction."""
    first, second = one.operation.if_match, change.if_match
    if second is None or second == "*":
        return first
    if one.change.patch.expects is Expects.ABSENT or first not in (None, "*", second):
        _refuse(change, index, PreconditionFailed, "the transaction writes the row under another ETag", None)
    return second


def _refuse(change: Change, index: int, kind: type[TableOrmError], problem: str, code: Code | None) -> NoReturn:
    error = kind(f"{change}: {problem}", code)
    raise in_transaction(change, index, error, "; nothing was sent") from error
