"""
Damage: checks of a whole file, which `tableorm check` makes.
"""
# ruff: noqa: S608 - the only names in statements are those of tables, made of numbers

from tableorm.errors import shown
from tableorm.protocol.edm import etag_from_ticks
from tableorm.stores import row_keys

from .catalog import key_of
from .faults import DAMAGE
from .sqlite import Connection
from .writes import decode

_ETAG_LENGTH = len(etag_from_ticks(0))
_TABLES = "SELECT name, 't' || id FROM catalog ORDER BY name"

# A row that one of these statements finds is damage: what is in it has no owner, or two own it.
_FINDS = (
    (
        "the table {!r} is in its catalog, but has no rows' table",
        "SELECT name FROM catalog WHERE 't' || id NOT IN (SELECT name FROM sqlite_schema)",
    ),
    (
        "it holds messages of a queue with the number {}, which is not there",
        "SELECT queue FROM messages WHERE queue NOT IN (SELECT id FROM queues)",
    ),
    (
        "it holds blobs of a container with the number {}, which is not there",
        "SELECT container FROM blobs WHERE container NOT IN (SELECT id FROM containers)",
    ),
    (
        "it holds settings of a table with the number {}, which is not there",
        "SELECT owner FROM settings WHERE owner <> 0 AND owner NOT IN (SELECT id FROM catalog)",
    ),
    (
        "the blob {!r} shares its content with another one",
        "SELECT substr(min(name), 1, 80) FROM blobs GROUP BY content HAVING count(*) > 1",
    ),
    (
        "the content of the blob {!r} will be deleted",
        "SELECT substr(name, 1, 80) FROM blobs WHERE content NOT IN (SELECT id FROM contents WHERE until IS NULL)",
    ),
    (
        "a blob has bytes that overlap, or a gap, in the content {}",
        """SELECT content FROM (
            SELECT content, start, length(data) AS size,
                sum(length(data)) OVER (PARTITION BY content ORDER BY start) AS through
            FROM chunks WHERE content IN (SELECT content FROM blobs)
        ) WHERE size = 0 OR start <> through - size""",
    ),
    (
        "the blob {!r} has not as many bytes as it says",
        """SELECT substr(name, 1, 80) FROM blobs WHERE length <> (
            SELECT coalesce(sum(length(data)), 0) FROM chunks WHERE chunks.content = blobs.content
        )""",
    ),
)


def find_damage(connection: Connection) -> str | None:
    """
    Check the pages and indexes of a whole file, then what the engine itself relies on: each row can be read and is
    stored under its own keys, and each message, blob and setting has an owner.

    Returns:
        What is wrong.
    """
    # First the pages: the others believe what these say.
    problem: str = next(iter(connection.execute("PRAGMA integrity_check(1)")))[0]
    if problem != "ok":
        return problem
    return _find_orphan(connection) or _find_unreadable(connection)


def _find_orphan(connection: Connection) -> str | None:
    for problem, sql in _FINDS:
        found = connection.execute(sql + " LIMIT 1").get
        if found is not None:
            return problem.format(found)
    return None


def _find_unreadable(connection: Connection) -> str | None:
    for name, table in list(connection.execute(_TABLES)):
        for key, body in connection.execute(f'SELECT key, body FROM "{table}"'):
            problem = _problem_of(key, body)
            if problem is not None:
                return f"a row of the table {name!r}, stored under {shown(key)}, {problem}"
    return None


def _problem_of(key: bytes, body: bytes) -> str | None:
    """Return what is wrong with a stored row."""
    try:
        row = decode(body)
        keys = row_keys(row)
        if key_of(*keys) != key:
            return f"says that its keys are {shown(keys)}"
        etag = row["odata.etag"]
        if len(etag) != _ETAG_LENGTH or "*" in etag:
            return f"has the ETag {shown(etag)}"
    except DAMAGE as error:
        return f"cannot be read ({error})"
    return None
