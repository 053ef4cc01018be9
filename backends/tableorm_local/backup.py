"""
Backups of database files.
"""

import asyncio
import os

from .engine.backup import back_up_file


async def back_up(path: str | os.PathLike[str], copy: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """
    Copy a database file as it is at one moment, with its queues and blobs, while programs read and write. The copy has
    its name when all of it is on the disk and was checked; only its owner may read it.

        await back_up("hr.tables", "backup.tables")

    Args:
        path: The database file.
        copy: The name of the copy.
        overwrite: Whether a file of that name is replaced.

    Raises:
        FileExistsError: There is such a file.
        Unavailable: There is no database at `path`, or it is damaged.
        NotSupported: The file is another program's, or newer than this version.
    """
    await asyncio.to_thread(back_up_file, os.fspath(path), os.fspath(copy), overwrite=overwrite)
