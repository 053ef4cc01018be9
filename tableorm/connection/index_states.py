"""
States of indexes and index lists: the store says whether each entity has its entry, or is in its list.

Each declaration has a row of its own in a table of the mapper, named by a hash of what is declared. A row that says
"write-only", or is missing, becomes one that says "readable", never the other way round. So a state that was read late
does no harm: a program that knows that an index is readable asks no more, others ask again after a minute. A changed
declaration has another row.
"""

import asyncio
import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Literal

import attrs

from ..errors import AccessDenied, NotSupported, TableNotFound
from ..models.index_declaration import IndexDeclaration
from ..models.reserved import UPKEEP_TABLE
from ..protocol.codes import Code, Fault
from ..protocol.filters import Filter
from ..protocol.limits import MAX_TRANSACTION_OPERATIONS
from ..stores import Bounds, Operation, RetryBudget, Row, RowQuery, Verb
from .connection import Connection
from .rows import time_of
from .translate import translate

_PARTITION = "index states"
_ASK_AGAIN = 60.0
_MOST_MADE = 5  # times that a write makes the table, which somebody may delete meanwhile
_WHAT = "states of indexes"

_State = Literal["write-only", "readable"]


@attrs.frozen(kw_only=True)
class IndexState:
    """
    What the store has recorded about an index or index list.

    Args:
        model: The name of the model.
        declaration: The name of the declaration.
        table: The table of the entities.
        entry_table: The table of the entries or lists; for lists in blobs, that of the entities.
        state: "write-only" if it may be incomplete, so that no query uses it; "readable" if it is complete.
        since: When that was recorded.
        digest: Identifies what was declared.
    """

    model: str
    declaration: str
    table: str
    entry_table: str
    state: _State
    since: dt.datetime
    digest: str

    def __str__(self) -> str:
        return (
            f"{self.model}.{self.declaration} of table {self.table}: {self.state} since {self.since:%Y-%m-%d %H:%M} UTC"
        )


# Reading


async def load_states(db: Connection, what: str = _WHAT) -> list[IndexState]:
    """
    Read the states of all indexes, sorted by model and name. The connection remembers which are readable.

    Args:
        db: The database.
        what: What they are read for, for messages.

    Raises:
        AccessDenied: The token of the connection does not open the table of the states.
    """
    known, begun = db.known_states, asyncio.get_running_loop().time()
    rows: list[Row] = []
    with suppress(TableNotFound):
        rows = [row async for row in db.read_rows(what, UPKEEP_TABLE, RowQuery(Bounds.only(_PARTITION)))]
    found = sorted(map(_read_state, rows), key=lambda state: (state.model, state.declaration, state.digest))
    known.readable.update(state.digest for state in found if state.state == "readable")
    known.asked, known.denied = begun, False
    return found


async def find_unreadable(db: Connection, declarations: Iterable[IndexDeclaration]) -> list[IndexDeclaration]:
    """
    Return those of some indexes that must not be read. The store is asked if one of them is not known to be readable,
    unless it was asked a short time ago.
    """
    known = db.known_states
    found = [each for each in declarations if each.digest not in known.readable]
    if not found:
        return found
    async with known.lock:
        now = asyncio.get_running_loop().time()
        if known.asked is None or now - known.asked >= _ASK_AGAIN:
            try:
                await load_states(db)
            except AccessDenied:
                known.asked, known.denied = now, True
    return [each for each in found if each.digest not in known.readable]


def known_unreadable(
    db: Connection | None, declarations: Iterable[IndexDeclaration], *, assumed: bool
) -> list[IndexDeclaration]:
    """
    Return those of some indexes that are not known to be readable. Nothing is sent.

    Args:
        db: The connection; None for a query that has none.
        declarations: The indexes.
        assumed: Whether they count as readable as long as the store was not asked.
    """
    known = None if db is None else db.known_states
    if assumed and (known is None or known.asked is None):
        return []
    return [each for each in declarations if known is None or each.digest not in known.readable]


def not_readable(db: Connection | None, declaration: IndexDeclaration) -> NotSupported:
    """Return the error that refuses to read by an index or a list."""
    if db is not None and db.known_states.denied:
        return NotSupported(
            f"{declaration} is not read: table {UPKEEP_TABLE} records whether it is complete, and the token of this "
            "database does not open that table; declare it with building=False if it is complete"
        )
    return NotSupported(
        f"{declaration} is not read: the store does not record it as complete, so entities of table "
        f"{declaration.table} may be missing in it. For a new table, db.create_tables({declaration.model}) records "
        f"that; for an existing one, run db.build_index({declaration}, no_older_writers=True) once every program "
        "that writes such entities declares it, or declare it with building=False if it is complete"
    )


def _read_state(row: Row) -> IndexState:
    return IndexState(
        model=str(row.get("Model")),
        declaration=str(row.get("Declaration")),
        table=str(row.get("Table")),
        entry_table=str(row.get("EntryTable")),
        state="readable" if row.get("State") == "readable" else "write-only",
        since=time_of(row, _WHAT),
        digest=row["RowKey"],
    )


# Writing


async def make_readable(db: Connection, declarations: Collection[IndexDeclaration]) -> None:
    """
    Let indexes be read from now on, by every program that declares them as they are declared here.

    Args:
        db: The database.
        declarations: The indexes. Each entity has its entry in them, and nobody writes entities without entries.

    Raises:
        AccessDenied: Not permitted.
    """
    operations = [Operation(Verb.INSERT_OR_REPLACE, _make_row(each, "readable")) for each in declarations]
    for start in range(0, len(operations), MAX_TRANSACTION_OPERATIONS):
        await write_records(db, operations[start : start + MAX_TRANSACTION_OPERATIONS])
    db.known_states.readable.update(each.digest for each in declarations)


async def note_declarations(
    db: Connection, declarations: Mapping[IndexDeclaration, Filter | None], created: Collection[str]
) -> None:
    """
    Note the states of indexes after their tables were made. Those of tables that this connection has made, and that
    have no entities of the model, are readable; others are write-only until they are built.

    Args:
        db: The database.
        declarations: The indexes that leave their state to the store, with the condition that rows of entities satisfy.
        created: The tables that were made just now.

    Raises:
        AccessDenied: Not permitted.
    """
    known, new = db.known_states, list[IndexDeclaration]()
    for each, where in declarations.items():
        ours = {each.table.lower(), each.entry_table.lower()} <= known.created and each.digest not in known.readable
        if ours and (each.table in created or not await _has_rows(db, each.table, where)):
            new.append(each)
    if new:
        await db.create_table(UPKEEP_TABLE)
        await make_readable(db, new)
    if all(each.digest in known.readable for each in declarations):
        return
    with suppress(AccessDenied):  # what is noted here is for people to see
        listed = {state.digest for state in await load_states(db)}
        missing = [each for each in declarations if each.digest not in listed]
        for each in missing:
            await write_records(db, [Operation(Verb.INSERT, _make_row(each, "write-only"))], {Code.ENTITY_EXISTS})
        if missing:  # who has made the tables a moment ago may be about to say that they are readable
            known.asked = None


async def _has_rows(db: Connection, table: str, where: Filter | None) -> bool:
    """Return whether a table has any row that satisfies a condition."""
    async with aclosing(db.read_rows(_WHAT, table, RowQuery(where=where), 1)) as rows:
        return await anext(rows, None) is not None


async def forget_table(db: Connection, table: str, states: Iterable[IndexState]) -> None:
    """
    Delete the states of the indexes of a table, and of those that have their entries in it, before it is deleted.

    Raises:
        AccessDenied: Not permitted.
    """
    db.known_states.created.discard(table.lower())
    for state in states:
        if table.lower() in (state.table.lower(), state.entry_table.lower()):
            row = {"PartitionKey": _PARTITION, "RowKey": state.digest}
            await write_records(db, [Operation(Verb.DELETE, row, "*")], {Code.RESOURCE_NOT_FOUND})
            db.known_states.readable.discard(state.digest)


def _make_row(declaration: IndexDeclaration, state: _State) -> Row:
    return {
        "PartitionKey": _PARTITION,
        "RowKey": declaration.digest,
        "Model": declaration.model,
        "Declaration": declaration.name,
        "Table": declaration.table,
        "EntryTable": declaration.entry_table,
        "State": state,
    }


async def write_records(
    db: Connection, operations: Sequence[Operation], done: Collection[str] = (), what: str = _WHAT
) -> None:
    """
    Send a transaction, make the table if it is missing, and send it again after a failure that passes or a lost reply.

    Args:
        db: The database.
        operations: What is written; twice is as good as once.
        done: Codes of refusals that say that there is nothing to do.
        what: What is written, for messages.

    Raises:
        AccessDenied: Not permitted.
    """
    budget, repeated = RetryBudget(db.retry), db.store.capabilities.retries
    made = 0
    while True:
        store, _ = db.sending("transaction", "")
        try:
            await store.transact(UPKEEP_TABLE, operations)
        except Fault as fault:
            if fault.code == Code.TABLE_NOT_FOUND and made < _MOST_MADE:
                await db.create_table(UPKEEP_TABLE)
                made += 1
            elif fault.code in done:
                return
            elif not fault.transient or (repeated and not fault.doubt) or not await budget.another(fault):
                raise translate(fault, what, UPKEEP_TABLE) from None
        else:
            return
