"""
Phases of a re-key: the store says how far it is, in a row of the mapper's own table, and every program asks.

    expand   no row: entities have their older keys, also those that programs write which declare the newer model
    move     entities get their newer keys; programs that know the older model alone may still read and write safely
    sealed   all entities have their newer keys, and no program of the older model runs
    done     what was kept of the older rows is deleted
    back     entities get their older keys again; then there is no row any more

A program asks when it uses the model first, and again when what it knows is older than a minute. So what is only safe
when everybody knows a phase waits for two minutes after it began. Who knows *sealed* or *done* asks no more. So nobody
goes back from *sealed*, but for a re-key that was made while nobody wrote, after all programs of the newer model ended.
"""

import asyncio
import datetime as dt
from contextlib import suppress
from enum import StrEnum

import attrs

from ..connection.connection import Connection, KnownPhase
from ..connection.index_states import write_records
from ..connection.rows import read_row, time_of
from ..errors import DecodeError, NotSupported, TableNotFound, shown
from ..models.reserved import UPKEEP_TABLE
from ..protocol.codes import Code
from ..stores import Bounds, Operation, Row, RowAddress, RowQuery, Verb, row_keys
from .rekeying import Rekeying

ASK_AGAIN = 60.0
"""After how many seconds a program asks for the phase again."""

_PARTITION = "re-keys"
_OFFLINE = "Offline"


class RekeyPhase(StrEnum):
    """How far a re-key is."""

    EXPAND = "expand"
    MOVE = "move"
    SEALED = "sealed"
    DONE = "done"
    BACK = "back"

    @property
    def is_over(self) -> bool:
        """Whether all entities have their newer keys, so that nobody looks for older ones any more."""
        return self in (RekeyPhase.SEALED, RekeyPhase.DONE)

    @property
    def writes_older(self) -> bool:
        """Whether entities that have their older keys are written there, and new ones get such keys."""
        return self in (RekeyPhase.EXPAND, RekeyPhase.BACK)

    @classmethod
    def known_to(cls, db: Connection, rekeying: Rekeying) -> "RekeyPhase":
        """Return the phase that a connection knows; until it has asked the store, *expand*."""
        return cls(db.known_phase(rekeying.digest).phase or "expand")


_NEXT = {
    RekeyPhase.EXPAND: {
        RekeyPhase.MOVE,
        RekeyPhase.SEALED,
    },  # sealed at once if everything is moved while nobody writes
    RekeyPhase.MOVE: {RekeyPhase.SEALED, RekeyPhase.BACK},
    RekeyPhase.BACK: {RekeyPhase.EXPAND},
    RekeyPhase.SEALED: {RekeyPhase.DONE},
    RekeyPhase.DONE: set[RekeyPhase](),
}


@attrs.frozen(kw_only=True)
class StoredPhase:
    """
    What the store says of the phase of a re-key.

    Args:
        phase: The phase.
        since: When it began; None for *expand*, which has no row.
        etag: The ETag of the row; None if there is none.
        offline: Whether it is *sealed* by a re-key that is made while nobody writes: entities have their older keys
            still, until they are deleted there.
    """

    phase: RekeyPhase
    since: dt.datetime | None = None
    etag: str | None = None
    offline: bool = False


async def read_phases(db: Connection) -> list[Row]:
    """Return the rows with the phases of all re-keys, whoever has written them. Raises AccessDenied."""
    query, rows = RowQuery(Bounds.only(_PARTITION)), list[Row]()
    with suppress(TableNotFound):
        rows = [row async for row in db.read_rows("phases of re-keys", UPKEEP_TABLE, query)]
    return rows


async def current_phase(db: Connection, rekeying: Rekeying) -> RekeyPhase:
    """
    Return the phase of a re-key, as the store said it within the last minute.

    Raises:
        AccessDenied: The token of the connection does not open the table of the mapper's own records.
        NotSupported: The connection is that of a scope, and entities may have their older keys, which it cannot check.
    """
    known = db.known_phase(rekeying.digest)
    if not _is_known(known):
        async with known.lock:
            if not _is_known(known):
                await load_phase(db, rekeying)
    phase = RekeyPhase(str(known.phase))
    if db.boundary.narrows and not phase.is_over:
        raise NotSupported(
            f"{rekeying} is in phase {phase.value!r}: a scope does not tell which older keys are its own; use the "
            "database itself until `tableorm migrate seal` was run"
        )
    return phase


def _is_known(known: KnownPhase) -> bool:
    """Return whether the store was asked a short time ago, or need not be asked any more."""
    return known.phase is not None and (
        RekeyPhase(known.phase).is_over or asyncio.get_running_loop().time() - known.asked < ASK_AGAIN
    )


async def load_phase(db: Connection, rekeying: Rekeying) -> StoredPhase:
    """
    Ask the store for the phase of a re-key; the connection remembers it.

    Raises:
        AccessDenied: The token of the connection does not open the table of the mapper's own records.
        DecodeError: The row says what no program writes.
    """
    begun, row = asyncio.get_running_loop().time(), None
    with suppress(TableNotFound):
        row = await read_row(db, RowAddress(UPKEEP_TABLE, _PARTITION, rekeying.digest))
    if row is None:
        found = StoredPhase(phase=RekeyPhase.EXPAND)
    else:
        found = StoredPhase(
            phase=_read_phase(rekeying, row),
            since=time_of(row, str(rekeying)),
            etag=row["odata.etag"],
            offline=bool(row.get(_OFFLINE)),
        )
    known = db.known_phase(rekeying.digest)
    known.phase, known.asked = found.phase, begun
    return found


def _read_phase(rekeying: Rekeying, row: Row) -> RekeyPhase:
    stored = row.get("Phase")
    try:
        return RekeyPhase(str(stored))
    except ValueError:
        raise DecodeError(
            f"has {shown(stored)} as Phase, which is none of {', '.join(RekeyPhase)}; another program has written it: "
            f"set it to the phase that the {rekeying} was in",
            UPKEEP_TABLE,
            row_keys(row),
        ) from None


async def change_phase(db: Connection, rekeying: Rekeying, read: StoredPhase, phase: RekeyPhase) -> StoredPhase:
    """
    Let a re-key enter its next phase, unless somebody has changed the phase since it was read.

    Args:
        db: The database.
        rekeying: The re-key.
        read: The phase as `load_phase` returned it.
        phase: The phase that begins.

    Returns:
        The phase as the store says it now; it may be another one if somebody was first.

    Raises:
        NotSupported: No such phase follows.
        AccessDenied: Not permitted.
    """
    allowed = _NEXT[read.phase] | ({RekeyPhase.EXPAND} if read.offline else set[RekeyPhase]())
    if phase not in allowed:
        following = ", ".join(sorted(allowed)) or "nothing"
        raise NotSupported(f"{rekeying}: {phase} does not follow {read.phase}; what may follow is {following}")
    row: Row = {
        "PartitionKey": _PARTITION,
        "RowKey": rekeying.digest,
        "Model": rekeying.new.name,
        "OldModel": rekeying.old.name,
        "Table": rekeying.new.table_name(),
        "OldTable": rekeying.old.table_name(),
        "Phase": phase.value,
        _OFFLINE: read.phase is RekeyPhase.EXPAND and phase is RekeyPhase.SEALED,
    }
    if phase is RekeyPhase.EXPAND:
        operation = Operation(Verb.DELETE, row, read.etag)
    elif read.etag is None:
        operation = Operation(Verb.INSERT, row)
    else:
        operation = Operation(Verb.REPLACE, row, read.etag)
    lost = {Code.ENTITY_EXISTS, Code.CONDITION_NOT_SATISFIED, Code.RESOURCE_NOT_FOUND}
    await write_records(db, [operation], lost, f"phase of the {rekeying}")
    return await load_phase(db, rekeying)
