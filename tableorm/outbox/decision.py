"""
Decision rows: whether a change that reaches other partitions was committed, and which rows it leaves to be made right.

The transaction that writes an entity inserts the decision row of the change beside it, as committed. Whoever wants to
know what became of a change and finds no decision row inserts one that is void: then the change can never commit. So
whoever inserts the row first decides. A committed decision row is deleted when the rows that it names are right; a void
one stays, so that a late request of the change still finds it.

The row is in the entity's partition. Its RowKey is `~o_` and the token of the change, which is its write token too.
"""

import re
from collections.abc import Mapping
from typing import Any

import attrs
import msgspec

from ..connection.connection import Connection
from ..connection.rows import read_row
from ..connection.translate import translate
from ..errors import DecodeError, LimitExceeded, ModelError, NotSupported, shown
from ..models.manifest import ManifestEntry, parse_entry
from ..models.marker_rows import DECISION_HEAD, DECISION_KIND
from ..models.reserved import ENTITY_TYPE, WRITE_TOKENS
from ..protocol.codes import Code, Fault
from ..protocol.limits import MAX_VALUE_BYTES
from ..stores import Operation, Row, Verb
from .doorbell import Doorbell

__all__ = [
    "Decision",
    "decision_key",
    "decision_of",
    "delete_decision",
    "note_failure",
    "read_decision",
    "settle_decision",
]

_FORMAT = 1
_STATE, _WORK, _ERROR, _TRIES = "State", "Work", "Error", "Tries"
_LONGEST_ERROR = 4000  # characters that are kept
_COMMITTED, _VOID = "committed", "void"

_TOKEN = re.compile(r"[A-Za-z0-9_-]{12,64}")


@attrs.frozen(kw_only=True)
class Decision:
    """
    What became of a change.

    Args:
        partition_key: PartitionKey of the entity.
        token: The token of the change.
        kind: The kind of the entity with its version, as stored: it says who knows what to do. None for a void change.
        row_key: RowKey of the entity; None for a void change.
        entries: By name of the declaration, the manifest entries from before and after the change whose rows have to
            be made right; empty for a void change.
        error: Why workers have given up; None if they have not.
        etag: ETag of the decision row; None if it was not stored yet.
    """

    partition_key: str
    token: str
    kind: str | None = None
    row_key: str | None = None
    entries: Mapping[str, tuple[ManifestEntry, ...]] = attrs.Factory(dict[str, tuple[ManifestEntry, ...]])
    error: str | None = None
    etag: str | None = None

    @property
    def committed(self) -> bool:
        """Whether the change was committed; otherwise it never will be."""
        return self.kind is not None

    def to_row(self) -> Row:
        """
        Return the decision row.

        Raises:
            ModelError: The token cannot be part of a key.
            LimitExceeded: The change leaves more to do than a row holds.
        """
        row: Row = {
            "PartitionKey": self.partition_key,
            "RowKey": decision_key(self.token),
            ENTITY_TYPE: DECISION_KIND,
            WRITE_TOKENS: self.token,
            _STATE: _COMMITTED if self.committed else _VOID,
        }
        if self.committed:
            entries = {name: [each.to_json() for each in some] for name, some in self.entries.items()}
            text = _encode(_Work(_FORMAT, str(self.kind), str(self.row_key), entries)).decode()
            size = len(text.encode("utf-16-le"))
            if size > MAX_VALUE_BYTES:
                raise LimitExceeded(
                    f"the change of {self.kind} ({self.partition_key!r}, {self.row_key!r}) leaves rows of "
                    f"{len(entries)} declarations in other partitions to be made right; their keys have {size} bytes, "
                    f"and {MAX_VALUE_BYTES} are allowed: declare fewer of these, or shorter keys",
                    Code.PROPERTY_VALUE_TOO_LARGE,
                )
            row[_WORK] = text
        return row


class _Work(msgspec.Struct, frozen=True, gc=False):
    """The JSON of the property `Work`. Another `format` is that of a newer program, and has other members."""

    format: int
    kind: str
    row: str
    entries: dict[str, list[Any]]


class _AnyFormat(msgspec.Struct, frozen=True, gc=False):
    format: int


_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder(_Work).decode
_decode_format = msgspec.json.Decoder(_AnyFormat).decode


def decision_key(token: str) -> str:
    """
    Return the RowKey of the decision row of a change.

    Raises:
        ModelError: The token is not 12 to 64 letters, digits, `-` and `_`.
    """
    if not _TOKEN.fullmatch(token):
        raise ModelError(
            f"the token {shown(token)} is refused: a token has 12 to 64 characters, which are letters without accents, "
            "digits, '-' and '_'"
        )
    return DECISION_HEAD + token


def decision_of(row: Row) -> Decision:
    """
    Return what a decision row says.

    Raises:
        NotSupported: A newer program has written it: leave it to one.
        DecodeError: It is damaged.
    """
    partition_key, row_key = row["PartitionKey"], row["RowKey"]
    decision = Decision(
        partition_key=partition_key,
        token=row_key.removeprefix(DECISION_HEAD),
        error=row.get(_ERROR),
        etag=row.get("odata.etag"),
    )
    state, text = row.get(_STATE), row.get(_WORK)
    if state == _VOID:
        return decision
    problem = f"is a decision row with {shown(state)} as {_STATE}"
    if state == _COMMITTED and isinstance(text, str):
        try:
            found = _decode_format(text).format
            if found > _FORMAT:
                raise NotSupported(
                    f"the decision row ({partition_key!r}, {row_key!r}) has the format {found}, and this program knows "
                    f"{_FORMAT}; leave it to a newer program, or update this one"
                )
            work = _decode(text)
            entries = {name: tuple(map(parse_entry, some)) for name, some in work.entries.items()}
            return attrs.evolve(decision, kind=work.kind, row_key=work.row, entries=entries)
        except (msgspec.DecodeError, TypeError, RecursionError) as error:
            problem = f"is a decision row whose {_WORK} cannot be read ({error})"
    raise DecodeError(
        f"{problem}; if nobody works on it any more, run `tableorm audit --repair` and delete it",
        DECISION_KIND,
        (partition_key, row_key),
    )


# In a table


async def read_decision(db: Connection, table: str, partition_key: str, token: str) -> Decision | None:
    """Read the decision of a change; None if there is none. Raises what `decision_of` raises."""
    row = await read_row(db, table, partition_key, decision_key(token), name=DECISION_KIND)
    return None if row is None else decision_of(row)


async def settle_decision(db: Connection, table: str, partition_key: str, token: str) -> Decision:
    """
    Return the decision of a change. If there is none, the change is made void, so that it can never commit.

    Raises:
        NotSupported: A newer program has decided; leave it to one.
        DecodeError: The decision row is damaged.
        TableOrmError: The store refused it, or did not answer: then nobody knows yet; ask again.
    """
    void = Decision(partition_key=partition_key, token=token)
    while True:
        found = await read_decision(db, table, partition_key, token)
        if found is not None:
            return found
        store, _ = db.sending("insert", DECISION_KIND)
        try:
            etag = await store.write(table, Operation(Verb.INSERT, void.to_row()))
        except Fault as fault:
            if fault.code != Code.ENTITY_EXISTS:
                raise translate(fault, f"insert of the decision row of {token}", table) from fault
            continue  # somebody else has decided
        return attrs.evolve(void, etag=etag)


async def delete_decision(db: Connection, table: str, decision: Decision) -> None:
    """
    Delete a committed decision row whose rows are right; nothing happens if it is gone.

    Raises:
        TableOrmError: The store refused it, or did not answer: the decision row may still be there.
    """
    keys = {"PartitionKey": decision.partition_key, "RowKey": decision_key(decision.token)}
    await _write(db, table, Operation(Verb.DELETE, keys, decision.etag))


async def _write(db: Connection, table: str, operation: Operation) -> None:
    """Write a decision row; nothing happens if it is gone."""
    store, _ = db.sending(operation.verb, DECISION_KIND)
    try:
        await store.write(table, operation)
    except Fault as fault:
        if fault.code not in (Code.RESOURCE_NOT_FOUND, Code.ENTITY_NOT_FOUND):
            raise translate(fault, f"{operation.verb} of the decision row {operation.row['RowKey']}", table) from fault


async def note_failure(db: Connection, doorbell: Doorbell, error: str, tries: int) -> None:
    """
    Write into a decision row why workers have given up; nothing happens if there is none.

    Args:
        db: Where the table is.
        doorbell: The message of the change.
        error: Why the last try failed.
        tries: How many tries there were.

    Raises:
        TableOrmError: The store refused it, or did not answer.
    """
    keys = {"PartitionKey": doorbell.partition_key, "RowKey": decision_key(doorbell.token)}
    row = {**keys, _ERROR: error[:_LONGEST_ERROR], _TRIES: tries}
    await _write(db, doorbell.table, Operation(Verb.MERGE, row, "*"))
