"""
Settings: named bytes that belong to the whole file, or to a table and are deleted with it. The server keeps access
policies and the properties of the service here.
"""

from collections.abc import Callable

from tableorm.protocol.codes import Code, Fault

from . import catalog
from .faults import missing_table_fault
from .sqlite import Connection
from .write_session import Host, WriteSession

# A table's settings are stored under its number, which is never used again; `catalog.drop_table` deletes them.
# 0 is the file.
SCHEMA = """
CREATE TABLE settings (owner INTEGER NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (owner, name)
) WITHOUT ROWID, STRICT;
"""

_FILE = 0
_MAX_BYTES = 16 * 1024  # of a setting, which is read whole, on the event loop; a server writes a few KiB


class Settings:
    """The settings of an engine's file."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def get(self, name: str, table: str | None = None) -> bytes | None:
        """
        Read a setting of the table, or of the file; None if it is not set.

        Raises:
            Fault: TableNotFound.
        """
        return await self._host.read(lambda connection: _read(connection, _find_owner(connection, table), name))

    async def change(self, name: str, change: Callable[[bytes | None], bytes | None], table: str | None = None) -> None:
        """
        Replace a setting by what `change` makes of it, where None means none. Nobody else changes it meanwhile.

        Raises:
            Fault: TableNotFound; InvalidInput if the value is too large; and what `change` raises.
        """

        def work(session: WriteSession) -> None:
            connection = session.connection
            owner = _find_owner(connection, table)
            value = change(_read(connection, owner, name))
            if value is None:
                session.write("DELETE FROM settings WHERE owner = ? AND name = ?", (owner, name))
            elif len(value) > _MAX_BYTES:
                problem = f"The setting {name!r} has {len(value)} bytes, {_MAX_BYTES} are allowed."
                raise Fault(Code.INVALID_INPUT, problem)
            else:
                session.write("REPLACE INTO settings VALUES (?, ?, ?)", (owner, name, value))

        await self._host.submit(work)


def _read(connection: Connection, owner: int, name: str) -> bytes | None:
    value: bytes | None = connection.execute(
        "SELECT value FROM settings WHERE owner = ? AND name = ?", (owner, name)
    ).get
    return value


def _find_owner(connection: Connection, table: str | None) -> int:
    if table is None:
        return _FILE
    found = catalog.find_table(connection, table.lower()) if table.isascii() else None
    if found is None:
        raise missing_table_fault()
    return found.id
