"""
Damage: checks of what a file holds, which somebody else may have made. Opening it checks only what lists others.
"""

import datetime as dt

import apsw

from . import blobs, catalog, queues
from .sqlite import Connection, bound_statements
from .stored_settings import MAX_BYTES
from .write_session import moment, now

__all__ = ["clock_ahead", "find_damage", "find_damaged_page", "last_number"]

# A file opens as long as there are numbers left for what is inserted. A file from somebody else must have so many left
# that they are never used up.
_MOST_NUMBERS = 1 << 61
# No clock that was set wrong by mistake is farther ahead, also if that of this machine begins in 1970.
_MOST_YEARS = 100

# A row that one of these statements finds is damage. What is in it has no owner, and would belong to what is made next;
# or two own it; or it is in the way of what is written later.
_FINDS = (
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
        "the setting {!r} is too large",
        f"SELECT substr(name, 1, 80) FROM settings WHERE length(value) > {MAX_BYTES}",  # noqa: S608
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
_LAST_NUMBER = (
    "SELECT max(coalesce((SELECT max(seq) FROM sqlite_sequence WHERE name = '{0}'), 0), "
    "coalesce((SELECT max(id) FROM {0}), 0))"
)


def find_damage(connection: Connection) -> str | None:
    """
    Check the whole file: that each page has one owner, that nothing waits for a queue, container or table that is yet
    to be made, that all messages and blobs can be read and deleted, and that there is time and are numbers for others.

    Returns:
        What is wrong.
    """
    # It comes to its end, since it visits no page twice, and a file may be of any size.
    connection.set_progress_handler(None)
    try:
        # First the pages: the others believe what these say.
        return (
            find_damaged_page(connection, "1")
            or _find_odd_setting(connection)
            or catalog.find_large_row(connection)
            or _find_row(connection)
            or queues.find_damage(connection)
            or blobs.find_damage(connection)
            or _find_end(connection)
        )
    finally:
        bound_statements(connection)


def find_damaged_page(connection: Connection, what: str) -> str | None:
    """Check the pages and indexes of a table, or of all. Return what is wrong."""
    found = connection.execute(f"PRAGMA integrity_check({what})")
    problem: str = next(iter(found))[0]
    found.close()
    return None if problem == "ok" else problem


def last_number(connection: Connection, table: str) -> object:
    """Return the greatest number that a table, of those that number their rows, has given or holds."""
    return connection.execute(_LAST_NUMBER.format(table)).get


def clock_ahead(connection: Connection) -> dt.timedelta:
    """Return how far the clock of the file is ahead of this machine's."""
    return _clock(connection) - moment(now())


def _clock(connection: Connection) -> dt.datetime:
    return moment(connection.execute("SELECT tick FROM clock").get)


def _find_odd_setting(connection: Connection) -> str | None:
    """Let SQLite read the schema once more, as when a table is deleted: only then it looks at some of the settings."""
    connection.execute("PRAGMA writable_schema = RESET")
    try:
        connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1")
    except apsw.SQLError as error:
        return str(error)
    return None


def _find_row(connection: Connection) -> str | None:
    for problem, sql in _FINDS:
        found = connection.execute(sql + " LIMIT 1").get
        if found is not None:
            return problem.format(found)
    return None


def _find_end(connection: Connection) -> str | None:
    """Look for a clock or numbers that come to their end. Return what is wrong."""
    for table in ("catalog", "queues", "messages", "containers"):
        last: object = last_number(connection, table)
        if not isinstance(last, int) or last > _MOST_NUMBERS:
            return f"{table} has given the number {last}, and few would be left"
    if clock_ahead(connection) > dt.timedelta(days=_MOST_YEARS * 365):
        return f"its clock is at {_clock(connection):%Y-%m-%d}"
    return None
