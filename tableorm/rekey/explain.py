"""
What a write sends whose model takes over the entities of an older one, in each phase: `db.explain_write`.

The phase is the one that the program knows. Until it has asked the store, entities may have their older keys.
"""

from collections.abc import Sequence

import attrs
from msgspec import structs

from ..connection.connection import Connection
from ..connection.requests import row_path
from ..models.entity import Entity
from ..models.marker_rows import MoveState, mark_of
from ..stores import RowAddress
from ..writes.explain import (
    AS_READ,
    BATCH,
    TOKEN,
    WriteExplanation,
    WriteStep,
    explain,
    explain_after_reading,
    explain_writes,
)
from ..writes.move import without_mark
from ..writes.plan import Change, Mode
from ..writes.stages.change import plain_insert
from ..writes.stages.encode import encode, needs_row
from .older import refuse_blind, to_older
from .phases import RekeyPhase
from .reads import older_places
from .rekeying import Rekeying, old_place_of
from .steps import source_of

__all__ = ["explain_in_phase"]


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
        NotSupported: Such a write is refused in this phase.
        TableOrmError: What `explain` raises.
    """
    change = changes[0]
    if len(changes) > 1 or db.boundary.narrows:
        return explain(db.boundary, changes)
    phase = RekeyPhase.known_to(db, rekeying)
    place = _Whereabouts.of(rekeying, change)
    if phase.is_over:
        return _explain_newer(db, change)
    if phase is not RekeyPhase.MOVE:
        return _explain_older(db, rekeying, change, phase, place)
    if change.mode is Mode.INSERT:
        source = source_of(rekeying, change.subject)
        taken = (*map(_get, (*place.sources, source)), WriteStep("POST", f"/{source.table}"))
        return _after(taken, explain(db.boundary, changes))
    return _explain_moving(db, rekeying, change, place) if place.known else _explain_newer(db, change)


@attrs.frozen
class _Whereabouts:
    """
    Where the entity of a change is.

    Args:
        target: Its newer key.
        sources: The older keys that are looked at; the last one is that of an entity which was read there.
        known: Whether it was read at its older key.
        newer: Whether it was read at its newer key.
    """

    target: RowAddress
    sources: Sequence[RowAddress]
    known: bool
    newer: bool

    @classmethod
    def of(cls, rekeying: Rekeying, change: Change) -> "_Whereabouts":
        target = change.address
        before = change.before
        mark = None if before is None or change.is_unseen else old_place_of(before.row)
        newer = before is not None and before.complete and not change.is_unseen and mark is None
        if newer:
            return cls(target, (), known=False, newer=True)
        fields = change.values or (change.subject.__dict__ if isinstance(change.subject, Entity) else None)
        sources = older_places(rekeying, target, fields)
        if mark is not None and mark.other in sources:
            sources = sources[: sources.index(mark.other) + 1]
        return cls(target, sources, known=mark is not None, newer=newer)


def _explain_newer(db: Connection, change: Change) -> WriteExplanation:
    """Explain a write at the newer key: the forward of an entity that the mover has confirmed is settled first."""
    found = explain(db.boundary, (change,))
    mark = None if change.before is None or change.is_unseen else mark_of(change.before.row)
    if mark is None or mark.state is not MoveState.CONFIRMED or not mark.stays or not found.steps:
        return found
    write = None if needs_row(change) else encode(change, 0, TOKEN)
    if write is not None:
        found = explain_writes(db.boundary, [without_mark(write)])
    return _after((_get(mark.other), _put(mark.other)), found)


def _explain_older(
    db: Connection, rekeying: Rekeying, change: Change, phase: RekeyPhase, place: _Whereabouts
) -> WriteExplanation:
    """Explain a write while entities have their older keys, or get them again."""
    back, there = phase is RekeyPhase.BACK, _get(place.target)
    if place.newer:
        return _after((there,) if back else (), _explain_newer(db, change))
    refuse_blind(rekeying, change, phase)
    older = [*map(_get, place.sources)]
    if change.mode is Mode.INSERT:
        reads = (there, *older, there) if back else (*older, there, *older)
        _, _, entity = to_older(rekeying, change)
        return _after(reads, explain(db.boundary, (structs.replace(plain_insert(entity), verb=change.verb),)))
    reads = (there, *older) if back else (*older,)
    if not place.sources or not explain(db.boundary, (change,)).steps:
        return WriteExplanation(reads)
    source = place.sources[-1]
    written = structs.replace(change, schema=rekeying.old, if_match=None, address=source)
    return _after(reads[:-1], explain_after_reading((written,)))


def _explain_moving(db: Connection, rekeying: Rekeying, change: Change, place: _Whereabouts) -> WriteExplanation:
    """Explain a write of an entity that was read at its older key, and gets its newer one first."""
    if not explain(db.boundary, (change,)).steps:
        return WriteExplanation(())
    found = explain_after_reading((structs.replace(change, if_match=None),))
    source, there, here = place.sources[-1], _get(place.target), _get(place.sources[-1])
    insert = WriteStep("POST", BATCH if rekeying.new.derived else f"/{place.target.table}")
    forward = WriteStep("POST", BATCH) if rekeying.old.derived else _put(source)
    confirm = WriteStep("POST", BATCH) if rekeying.new.derived else _put(place.target)
    moved = (there, *map(_get, place.sources), insert, forward, there, here, confirm)
    return _after((*moved, here, _put(source)), found)


def _after(steps: Sequence[WriteStep], found: WriteExplanation) -> WriteExplanation:
    """Return an explanation with what is sent before."""
    return attrs.evolve(found, before=(*steps, *found.before))


def _get(place: RowAddress) -> WriteStep:
    return WriteStep("GET", f"/{row_path(place)}")


def _put(place: RowAddress) -> WriteStep:
    return WriteStep("PUT", f"/{row_path(place)}", AS_READ)
