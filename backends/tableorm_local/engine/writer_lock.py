"""
The writer lock: which of several processes may try for SQLite's write lock next.

SQLite's own waiting is a lottery that the process that has just committed wins most often. Every writer takes this lock
before `BEGIN IMMEDIATE` and releases it when that has succeeded. The process that waits for SQLite's lock holds this
one, so the process that has just committed queues behind it.
"""

import os
import sys
import time

if sys.platform == "win32":
    import msvcrt

    _OPEN = os.O_RDWR | os.O_CREAT

    # Windows locks bytes from the position on, which is always the beginning, as nobody reads or writes the file.
    def _try_lock(fd: int) -> bool:
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
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    _OPEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW

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


class WriterLock:
    """
    A lock between processes, and between the engines of one process, on a file of its own.

    The file is never deleted: a process that still waits for the lock on a deleted file would not exclude the others.

    Args:
        path: The file, created if it is missing, readable by its owner only. A symbolic link is not followed.
    """

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, _OPEN, 0o600)

    def try_acquire(self) -> bool:
        """Take the lock if nobody holds it. Never waits."""
        return _try_lock(self._fd)

    def acquire(self) -> None:
        """Take the lock, however long that takes. To be called in a thread."""
        _lock(self._fd)

    def release(self) -> None:
        """Give the lock to the next process."""
        _unlock(self._fd)

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
