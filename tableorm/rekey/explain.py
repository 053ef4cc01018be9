"""
What a write sends whose model takes over the entities of an older one, in each phase: `db.explain_write`.

The phase is the one that the program knows. Until it has asked the store, entities may have their older keys.
"""

from collections.abc import Sequence

import attrs
from msgspec import structs

from ..connection.connection import Connection
from ..models.marker_rows import MoveState, mark_of
from ..stores import RowAddress
from ..writes.explain import (
    BATCH,
    TOKEN,
    WriteExplanation,
    WriteStep,
    explain,
    explain_after_reading,
    explain_writes,
    get_step,
    put_step,
)
from ..writes.move import without_mark
from ..writes.plan import Change, Mode
from ..writes.stages.change import plain_insert
from ..writes.stages.encode import encode, needs_row
from .older import fields_of, is_at_newer_key, refuse_blind, to_older
from .phases import RekeyPhase
from .reads import older_places
from .rekeying import Rekeying, old_place_of
from .steps import source_of


def explain_in_phase(db: Connection, rekeying: Rekeying, changes: Sequence[Change]) -> WriteExplanation:
    """
    The requests of one change, or of the two of a move within a partition.

    Of an entity that was not read, where it is depends on the phase: at its older key before entities are moved, and at
    its newer one afterwards.

    Args:
        db: The connection, which knows the phases.
        rekeying: The models.
        changes: The changes.

    Raises:
        NotSupported: Such a write is rejected in this phase.
        TableOrmError: What `explain` raises.
    """
    change, boundary = changes[0], db.boundary
    if len(changes) > 1 or boundary.narrows:
        return explain(boundary, changes)
    phase, newer, there = RekeyPhase.known_to(db, rekeying), is_at_newer_key(change), get_step(change.address)
    back = phase is RekeyPhase.BACK
    if phase.is_over or newer:
        return _after([there] * back, _explain_newer(db, change))
    mark = None if change.before is None or change.is_unseen else old_place_of(change.before.row)
    places = older_places(rekeying, change.address, fields_of(change))
    if mark is not None and mark.other in places:
        places = places[: places.index(mark.other) + 1]
    older = [*map(get_step, places)]
    if phase is RekeyPhase.MOVE:
        if change.mode is Mode.INSERT:
            source = source_of(rekeying, change.subject)
            taken = (*older, get_step(source), WriteStep("POST", f"/{source.table}"))
            return _after(taken, explain(boundary, changes))
        return _explain_newer(db, change) if mark is None else _explain_moving(db, rekeying, change, places)
    refuse_blind(rekeying, change, phase)
    if change.mode is Mode.INSERT:
        *_, entity = to_older(rekeying, change)
        insert = structs.replace(plain_insert(entity), verb=change.verb)
        return _after((there, *older, there) if back else (*older, there, *older), explain(boundary, (insert,)))
    reads = [there] * back + older
    if not places or not explain(boundary, changes).steps:
        return WriteExplanation(tuple(reads))
    written = structs.replace(change, schema=rekeying.old, if_match=None, address=places[-1])
    return _after(reads[:-1], explain_after_reading((written,)))


def _explain_newer(db: Connection, change: Change) -> WriteExplanation:
    """Explain a write at the newer key: the forward of an entity that the mover has confirmed is settled first."""
    found = explain(db.boundary, (change,))
    mark = None if change.before is None or change.is_unseen else mark_of(change.before.row)
    if mark is None or mark.state is not MoveState.CONFIRMED or not mark.stays or not found.steps:
        return found
    write = None if needs_row(change) else encode(change, 0, TOKEN)
    if write is not None:
        found = explain_writes(db.boundary, [without_mark(write)])
    return _after((get_step(mark.other), put_step(mark.other)), found)


def _explain_moving(
    db: Connection, rekeying: Rekeying, change: Change, places: Sequence[RowAddress]
) -> WriteExplanation:
    """Explain a write of an entity that was read at its older key, the last of some, and gets its newer one first."""
    if not explain(db.boundary, (change,)).steps:
        return WriteExplanation(())
    found = explain_after_reading((structs.replace(change, if_match=None),))
    target, source = change.address, places[-1]
    there, here, batch = get_step(target), get_step(source), WriteStep("POST", BATCH)
    insert = batch if rekeying.new.derived else WriteStep("POST", f"/{target.table}")
    forward = batch if rekeying.old.derived else put_step(source)
    confirm = batch if rekeying.new.derived else put_step(target)
    moved = (there, *map(get_step, places), insert, forward, there, here, confirm, here, put_step(source))
    return _after(moved, found)


def _after(steps: Sequence[WriteStep], found: WriteExplanation) -> WriteExplanation:
    """Return an explanation with what is sent before."""
    return attrs.evolve(found, before=(*steps, *found.before))
