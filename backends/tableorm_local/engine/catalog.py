"""
The catalog: the names of the tables in a file, and the statements of each physical table.

A table is the physical table `t<ID>`, one B-tree of (key, ts, body), whatever the letter case of its name. A deleted
table is renamed to `gone_<ID>`: its name is free at once, the statements of other connections fail from then on and
look the name up again, and its pages are freed later, in slices.
"""
# ruff: noqa: S608 - the only names in statements are made here, of numbers

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.edm import utf16_key

from .faults import not_found_fault
from .sqlite import Connection
from .write_session import LongSteps, WriteSession

SCHEMA = """
CREATE TABLE clock (id INTEGER PRIMARY KEY CHECK (id = 1), tick INTEGER NOT NULL) STRICT;
INSERT INTO clock VALUES (1, 0);
CREATE TABLE catalog (id INTEGER PRIMARY KEY AUTOINCREMENT, folded TEXT NOT NULL UNIQUE, name TEXT NOT NULL) STRICT;
"""
_ROWS = "(key BLOB PRIMARY KEY, ts INTEGER NOT NULL, body BLOB NOT NULL) WITHOUT ROWID, STRICT"
# AUTOINCREMENT: an id must never be used again, or a statement cached elsewhere would reach another table.


def key_of(partition_key: str, row_key: str) -> bytes:
    """
    Return the key of a row in its B-tree. Keys sort by PartitionKey, then RowKey, both by UTF-16 unit.

    U+0000 is forbidden in keys, so as the separator it sorts before everything.

    Raises:
        UnicodeEncodeError: A key has a lone surrogate.
    """
    text = f"{partition_key}\0{row_key}"
    key = text.encode("utf-8")
    return key if text.isascii() else utf16_key(text)


class Table:
    """
    A physical table and its statements.

    Attributes:
        id: Its number, never used again.
        folded: Its name in lower case.
        stale: Whether the table proved to be dropped. Its name then means another table, or none.
    """

    __slots__ = ("delete", "folded", "id", "insert", "put", "read", "scan", "stale", "tick")

    def __init__(self, number: int, folded: str) -> None:
        self.id, self.folded, self.stale = number, folded, False
        name = f'"t{number}"'
        self.read = f"SELECT body FROM {name} WHERE key = ?"
        self.tick = f"SELECT ts FROM {name} WHERE key = ?"
        self.scan = f"SELECT key, body FROM {name} WHERE key >= ? AND key < ? ORDER BY key"
        self.insert = f"INSERT INTO {name} VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        self.put = f"REPLACE INTO {name} VALUES (?, ?, ?)"
        self.delete = f"DELETE FROM {name} WHERE key = ?"


_KNOWN_MAX = 10_000


class Catalog:
    """
    The names of tables as one connection sees them, remembered until a table proves stale.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[str, Table] = {}

    def find(self, name: str) -> Table | None:
        """Find the table of a name in any letter case."""
        table = self._known.get(name)
        return self._find_new(name) if table is None or table.stale else table

    def _find_new(self, name: str) -> Table | None:
        table = find_table(self._connection, name.lower()) if name.isascii() else None
        if table is not None:
            # Remembered by the spelling that was used, since folding it at every request would take longer. There may
            # be many spellings.
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[name] = table
        return table

    def forget(self, name: str) -> None:
        """Mark the table of a name as dropped."""
        folded = name.lower()
        for table in self._known.values():
            table.stale = table.stale or table.folded == folded


def find_table(connection: Connection, folded: str) -> Table | None:
    """Find the table with a name in lower case."""
    found = connection.execute("SELECT id FROM catalog WHERE folded = ?", (folded,)).get
    return None if found is None else Table(found, folded)


def list_names(connection: Connection, start: str, limit: int | None) -> list[str]:
    """
    List the names of tables as created, ordered without regard to case.

    Args:
        connection: Where to read.
        start: The first name there may be, in lower case.
        limit: How many names at most; None for all.
    """
    sql = "SELECT name FROM catalog WHERE folded >= ? ORDER BY folded LIMIT ?"
    return [name for (name,) in connection.execute(sql, (start, -1 if limit is None else limit))]


def create_table(session: WriteSession, name: str) -> None:
    """Create a table. Fault TableAlreadyExists if there is one of that name in any letter case."""
    connection, folded = session.connection, name.lower()
    if find_table(connection, folded) is not None:
        raise Fault(Code.TABLE_EXISTS, "The table specified already exists.")
    session.write("INSERT INTO catalog (folded, name) VALUES (?, ?)", (folded, name))
    connection.execute(f"CREATE TABLE t{connection.last_insert_rowid()} {_ROWS}")


def drop_table(session: WriteSession, name: str) -> LongSteps:
    """Drop a table, in constant time: free its name. Fault ResourceNotFound if there is no such table."""
    connection = session.connection
    table = find_table(connection, name.lower())
    if table is None:
        raise not_found_fault()
    session.write("DELETE FROM catalog WHERE id = ?", (table.id,))
    yield True  # there may be any number of settings, and to rename one table SQLite reads the statements of all
    connection.execute("DELETE FROM settings WHERE owner = ?", (table.id,))
    connection.execute(f'ALTER TABLE "t{table.id}" RENAME TO "gone_{table.id}"')


def reclaim(connection: Connection, rows: int) -> bool:
    """Free the pages of up to `rows` rows of a deleted table. Return False if there is no deleted table."""
    # Digits alone: the name goes into statements.
    find = "SELECT name FROM sqlite_schema WHERE name GLOB 'gone_[1-9]*' AND NOT name GLOB 'gone_*[^0-9]*' LIMIT 1"
    name = connection.execute(find).get
    if name is None:
        return False
    last = connection.execute(f'SELECT key FROM "{name}" ORDER BY key LIMIT 1 OFFSET ?', (rows,)).get
    if last is None:
        connection.execute(f'DROP TABLE "{name}"')
    else:
        connection.execute(f'DELETE FROM "{name}" WHERE key < ?', (last,))
        if not connection.changes():
            return False  # The file is damaged: the keys are out of order, and it would go on for ever.
    return True
