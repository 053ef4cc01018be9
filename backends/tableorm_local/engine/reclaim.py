"""
Giving back the pages of what was deleted, a slice at a time, between the writes of everyone else.
"""

import asyncio
import time
from collections.abc import Callable

import apsw

from tableorm.protocol.codes import Fault

from . import blob_contents, blobs, catalog, queues
from .faults import is_missing_table
from .group_commit import Pump
from .sqlite import Connection
from .write_session import Session

__all__ = ["Reclaimer", "anything_to_reclaim"]

# One slice delays writes that come meanwhile; its rows are adapted to this time.
_SLICE_SECONDS = 0.003
# Share of the time, as rest after each slice.
_REST = 4
_FIRST_ROWS = 64
_MAX_ROWS = 5000
# After a fault: another process was writing, or the disk is full.
_RETRY_SECONDS = 0.1


def _reclaim_table(connection: Connection, rows: int) -> bool:
    name = catalog.gone(connection)
    if name is None:
        return False
    try:
        catalog.reclaim(connection, name, rows)
    except apsw.SQLError as error:
        if not is_missing_table(error):
            raise
    return True


# Each gives back up to so many rows of one deleted thing; False if there is none. Blobs leave contents behind.
_KINDS: tuple[Callable[[Connection, int], bool], ...] = (
    _reclaim_table,
    queues.reclaim,
    blobs.reclaim,
    blob_contents.reclaim,
)


def anything_to_reclaim(connection: Connection) -> bool:
    """Whether something was deleted and is not all given back; looks without changing anything."""
    return (
        catalog.gone(connection) is not None
        or queues.gone(connection) is not None
        or blobs.gone(connection) is not None
        or blob_contents.gone(connection) is not None
    )


class Reclaimer:
    """
    Empties deleted tables, queues, containers and blobs until none is left. Any process may do it, and several may at
    once.
    """

    def __init__(self, pump: Pump) -> None:
        self._pump = pump
        self._loop = asyncio.get_running_loop()
        # Per kind: a chunk of a blob takes more time than a message.
        self._rows = dict.fromkeys(_KINDS, _FIRST_ROWS)
        self._took = 0.0
        self._finished = False
        self._active = False
        self._wanted = False
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look for what is deleted; call it after a deletion and at open."""
        self._wanted = True
        if not (self._active or self._closed):
            self._active = True
            self._pump.set_chore(self._slice, self._sliced)

    def close(self) -> None:
        """Stop; what is left is done after the next open."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _slice(self, session: Session) -> None:
        self._wanted = False
        start = time.perf_counter()
        kind = next((kind for kind in _KINDS if kind(session.connection, self._rows[kind])), None)
        self._finished = kind is None
        if kind is None:
            return
        session.dirty = True
        self._took = time.perf_counter() - start
        scale = _SLICE_SECONDS / max(self._took, 1e-6)
        self._rows[kind] = max(1, min(_MAX_ROWS, int(self._rows[kind] * min(2.0, scale))))

    def _sliced(self, fault: Fault | None) -> None:
        # A deletion after the last look is looked for again.
        if self._closed or (self._finished and fault is None and not self._wanted):
            self._active = False
            return
        pause = _RETRY_SECONDS if fault is not None else _REST * self._took
        self._timer = self._loop.call_later(pause, self._again)

    def _again(self) -> None:
        self._timer = None
        if not self._closed:
            self._pump.set_chore(self._slice, self._sliced)
