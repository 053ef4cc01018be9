"""
Reading an entity by its newer key, wherever it is: there, or still at a key that it has by the older model.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from ..connection.connection import Connection
from ..connection.rows import MOST_LOOKS, lost_look, read_live, read_row
from ..errors import NotSupported, TableNotFound
from ..models.marker_rows import is_marker, row_of_marker
from ..models.state import state_of
from ..stores import Row, RowAddress, row_keys
from .phases import RekeyPhase, current_phase
from .rekeying import Rekeying, entity_of_old


@attrs.frozen(kw_only=True)
class FoundRow:
    """
    Where an entity was found.

    Args:
        row: Its row at the newer key, which may be a tentative one; or what its older row would be there, under the
            ETag of that, with the mark of `entity_of_old`.
        source: Where it is by the older model; None if it is at its newer key.
        older: Its row there as it is stored; None if it is at its newer key.
    """

    row: Row
    source: RowAddress | None = None
    older: Row | None = None


_Look = Callable[[], Awaitable[tuple[FoundRow | None, Sequence[str | None]]]]
"""Looks for an entity at one place; returns it, and the ETags of what is there otherwise."""


async def has_older_keys(db: Connection, rekeying: Rekeying) -> bool:
    """
    Return whether entities that have their older keys are written there, so that the newer table may be missing. Raises
    what `current_phase` raises.
    """
    return (await current_phase(db, rekeying)).writes_older


def older_places(rekeying: Rekeying, target: RowAddress, fields: Mapping[str, Any] | None) -> Sequence[RowAddress]:
    """
    Return where the entity of a newer key may be by the older model; nowhere if no entity has such a key.

    Args:
        rekeying: The models.
        target: The newer key.
        fields: Fields that were given, or that an entity has; those count that the stored key does not tell.

    Raises:
        NotSupported: The stored key does not tell its fields, and they are not known.
    """
    new = rekeying.new
    try:
        found = {**(fields or {}), **new.parse_keys(target.partition_key, target.row_key)}
    except ValueError:
        return ()
    missing = [name for name in new.key_fields if name not in found]
    if missing:
        raise NotSupported(
            f"{rekeying}: the stored key ({target.partition_key!r}, {target.row_key!r}) does not tell {missing[0]!r}; "
            "give the fields of the key, or the entity, until `tableorm migrate seal` was run"
        )
    return [RowAddress.of(key) for key in rekeying.old_keys(found)]


async def find_row(
    db: Connection, rekeying: Rekeying, target: RowAddress, fields: Mapping[str, Any] | None
) -> FoundRow | None:
    """
    Read the entity of a newer key where it is.

    An entity may go from one key to the other between two reads. So there is none only if the first place, when it is
    read again, has not changed. If there is a row at the second place, the entity may even have come and gone back in
    between: then the second place must not have changed either.

    Args:
        db: Where the rows are.
        rekeying: The models.
        target: The newer key.
        fields: The fields of that key, if they are known.

    Returns:
        Where it is; None if there is none. At the newer key it may be a row of another kind.

    Raises:
        NotSupported: The connection is that of a scope, or the stored key does not tell its fields.
        DecodeError: The older row does not fit its model.
        LostRace: The rows were others each time.
    """
    phase = await current_phase(db, rekeying)
    if phase.is_over:
        newer, _ = await _look_at_newer(db, rekeying, target)
        return newer
    sources = older_places(rekeying, target, fields)
    looks: list[_Look] = [
        partial(_look_at_newer, db, rekeying, target),
        partial(_look_at_older, db, rekeying, target, sources),
    ]
    if phase is RekeyPhase.EXPAND:
        looks.reverse()
    for _ in range(MOST_LOOKS):
        versions: list[Sequence[str | None]] = []
        for look in (*looks, *looks):
            found, seen = await look()
            if found is not None:
                return found
            versions.append(seen)
            if versions[2:] == [versions[0]] and not any(versions[1]):
                return None  # nothing has ever been at the second place
        if versions[2:] == versions[:2]:
            return None
    raise lost_look(str(target))


async def _look_at_newer(
    db: Connection, rekeying: Rekeying, target: RowAddress
) -> tuple[FoundRow | None, list[str | None]]:
    """Return the entity of a newer key if it is there, and the ETag of what is there otherwise."""
    try:
        row = await read_row(db, target)
    except TableNotFound:
        if not await has_older_keys(db, rekeying):
            raise
        row = None
    if row is None:
        return None, [None]
    live = await read_live(db, target) if is_marker(row) else row
    return (None if live is None else FoundRow(row=live)), [row["odata.etag"]]


async def _look_at_older(
    db: Connection, rekeying: Rekeying, target: RowAddress, sources: Sequence[RowAddress]
) -> tuple[FoundRow | None, list[str | None]]:
    """Return the entity of a newer key if it has one of some older keys, and the ETags of what they have otherwise."""
    versions: list[str | None] = []
    for source in sources:
        row = await read_row(db, source)
        versions.append(None if row is None else row["odata.etag"])
        live = row
        if row is not None and is_marker(row):
            live = await read_live(db, source)
        if live is None:
            continue
        entity = entity_of_old(rekeying, row_of_marker(rekeying.old, live) if is_marker(live) else live.copy())
        if entity is None:
            continue
        found = state_of(entity).row
        assert found is not None
        if row_keys(found) == (target.partition_key, target.row_key):
            return FoundRow(row=found, source=source, older=live), versions
    return None, versions
