"""
What a write is on its way to the store: frozen values.

Those that are made for each row are structs of msgspec: a frozen attrs class takes eight times as long to make. None of
these is ever part of a cycle, so that the garbage collector need not look at them (`gc=False`).
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum, auto
from typing import Any, NamedTuple, NoReturn

import msgspec
from msgspec import structs

from ..errors import TableOrmError, TransactionFailed
from ..models.marker_rows import MoveMark
from ..models.schema import FieldInfo, Schema
from ..outbox.decision import Decision, Work
from ..outbox.shared_bell import SharedBell
from ..protocol.codes import Fault
from ..stores import Operation, Row, RowAddress
from .patch import Known, Patch, Value


class Mode(StrEnum):
    """What a change does to its row, whatever verb the user called."""

    INSERT = auto()
    SAVE = auto()
    MERGE = auto()
    REPLACE = auto()
    UPSERT_MERGE = auto()
    UPSERT_REPLACE = auto()
    DELETE = auto()
    GUARD = auto()
    REBUILD = auto()


UPSERTS = (Mode.UPSERT_MERGE, Mode.UPSERT_REPLACE)
"""Modes that insert a row, or write over the one that is there."""

BLIND = (Mode.INSERT, *UPSERTS)
"""Modes that need no ETag."""


class Filled(NamedTuple):
    """A value that a write makes for a field, and the one that the subject had when it was made."""

    value: Any
    over: Any

    def stands(self, own: Any) -> bool:
        """Return whether the subject, which has this value now, has got no other one since."""
        return own is self.over or (type(own) is type(self.over) and bool(own == self.over))


class Change(Value, frozen=True, kw_only=True):
    """
    A verb and what it is applied to.

    Args:
        verb: As the user called it: "insert", "save", "modify".
        mode: What it does to the row.
        subject: The entity, bag or key.
        schema: Its schema; None for bags and keys of bags.
        address: Where the row is, or is to be.
        patch: What it changes, against what the subject remembers of the row.
        if_match: ETag to send, "*", or None for what needs none.
        values: The fields of the entity when the verb was called, by name; empty for bags and keys.
        made: Those of the values that the write itself made, by name, for the entity to get when it has succeeded.
        before: What the subject remembers of the stored row; None if nothing.
        stored: What is known of the stored row: what was read for this write, or else `before`.
        shown: The row as the subject shows it, of which a later write is the difference; None for a key.
        weight: Characters of all that varies in size in `shown`; None if they were not counted.
        only: Names of the fields, or properties of a bag, to merge; None for all. For a rebuild the names of indexes.
        repeat: Whether it, and what it was joined with, may be sent again after a lost reply.
        exist_ok: Whether an insert that finds a row leaves it as it is; what was joined with the insert is left out.
        counts: Whether a rebuild changes counts and sums too, and not the entity's note of them alone.
        mark: What the row is to say of a move between partitions that the change is a step of; None if it is not.
    """

    verb: str
    mode: Mode
    subject: Any
    schema: Schema | None
    address: RowAddress
    patch: Patch
    if_match: str | None = None
    values: Mapping[str, Any] = {}
    made: dict[str, Filled] | None = None
    before: Known | None = None
    stored: Known | None = None
    shown: Row | None = None
    weight: int | None = None
    only: tuple[str, ...] | None = None
    repeat: bool = True
    exist_ok: bool = False
    counts: bool = False
    mark: MoveMark | None = None

    @property
    def table(self) -> str:
        """Name of the table."""
        return self.address.table

    @property
    def partition_key(self) -> str:
        """PartitionKey of the row, as stored or to be stored."""
        return self.address.partition_key

    @property
    def row_key(self) -> str:
        """RowKey of the row, as stored or to be stored."""
        return self.address.row_key

    @property
    def model(self) -> str:
        """Name of the model."""
        return "PropertyBag" if self.schema is None else self.schema.name

    @property
    def stored_row(self) -> Row | None:
        """The stored row, as far as it is known."""
        return None if self.stored is None else self.stored.row

    @property
    def is_read(self) -> bool:
        """Whether the row was read for this write."""
        return self.stored is not self.before

    @property
    def is_unseen(self) -> bool:
        """Whether the row may be another version than the subject remembers."""
        return self.before is None or self.before.proof is None

    @property
    def is_copied(self) -> bool:
        """Whether the subject was read from an index entry, so that its row has to be read first."""
        return self.before is not None and isinstance(self.before.proof, frozenset)

    def __str__(self) -> str:
        return f"{self.verb} of {self.model} ({self.partition_key!r}, {self.row_key!r})"


class SendOptions(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """
    How a plan is sent.

    The garbage collector looks at them, because they may be part of a cycle: they hold methods of a bulk, which holds
    its errors, whose tracebacks hold the options.

    Args:
        transaction: Whether the user asked for a transaction, and gets its errors.
        repeat: Whether a request may be sent again that may have had its effect.
        missing_ok: Whether a row that is gone counts as deleted.
        sending: Called when the plan is sent, and not when the request is repeated.
        throttled: Called whenever the store refuses because it is asked for too much.
        patient: Whether a row that has to be known is read again if the store refuses that for now.
        bell: Rings for workers; None for a bell of its own.
    """

    transaction: bool = False
    repeat: bool = True
    missing_ok: bool = False
    sending: Callable[[], None] | None = None
    throttled: Callable[[], None] | None = None
    patient: bool = False
    bell: SharedBell | None = None


PLAIN = SendOptions()
"""A write that is no transaction, sent again where that is safe."""


class PlannedWrite(Value, frozen=True, kw_only=True):
    """
    One operation on one row, and where it came from.

    Args:
        operation: What the store is asked.
        change: The user's change that it serves; what the last one has become, if several were joined.
        index: Position of the first such change among the user's changes.
        after: The row as it will be, without ETag and Timestamp; None after a delete.
        weight: Characters of everything of varying size; None if not measured.
        partial: Whether the stored row may have more than `after`.
        token: The write token that the row gets; None if it carries none.
        base: The newest token that the row had when it was read; None if it had none, or was not read.
        first: The first of the changes that were joined in it; None if there is but one.
        stale: Whether the subject has fields that were not written, and may differ in the row: then it must not get the
            new ETag, under which its next write would overwrite what it never saw.
        effect: What it does to a derived row; None for the write of what the user gave.
        starts: The workflows that the transaction starts for the entity.
        sent: What a stage that makes several rows of one has made of `operation`, behind that itself.
        sealed: The row of `operation`, and what a stage that needs a key has made of it.
        transaction: Whether it is sent as a part of a transaction, so that the user gets an error of that.
    """

    operation: Operation
    change: Change
    index: int
    after: Row | None
    weight: int | None
    partial: bool = False
    token: str | None = None
    base: str | None = None
    first: Change | None = None
    stale: bool = False
    effect: "Effect | None" = None
    starts: tuple[Work, ...] = ()
    sent: tuple[Operation, ...] | None = None
    sealed: tuple[Row, Row] | None = None
    transaction: bool = False

    @property
    def origin(self) -> Change:
        """The change that a refusal by the store is reported as: the first, whose condition is the operation's."""
        return self.first or self.change

    @property
    def row_key(self) -> str:
        """RowKey of the row that is written."""
        row_key: str = self.operation.row["RowKey"]
        return row_key

    def with_members(self, members: Row) -> "PlannedWrite":
        """Return the write with some members besides, in what is sent and in the row as it will be."""
        asked = self.operation
        operation = Operation(asked.verb, {**asked.row, **members}, asked.if_match)
        return structs.replace(self, operation=operation, after={**(self.after or {}), **members}, weight=None)


Refusal = tuple[PlannedWrite, TableOrmError]
"""A write, and why it is not sent or not applied."""


class Effect:
    """
    What a write does to another row of its partition: the interface of the effects of all patterns.

    An effect is a frozen value. It is planned without reading, unless it must know the stored row; where the row turns
    out to be other than it was taken to be, another effect takes its place.

    Attributes:
        row_key: RowKey of the other row.
        origin: The write that the effect comes from. Errors are reported as errors of this write.
        reads: Whether the effect must know the row as it is stored.
        replaces: Whether it writes the row as a whole, and does not merge into it.
        inserts: How many rows it inserts beside this one.
        survives_replan: Whether it has learnt how the row is stored, so that it is kept where effects are derived anew.
    """

    __slots__ = ()
    row_key: str
    origin: PlannedWrite
    reads = False
    replaces = False
    inserts = 0
    survives_replan = False

    @property
    def row_schema(self) -> Schema | None:
        """
        The schema of the row, if that may be stored otherwise than the schema says; otherwise None. Only the entity of
        a model with row stages has such rows.
        """
        return None

    @property
    def idle(self) -> bool:
        """Whether it changes nothing, whatever is stored: for example, it takes back what it adds."""
        return False

    def merge_with(self, other: "Effect") -> "Effect":
        """
        Return one effect for this one and another one of the same transaction on the same row.

        Raises:
            TableOrmError: They exclude each other.
        """
        raise NotImplementedError

    def checked(self) -> "Effect":
        """Return the effect that does not believe what the manifest says of the row, and looks at it; or the same."""
        return self

    def route(self, stored: Row | None) -> "list[Effect]":
        """Return the effect itself; or the effects on other rows that now stand for this row."""
        del stored
        return [self]

    def tentative(self) -> "Effect | None":
        """Return what is done already while the row of the entity is tentative; None if it waits for the move."""
        return None

    def confirmed(self) -> "Effect":
        """Return what is left to do when the tentative row becomes that of the entity."""
        return self

    def split_first(self, stored: Row | None, token: str) -> list[Operation]:
        """Return a transaction to send before the effect can be applied, because the row is full; usually none."""
        del stored, token
        return []

    def full_write(self, stored: Row | None, token: str) -> PlannedWrite | None:
        """
        Return a write of the entity of the row, which must be written in full before the effect can change it.

        Args:
            stored: The row; None if there is none.
            token: The write token of the transaction.

        Raises:
            TableOrmError: The entity cannot be written.
        """
        del stored, token
        return None

    def operation(self, stored: Row | None, token: str) -> Operation | None:
        """
        Return what to ask the store for; None if there is nothing to do.

        Args:
            stored: The row as it is stored, None if there is none. It is None too if the effect does not read.
            token: The write token of the transaction.

        Raises:
            TableOrmError: The row must be there, or must not.
        """
        raise NotImplementedError

    def further_operations(self, stored: Row | None, token: str) -> list[Operation]:
        """Return the inserts of the rows that it `inserts`, whose keys depend on the stored row, beside `operation`."""
        raise NotImplementedError

    def survives_conflict(self, row_key: str) -> bool:
        """
        Return whether it inserts a row here that nobody changes, nor deletes as long as a request may be under way: if
        the row has another token, the transaction was not applied, and never will be.
        """
        del row_key
        return False

    def check_survivor(self, row_key: str, stored: Row | None) -> None:
        """
        Refuse to go on where a row that survives a conflict is there already, and the row of the effect does not know
        of it.

        Args:
            row_key: RowKey of the row that is there.
            stored: The row of the effect, read since; None if there is none.

        Raises:
            TableOrmError: It does not, so that no new attempt can find another key.
        """
        del row_key, stored

    def refused(self, stored: Row) -> Sequence[Refusal]:
        """Return those of the writes that it comes from which the row, as it is stored, does not allow, and why."""
        del stored
        return ()

    def apply_to(self, write: PlannedWrite) -> PlannedWrite:
        """
        Return the user's write of the same row, in the same transaction, with the effect.

        Raises:
            TableOrmError: The row cannot be both.
        """
        raise NotImplementedError

    def before_delete(self, row: Row, maintained: Sequence[FieldInfo]) -> Row:
        """
        Return a row that the same transaction deletes as it is just before that, with the effect.

        Args:
            row: The row as it is stored.
            maintained: The fields of its model that other entities keep.
        """
        del maintained
        return row

    def after_conflict(self, code: str, stored: Row | None) -> "Effect":
        """
        Return the effect on the row as it really is, after the store has refused the operation.

        Args:
            code: Why it refused.
            stored: The row, read since; None if there is none, or the effect reads it itself.

        Raises:
            TableOrmError: The row must not be as it is.
        """
        del code, stored
        return self  # it reads the row again

    def limit_hint(self, fault: Fault) -> str | None:
        """Return what to say of the row, and to do, where it passes a limit of the service; None for nothing."""
        del fault
        return None


class DecisionEffect(Effect, Value, frozen=True):
    """
    The insert of the decision row of a transaction.

    Args:
        row_key: RowKey of the decision row.
        origin: The first write of the transaction.
    """

    row_key: str
    origin: PlannedWrite


class WritePlan(Value, frozen=True):
    """
    What is sent: one transaction, or a single operation if there is one.

    Args:
        table: Name of the table.
        partition_key: Its partition.
        writes: The operations, in order.
        decision: The decision that the last of them writes; None if nothing is left to do in other partitions.
        staged: Whether a model may have row stages, so that its rows are sent otherwise than the operations say. False
            only if all models were looked at.
    """

    table: str
    partition_key: str
    writes: tuple[PlannedWrite, ...]
    decision: Decision | None = None
    staged: bool = True

    def at(self, row_key: str) -> RowAddress:
        """Return the address of a row of its partition."""
        return RowAddress(self.table, self.partition_key, row_key)


def in_transaction(change: Change, index: int, error: TableOrmError, after: str = "") -> TransactionFailed:
    """
    The error of a transaction of which one change failed with `error`, to be raised from that.

    Args:
        change: The change.
        index: Its position among the user's.
        error: What it would have raised by itself.
        after: What to add to the message.
    """
    message = f"operation {index}: {error}{after}"
    failed = TransactionFailed(message, error.code, index=index, operation=change.verb, entity=change.subject)
    failed.fault = error.fault
    return failed


def refuse_some(refused: Sequence[Refusal], after: str = "; nothing was sent") -> NoReturn:
    """Raise the errors of some writes: the first, and in a transaction the others beside it."""
    write, error = refused[0]
    if not write.transaction:
        raise error
    failed = in_transaction(write.origin, write.index, error, after)
    failed.others = {other.index: each for other, each in refused[1:] if other.index != write.index}
    raise failed from error


def check_allowed(effect: Effect, stored: Row) -> None:
    """Refuse the writes of an effect that its row, as it is stored, does not allow. Raises what they raise."""
    try:
        refused = effect.refused(stored)
    except TableOrmError as error:
        refuse_before_sending(effect.origin, error)
    if refused:
        refuse_some(refused)


def refuse_before_sending(write: PlannedWrite, error: TableOrmError) -> NoReturn:
    """Raise the error of a write as the user gets it: as that of the transaction that the user asked for."""
    refuse_some([(write, error)])
