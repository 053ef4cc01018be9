"""
Reclaiming: frees the pages of what was deleted, a slice at a time, between the writes of others.
"""

import asyncio
import time
from collections.abc import Callable

from tableorm.protocol.codes import Fault

from . import blob_contents, blobs, catalog, queues
from .group_commit import GroupCommit
from .sqlite import Connection
from .write_session import WriteSession

__all__ = ["Reclaimer"]

# A slice delays the writes that come meanwhile, so its number of rows is adapted to take this time.
_SLICE_SECONDS = 0.003
# After a slice it rests for so many times the time that the slice took.
_REST = 4
_FIRST_ROWS = 64
_MAX_ROWS = 5000
# After a fault: another process was writing, or the disk is full.
_RETRY_SECONDS = 0.1


# Each frees up to so many rows of one deleted thing and returns False if there is none. Blobs leave contents behind.
_RECLAIMERS: tuple[Callable[[Connection, int], bool], ...] = (
    catalog.reclaim,
    queues.reclaim,
    blobs.reclaim,
    blob_contents.reclaim,
)


class Reclaimer:
    """
    Empties deleted tables, queues, containers and blobs until none is left. Several processes may do so at once.
    """

    def __init__(self, commits: GroupCommit) -> None:
        self._commits = commits
        self._loop = asyncio.get_running_loop()
        # For each kind, since a chunk of a blob takes more time than a message.
        self._rows = dict.fromkeys(_RECLAIMERS, _FIRST_ROWS)
        self._seconds = 0.0
        self._finished = False
        self._active = False
        self._wanted = False
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look for what was deleted. To be called after a deletion and at open."""
        self._wanted = True
        if not (self._active or self._closed):
            self._active = True
            self._commits.set_background_job(self._reclaim_slice, self._end_slice)

    def close(self) -> None:
        """Stop. The rest is done after the next open."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _reclaim_slice(self, session: WriteSession) -> None:
        self._wanted = False
        start = time.perf_counter()
        kind = next((kind for kind in _RECLAIMERS if kind(session.connection, self._rows[kind])), None)
        self._finished = kind is None
        if kind is None:
            return
        session.dirty = True
        self._seconds = time.perf_counter() - start
        scale = _SLICE_SECONDS / max(self._seconds, 1e-6)
        self._rows[kind] = max(1, min(_MAX_ROWS, int(self._rows[kind] * min(2.0, scale))))

    def _end_slice(self, fault: Fault | None) -> None:
        # After a deletion since the last look, look again.
        if self._closed or (self._finished and fault is None and not self._wanted):
            self._active = False
            return
        pause = _RETRY_SECONDS if fault is not None else _REST * self._seconds
        self._timer = self._loop.call_later(pause, self._run_again)

    def _run_again(self) -> None:
        self._timer = None
        if not self._closed:
            self._commits.set_background_job(self._reclaim_slice, self._end_slice)
