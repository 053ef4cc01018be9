"""
Decision rows: whether a change that reaches other partitions was committed, and which rows it leaves to be made right.

The transaction that writes entities inserts the decision row of the change beside them, as committed. Whoever wants to
know what became of a change and finds no decision row inserts one that is void: then the change can never commit. So
whoever inserts the row first decides. A committed decision row is deleted when the rows that it names are right; a void
one stays, so that a late request of the change still finds it.

The row is in the partition of the entities. Its RowKey is `~o_` and the token of the change.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Self

import attrs
import msgspec

from ..connection.connection import Connection
from ..connection.rows import MOST_LOOKS, lost_look, read_row
from ..connection.tasks import map_together
from ..connection.translate import translate
from ..errors import DecodeError, LimitExceeded, ModelError, NotSupported, TableOrmError, shown
from ..models.manifest import ManifestEntry, parse_entry
from ..models.marker_rows import DECISION_HEAD, DECISION_KIND
from ..models.reserved import ENTITY_TYPE, WRITE_TOKENS
from ..protocol.codes import LOST_RACE, Code, Fault
from ..protocol.limits import MAX_VALUE_BYTES
from ..stores import Bounds, Operation, Row, RowAddress, RowQuery, Verb, row_keys
from .doorbell import TOKEN, AnyFormat, Begun

DECISION_ROWS = Bounds(DECISION_HEAD, DECISION_HEAD[:-1] + "`")
"""The RowKeys of decision rows."""

_FORMAT = 1
_STATE, _WORK, _PROGRESS, _ERROR, _TRIES = "State", "Work", "Progress", "Error", "Tries"
_LONGEST_ERROR = 4000  # characters that are kept
_COMMITTED, _VOID = "committed", "void"

_find_token = re.compile(TOKEN).search


def is_pending(row: Row) -> bool:
    """Return whether a row is the decision row of a change that workers have not completed."""
    return row.get(ENTITY_TYPE) == DECISION_KIND and row.get(_STATE) == _COMMITTED


def is_token(text: str) -> bool:
    """Return whether a text can be the token of a change."""
    return _find_token(text) is not None


class Work(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """
    What a change leaves to do for one entity.

    Args:
        kind: The kind of the entity with its version, as stored, or what stands for a workflow: it says who knows what
            to do.
        row_key: RowKey of the entity.
        entries: By name of the declaration, the manifest entries from before and after the change whose rows have to
            be made right.
        arguments: The arguments of a workflow that is to run, as JSON; None for other work.
    """

    kind: str
    row_key: str
    entries: Mapping[str, tuple[ManifestEntry, ...]] = {}
    arguments: str | None = None


@attrs.frozen(kw_only=True)
class Decision:
    """
    What became of a change.

    Args:
        partition_key: PartitionKey of the entities.
        token: The token of the change.
        works: What is left to do for each entity of the change; empty for a void change.
        progress: By number of the work, the next step of a workflow that has passed its first, None after its last, and
            the arguments of that step.
        error: Why workers have given up; None if they have not.
        tries: How many tries there were until then.
        timestamp: When the decision row was written last, by the service's clock; None if it was not stored yet.
        etag: ETag of the decision row; None if it was not stored yet.
    """

    partition_key: str
    token: str
    works: tuple[Work, ...] = ()
    progress: Mapping[int, tuple[str | None, Any]] = attrs.Factory(dict[int, tuple[str | None, Any]])
    error: str | None = None
    tries: int = 0
    timestamp: str | None = None
    etag: str | None = None

    @property
    def committed(self) -> bool:
        """Whether the change was committed; otherwise it never will be."""
        return bool(self.works)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the entities, each once."""
        return tuple(dict.fromkeys(work.kind for work in self.works))

    @property
    def has_workflows(self) -> bool:
        """Whether it starts workflows, which workers run."""
        return any(work.arguments is not None for work in self.works)

    @property
    def keys(self) -> Row:
        """The keys of its row. Raises ModelError if its token is none."""
        return {"PartitionKey": self.partition_key, "RowKey": decision_key(self.token)}

    def progress_row(self) -> Row:
        """
        Return the merge that notes how far workflows got.

        Raises:
            LimitExceeded: The arguments of their next steps are too large.
        """
        text = _encode([_Reached(n, step, given) for n, (step, given) in sorted(self.progress.items())]).decode()
        _check_size(
            text, f"the arguments of the next steps of the workflows of {self.token}", "return less from a step"
        )
        return {**self.keys, _PROGRESS: text}

    def to_row(self) -> Row:
        """
        Return the decision row. That of a void change carries no write token, which would say that it was written.

        Raises:
            ModelError: The token cannot be part of a key.
            LimitExceeded: The change leaves more to do than a row holds.
        """
        row = {**self.keys, ENTITY_TYPE: DECISION_KIND, _STATE: _COMMITTED if self.committed else _VOID}
        if self.committed:
            text = _encode(_StoredWorks(_FORMAT, list(map(_StoredWork.of, self.works)))).decode()
            _check_size(
                text,
                f"the change of {len(self.works)} entities of partition {self.partition_key!r} leaves rows in other "
                "partitions to be made right, or starts workflows; their keys and arguments",
                "write fewer entities in one transaction, or declare shorter keys",
            )
            row |= {WRITE_TOKENS: self.token, _WORK: text}
        return row


def _check_size(text: str, what: str, remedy: str) -> None:
    size = len(text.encode("utf-16-le"))
    if size > MAX_VALUE_BYTES:
        problem = f"{what} have {size} bytes, and {MAX_VALUE_BYTES} are allowed: {remedy}"
        raise LimitExceeded(problem, Code.PROPERTY_VALUE_TOO_LARGE)


class _StoredWork(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    kind: str
    row: str
    entries: dict[str, list[Any]]
    arguments: str | None = None

    @classmethod
    def of(cls, work: Work) -> Self:
        """Return what is stored of a piece of work."""
        entries = {name: [entry.to_json() for entry in some] for name, some in work.entries.items()}
        return cls(work.kind, work.row_key, entries, work.arguments)

    def work(self) -> Work:
        """Return the piece of work. Raises TypeError if it names no entries, or one nests too deeply."""
        if not all(self.entries.values()):
            raise TypeError("it names a declaration and no entries of it")
        entries = {name: tuple(map(parse_entry, some)) for name, some in self.entries.items()}
        return Work(kind=self.kind, row_key=self.row, entries=entries, arguments=self.arguments)


class _StoredWorks(msgspec.Struct, frozen=True, gc=False):
    """The JSON of the property `Work`. Another `format` is that of a newer program, and has other members."""

    format: int
    works: list[_StoredWork]


class _Reached(msgspec.Struct, frozen=True, gc=False):
    """The JSON of how far a workflow got."""

    work: int
    step: str | None
    arguments: Any


_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder(_StoredWorks).decode
_decode_progress = msgspec.json.Decoder(list[_Reached]).decode
_decode_format = msgspec.json.Decoder(AnyFormat).decode


def decision_key(token: str) -> str:
    """
    Return the RowKey of the decision row of a change.

    Raises:
        ModelError: The token is not 12 to 64 letters, digits, `-` and `_`.
    """
    if not is_token(token):
        raise ModelError(
            f"the token {shown(token)} is rejected: a token has 12 to 64 characters, which are letters without "
            "accents, digits, '-' and '_'"
        )
    return DECISION_HEAD + token


def decision_of(row: Row) -> Decision:
    """
    Return what a decision row says.

    Raises:
        NotSupported: A newer program has written it: leave it to one.
        DecodeError: It is damaged.
    """
    partition_key, row_key = row_keys(row)
    decision = Decision(
        partition_key=partition_key,
        token=row_key.removeprefix(DECISION_HEAD),
        error=row.get(_ERROR),
        tries=row.get(_TRIES, 0),
        timestamp=row.get("Timestamp"),
        etag=row.get("odata.etag"),
    )
    state, text = row.get(_STATE), row.get(_WORK)
    if state == _VOID:
        return decision
    problem = f"is a decision row with {shown(state)} as {_STATE}"
    if not is_token(decision.token):
        problem = "is a decision row whose RowKey has no token"
    elif state == _COMMITTED and isinstance(text, str):
        try:
            steps = _refuse_long(row.get(_PROGRESS, "[]"))
            found = _decode_format(_refuse_long(text)).format
            if found > _FORMAT:
                raise NotSupported(
                    f"the decision row ({partition_key!r}, {row_key!r}) has the format {found}, and this program knows "
                    f"{_FORMAT}; leave it to a newer program, or update this one"
                )
            works = tuple(each.work() for each in _decode(text).works)
            progress = {each.work: (each.step, each.arguments) for each in _decode_progress(steps)}
            return attrs.evolve(decision, works=works, progress=progress)
        except (msgspec.DecodeError, TypeError, RecursionError) as error:
            problem = f"is a decision row whose {_WORK} or {_PROGRESS} cannot be read ({error})"
    raise DecodeError(
        f"{problem}; if nobody works on it any more, run `tableorm audit --repair` and delete it",
        DECISION_KIND,
        (partition_key, row_key),
    )


def _refuse_long(text: Any) -> Any:
    """Return a JSON text. Raises TypeError if no String is as long: it would become very many objects."""
    if len(text) > MAX_VALUE_BYTES // 2:
        raise TypeError("it is longer than a String")
    return text


# In a table


async def read_decision(db: Connection, table: str, partition_key: str, token: str) -> Decision | None:
    """Read the decision of a change; None if there is none. Raises what `decision_of` raises."""
    row = await read_row(db, RowAddress(table, partition_key, decision_key(token)), name=DECISION_KIND)
    return None if row is None else decision_of(row)


async def read_decisions(db: Connection, table: str, partition_key: str) -> list[Decision]:
    """Read the decisions on all changes of a partition of which something is left. Raises what `decision_of` raises."""
    query = RowQuery(Bounds.only(partition_key), DECISION_ROWS)
    what = f"query of the decision rows of partition {partition_key!r}"
    found = [decision_of(row) async for row in db.read_rows(what, table, query, model=DECISION_KIND)]
    return [each for each in found if each.committed]


async def settle_decision(db: Connection, table: str, partition_key: str, token: str) -> Decision:
    """
    Return the decision of a change. If there is none, the change is made void, so that it can never commit.

    Raises:
        NotSupported: A newer program has decided; leave it to one.
        DecodeError: The decision row is damaged.
        LostRace: There was one whenever it was inserted, and none whenever it was read.
        TableOrmError: The store refused it, or did not answer: then nobody knows yet; ask again.
    """
    void = Decision(partition_key=partition_key, token=token)
    for _ in range(MOST_LOOKS):
        found = await read_decision(db, table, partition_key, token)
        if found is not None:
            return found
        insert, what = Operation(Verb.INSERT, void.to_row()), f"insert of the decision row of {token}"
        etag = await write_decision(db, table, insert, what)
        if etag is not None:  # otherwise another writer has decided
            return attrs.evolve(void, etag=etag)
    raise lost_look(f"the decision row of {token} in table {table}")


async def delete_decision(db: Connection, table: str, decision: Decision) -> None:
    """
    Delete a committed decision row whose rows are right; nothing happens if it is gone.

    Raises:
        TableOrmError: The store refused it, or did not answer: the decision row may still be there.
    """
    await write_decision(db, table, _deletion(decision), f"delete of the decision row {DECISION_HEAD}{decision.token}")


async def delete_decisions(db: Connection, table: str, decisions: Sequence[Decision]) -> list[TableOrmError | None]:
    """Delete what `delete_decision` deletes, of one partition, and return what went wrong with each."""
    if len(decisions) > 1:
        store, _ = db.sending("transaction", DECISION_KIND)
        try:
            await store.transact(table, list(map(_deletion, decisions)))
        except Fault:
            pass  # one of them may be gone: each by itself tells
        else:
            return [None] * len(decisions)

    async def delete(decision: Decision) -> TableOrmError | None:
        try:
            await delete_decision(db, table, decision)
        except TableOrmError as error:
            return error
        return None

    return await map_together(delete, decisions)


def _deletion(decision: Decision) -> Operation:
    keys = {"PartitionKey": decision.partition_key, "RowKey": DECISION_HEAD + decision.token}
    return Operation(Verb.DELETE, keys, decision.etag or "*")


async def write_decision(db: Connection, table: str, operation: Operation, what: str) -> str | None:
    """
    Write a decision row as it was read, and return its ETag, "" for a delete; None if it is not as it was, or is gone.
    A delete of a row that has changed is rejected.

    Args:
        db: Where it is.
        table: Its table.
        operation: The write.
        what: What is done, for messages.

    Raises:
        TableOrmError: The store refused it for another reason, or did not answer.
    """
    store, _ = db.sending(operation.verb, DECISION_KIND)
    try:
        return await store.write(table, operation) or ""
    except Fault as fault:
        changed = operation.verb is Verb.DELETE and fault.code == Code.CONDITION_NOT_SATISFIED
        if changed or fault.code not in LOST_RACE:
            raise translate(fault, what, table) from None
    return None


async def insert_failure(db: Connection, table: str, decision: Decision) -> None:
    """
    Insert the decision row of what workers have given up and no transaction has begun; if it is there, note the error.

    Args:
        db: Where the table is.
        table: The table.
        decision: What is left to do, with the error and the number of tries.

    Raises:
        TableOrmError: The store refused it, or did not answer.
    """
    error, tries = str(decision.error), decision.tries
    row = {**decision.to_row(), **_failure(error, tries)}
    what = f"insert of the decision row of {decision.token}"
    if await write_decision(db, table, Operation(Verb.INSERT, row), what) is None:
        begun = Begun(table=table, partition_key=decision.partition_key, token=decision.token)
        await note_failure(db, begun, error, tries)


def _failure(error: str, tries: int) -> Row:
    return {_ERROR: error[:_LONGEST_ERROR], _TRIES: tries}


async def note_failure(db: Connection, change: Begun, error: str, tries: int) -> None:
    """
    Write into a decision row why workers have given up; nothing happens if there is none.

    Args:
        db: Where the table is.
        change: The change.
        error: Why the last try failed.
        tries: How many tries there were.

    Raises:
        TableOrmError: The store refused it, or did not answer.
    """
    keys = {"PartitionKey": change.partition_key, "RowKey": decision_key(change.token)}
    row = {**keys, **_failure(error, tries)}
    what = f"merge of the decision row {keys['RowKey']}"
    await write_decision(db, change.table, Operation(Verb.MERGE, row, "*"), what)
