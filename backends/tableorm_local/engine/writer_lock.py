"""
The turnstile: who of several processes may try for SQLite's write lock next.

SQLite's own waiting is a lottery in which the process that has just committed holds most tickets. Every writer passes
this lock before `BEGIN IMMEDIATE` and leaves it when that has succeeded: the one that waits for SQLite's lock holds it,
so that whoever has just committed queues up behind.
"""

import os
import sys
import time

__all__ = ["Turnstile"]

if sys.platform == "win32":
    import msvcrt

    def _try_lock(fd: int) -> bool:
        os.lseek(fd, 0, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _lock(fd: int) -> None:
        # LK_LOCK gives up after ten seconds and sleeps a whole second between tries.
        while not _try_lock(fd):
            time.sleep(0.001)

    def _unlock(fd: int) -> None:
        os.lseek(fd, 0, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_lock(fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _lock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_EX)

    def _unlock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)


class Turnstile:
    """
    A lock between processes, and between the engines of one process, on a file of its own.

    The file is never deleted: a process that still waits on a deleted file would no longer meet the others.

    Args:
        path: The file, made if absent, readable by its owner only.
    """

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)

    def try_enter(self) -> bool:
        """Enter if nobody is inside; never waits."""
        return _try_lock(self._fd)

    def enter(self) -> None:
        """Enter, waiting for as long as it takes: for threads."""
        _lock(self._fd)

    def leave(self) -> None:
        """Let the next one in."""
        _unlock(self._fd)

    def close(self) -> None:
        """Give the file back. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
