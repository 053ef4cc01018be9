"""
Reclaiming: frees the pages of what was deleted, a slice at a time, between the writes of others.
"""

import asyncio
import time
from collections.abc import Callable

from tableorm.protocol.codes import Code, Fault

from . import blob_contents, blobs, catalog, queues
from .group_commit import GroupCommit
from .sqlite import Connection
from .write_session import WriteSession

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
        # For each kind, since a chunk of a blob takes more time than a message.
        self._rows = dict.fromkeys(_RECLAIMERS, _FIRST_ROWS)
        self._wanted = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look for what was deleted. To be called after a deletion and at open."""
        self._wanted = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    def close(self) -> None:
        """Stop. The rest is done after the next open."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._wanted:
            try:
                seconds: float = await self._commits.submit_background_job(self._reclaim_slice)
                await asyncio.sleep(_REST * seconds)
            except Fault as fault:
                # Time does not mend a damaged file: what is deleted next, or another open, tries again.
                self._wanted = fault.code == Code.SERVER_BUSY
                await asyncio.sleep(_RETRY_SECONDS)

    def _reclaim_slice(self, session: WriteSession) -> float:
        """Free the pages of a slice. Return how long that took."""
        # What is deleted from now on asks for another look.
        self._wanted = False
        start = time.perf_counter()
        kind = next((kind for kind in _RECLAIMERS if kind(session.connection, self._rows[kind])), None)
        if kind is None:
            return 0.0
        self._wanted = session.dirty = True
        seconds = time.perf_counter() - start
        scale = _SLICE_SECONDS / max(seconds, 1e-6)
        self._rows[kind] = max(1, min(_MAX_ROWS, int(self._rows[kind] * min(2.0, scale))))
        return seconds
