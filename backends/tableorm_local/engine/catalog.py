"""
Tables as the file holds them: the catalog of names, and the statements of each physical table.

A table named N in any letter case is the physical table `t<ID>`, one B-tree of (key, ts, body). A deleted one is
renamed to `gone_<ID>`: its name is free at once, the statements of every other connection fail from then on and look
the name up again, and its pages are given back later, in slices.
"""
# ruff: noqa: S608 - the only names in statements are made here, of numbers

from tableorm.protocol.edm import utf16_key

from .sqlite import Connection

__all__ = [
    "SCHEMA",
    "Catalog",
    "Table",
    "create",
    "drop",
    "gone",
    "key_of",
    "look_up",
    "names",
    "reclaim",
]

SCHEMA = """
CREATE TABLE clock (id INTEGER PRIMARY KEY CHECK (id = 1), tick INTEGER NOT NULL) STRICT;
INSERT INTO clock VALUES (1, 0);
CREATE TABLE catalog (id INTEGER PRIMARY KEY AUTOINCREMENT, folded TEXT NOT NULL UNIQUE, name TEXT NOT NULL) STRICT;
"""
# AUTOINCREMENT: an id must never come back, or a statement cached elsewhere would reach another table.


def key_of(partition_key: str, row_key: str) -> bytes:
    """
    The key of a row in its B-tree: sorts by PartitionKey, then RowKey, both by UTF-16 unit.

    U+0000 is forbidden in keys, so as separator it sorts before everything.
    """
    if partition_key.isascii() and row_key.isascii():
        return f"{partition_key}\0{row_key}".encode("ascii")
    return utf16_key(partition_key) + b"\0" + utf16_key(row_key)


class Table:
    """
    A physical table and its statements.

    Attributes:
        id: Its number, never used again.
        folded: Its name in lower case.
        stale: Whether it proved to be dropped; its name then means another table, or none.
    """

    __slots__ = ("delete", "folded", "id", "insert", "put", "read", "scan", "stale", "tick")

    def __init__(self, number: int, folded: str) -> None:
        self.id, self.folded, self.stale = number, folded, False
        self.read = f"SELECT body FROM t{number} WHERE key = ?"
        self.tick = f"SELECT ts FROM t{number} WHERE key = ?"
        self.scan = f"SELECT key, body FROM t{number} WHERE key >= ? AND key < ? ORDER BY key"
        self.insert = f"INSERT INTO t{number} VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        self.put = f"REPLACE INTO t{number} VALUES (?, ?, ?)"
        self.delete = f"DELETE FROM t{number} WHERE key = ?"


_KNOWN_MAX = 10_000


class Catalog:
    """
    Names of tables as one connection sees them, remembered until a table proves stale.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[str, Table] = {}

    def find(self, name: str) -> Table | None:
        """The table of that name in any letter case."""
        table = self._known.get(name)
        return self._look_up(name) if table is None or table.stale else table

    def _look_up(self, name: str) -> Table | None:
        table = look_up(self._connection, name.lower()) if name.isascii() else None
        if table is not None:
            # By the spelling that was used: folding it at every request would cost more. Spellings are many.
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[name] = table
        return table

    def forget(self, name: str) -> None:
        """The table of that name is no more."""
        folded = name.lower()
        for table in self._known.values():
            table.stale = table.stale or table.folded == folded


def look_up(connection: Connection, folded: str) -> Table | None:
    """The table of a name in lower case."""
    found = connection.execute("SELECT id FROM catalog WHERE folded = ?", (folded,)).get
    return None if found is None else Table(found, folded)


def names(connection: Connection) -> list[str]:
    """Names of all tables as created, ordered without regard to case."""
    return [name for (name,) in connection.execute("SELECT name FROM catalog ORDER BY folded")]


def create(connection: Connection, name: str) -> bool:
    """Create a table; False if there is one of that name in any letter case."""
    folded = name.lower()
    if look_up(connection, folded) is not None:
        return False
    connection.execute("INSERT INTO catalog (folded, name) VALUES (?, ?)", (folded, name))
    connection.execute(
        f"CREATE TABLE t{connection.last_insert_rowid()} "
        "(key BLOB PRIMARY KEY, ts INTEGER NOT NULL, body BLOB NOT NULL) WITHOUT ROWID, STRICT"
    )
    return True


def drop(connection: Connection, name: str) -> bool:
    """Free a table's name, in constant time; False if there is none."""
    table = look_up(connection, name.lower())
    if table is None:
        return False
    connection.execute("DELETE FROM catalog WHERE id = ?", (table.id,))
    connection.execute("DELETE FROM settings WHERE owner = ?", (table.id,))
    connection.execute(f"ALTER TABLE t{table.id} RENAME TO gone_{table.id}")
    return True


def gone(connection: Connection) -> str | None:
    """The physical name of a deleted table whose pages are not all given back yet."""
    sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'gone_*' LIMIT 1"
    found: str | None = connection.execute(sql).get
    return found


def reclaim(connection: Connection, name: str, rows: int) -> bool:
    """Give back the pages of up to `rows` rows of a deleted table; True when the table is no more."""
    last = connection.execute(f"SELECT key FROM {name} ORDER BY key LIMIT 1 OFFSET ?", (rows,)).get
    if last is None:
        connection.execute(f"DROP TABLE {name}")
        return True
    connection.execute(f"DELETE FROM {name} WHERE key < ?", (last,))
    return False
