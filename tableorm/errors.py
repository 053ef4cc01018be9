"""
Every error that tableorm raises, in one tree. `BulkFailed` is defined next to the report that it carries.

    TableOrmError
      ModelError            a declaration is wrong (raised when the class is created), or a call is
        TemplateError       a key template is wrong, or can't make or read a key
      EncodeError           a value doesn't fit its field
        InvalidInput        the data for an entity doesn't fit its model; lists every fault
        MalformedETag       if_match is neither "*" nor a single ETag
      DecodeError           a stored row doesn't fit its model
      EncryptionError       an encrypted row was altered, or its key is missing
      EntityNotFound        no such row
        ReferenceNotFound   an entity that another one refers to, or is counted in, doesn't exist
      TableNotFound         no such table
      WrongKind             the row is of another kind
      NotLoaded             the field or relation wasn't loaded
      NotRead               the write needs an ETag, and the entity was never read or written
      NotSupported          this backend or version can't do it
      Conflict
        EntityExists        an insert found a row with its key
          UniqueViolation   another entity has the value of a unique index
        PreconditionFailed  the row has changed since it was read
        LostRace            other clients changed the row first in every attempt; nothing was written
        GoingBack           a re-key is being rolled back; try again later
      TransactionFailed     one operation failed, nothing was applied
      BulkFailed            some operations of a bulk failed, the others were applied
      OutcomeUnknown        the reply to a write was lost, and nothing proves what happened
      LimitExceeded         a limit of the service, or a full list; checked before anything is sent
      ScanRefused           the query would scan
      CursorError           the cursor is damaged, or belongs to another query
      MultipleEntitiesFound one entity was asked for, and there are several
      AccessDenied          you aren't permitted to do this
      Unavailable           the store can't be reached, is busy, or is damaged
        AccountNotFound     the server knows no such account
        Throttled           the store rejects requests for now

Each message names the model, the key or field, the value and a remedy. `.code` is the service's error code, if there is
one, and `.fault` is what the store raised. A traceback doesn't show the fault, so it ends in code that you can change:
`connection/translate.py` raises errors `from None`. All errors can be pickled.
"""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple

from .protocol.codes import Fault

__all__ = [
    "ENCRYPTED",
    "MAX_FAULTS",
    "AccessDenied",
    "AccountNotFound",
    "Conflict",
    "CursorError",
    "DecodeError",
    "EncodeError",
    "EncryptionError",
    "EntityExists",
    "EntityNotFound",
    "GoingBack",
    "InputFault",
    "InvalidInput",
    "LimitExceeded",
    "LostRace",
    "MalformedETag",
    "ModelError",
    "MultipleEntitiesFound",
    "NotLoaded",
    "NotRead",
    "NotSupported",
    "OutcomeUnknown",
    "PreconditionFailed",
    "ReferenceNotFound",
    "ScanRefused",
    "TableNotFound",
    "TableOrmError",
    "TemplateError",
    "Throttled",
    "TransactionFailed",
    "Unavailable",
    "UniqueViolation",
    "WrongKind",
    "counted",
    "near",
    "shown",
    "without_own_frames",
]


def shown(value: object, limit: int = 80) -> str:
    """Return `repr` of a value for a message, cut to `limit` characters."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001  # a message about a value must not fail because its repr() does
        text = f"<{type(value).__name__} whose repr() raises {type(error).__name__}>"
    return text if len(text) <= limit else text[: limit - 3] + "..."


class _Encrypted:
    def __repr__(self) -> str:
        return "<encrypted>"

    def __reduce__(self) -> str:
        return "ENCRYPTED"


ENCRYPTED = _Encrypted()
"""What is shown in place of a value that is encrypted in the store."""


def counted(number: int, noun: str) -> str:
    """Return a number with a noun, for a message: "1 request", "2,000 requests"; "entity" becomes "entities"."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def near(name: str, known: Iterable[str], noun: str) -> str:
    """Return the known names of a noun, with the closest match, for a message about an unknown name."""
    names = list(known)
    found = get_close_matches(name, names, 1)
    subject = f"the {noun} is" if len(names) == 1 else f"the {noun}s are"
    listed = f"{subject} {', '.join(names[:30])}{', ...' * (len(names) > 30)}" if names else f"there are no {noun}s"
    return f"did you mean {found[0]!r}? {listed}" if found else listed


class TableOrmError(Exception):
    """
    The base class of all errors of tableorm.

    Args:
        message: What happened, to what, and what to do.
        code: The service's error code, if it gave one.

    Attributes:
        fault: What the store raised, if it rejected a request. A traceback doesn't show it. Its `__cause__` is the
            error of the transport or of SQLite, if there is one.
    """

    fault: Fault | None = None

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.message, self.code = message, code

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # A cause of other libraries may not survive pickling.
        cause = self.__cause__ if isinstance(self.__cause__, TableOrmError) else None
        return _rebuild, (type(self), self.args, self.__dict__, cause)


def _rebuild(
    cls: type[TableOrmError], args: tuple[Any, ...], state: dict[str, Any], cause: TableOrmError | None
) -> TableOrmError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    if cause is not None:
        error.__cause__ = cause
    return error


def without_own_frames(error: Exception) -> Exception:
    """Remove the frames of tableorm from the start of an error's traceback, up to the first frame of user code."""
    trace = error.__traceback__
    while trace and trace.tb_frame.f_globals.get("__name__", "").startswith("tableorm"):
        trace = trace.tb_next
    return error.with_traceback(trace)


class ModelError(TableOrmError, TypeError):
    """A declaration or a call is wrong. The message names the class and the field, keyword or call."""


class TemplateError(ModelError, ValueError):
    """
    A key template is wrong, or a key can't be made from fields or read back into them.

    Args:
        problem: What is wrong and what to do.
        model: The name of the model.
        key: "partition_key" or "row_key"; "key" if it concerns both.
        template: The template as it was declared.
        fields: The names of the fields whose values don't fit the key; empty for any other problem, such as a field
            that wasn't set.
        limit: The maximum number of characters, if the key is too long; None for any other problem.
    """

    fields: tuple[str, ...] = ()
    limit: int | None = None

    def __init__(
        self,
        problem: str,
        model: str,
        key: str,
        template: str,
        *,
        fields: Sequence[str] = (),
        limit: int | None = None,
    ) -> None:
        what = f"{model}.key" if key == "key" else f"{model}.{key}: template {template!r}"
        super().__init__(f"{what} {problem}")
        self.problem, self.model, self.key, self.template = problem, model, key, template
        self.fields, self.limit = tuple(fields), limit


class EncodeError(TableOrmError, ValueError):
    """
    A value doesn't fit its field, so nothing was written.

    Args:
        problem: What is wrong and what to do.
        model: The name of the model.
        field: The name of the field.
        value: The value.
        misuse: Whether the field can't be used this way, so no other value would help.
    """

    misuse = False

    def __init__(self, problem: str, model: str, field: str, value: object, *, misuse: bool = False) -> None:
        super().__init__(f"{model}.{field}: {shown(value)} {problem}")
        self.problem, self.model, self.field, self.value, self.misuse = problem, model, field, value, misuse


class InputFault(NamedTuple):
    """
    One fault in the data that an entity is created or updated from.

    Args:
        path: Where it is, such as `("items", 2, "price")`; empty for the data as a whole.
        problem: What is wrong and what to do.
        value: The value at that place; None if something is missing.
        kind: "missing"; "unknown" for a name that the model doesn't have; "invalid" for a value.
    """

    path: tuple[str | int, ...]
    problem: str
    value: object
    kind: Literal["missing", "unknown", "invalid"] = "invalid"

    def __str__(self) -> str:
        return self.problem if self.kind == "missing" else f"{shown(self.value)} {self.problem}"


class InvalidInput(EncodeError):
    """
    The data that an entity is created or updated from doesn't fit its model.

    Args:
        model: The name of the model.
        faults: Up to 100 faults. `field`, `value` and `problem` are those of the first one.
    """

    def __init__(self, model: str, faults: Sequence[InputFault]) -> None:
        first = faults[0]
        super().__init__(first.problem, model, str(first.path[0]) if first.path else "", first.value)
        self.faults = tuple(faults)
        lines = [f"{model}{''.join(map(_step, fault.path))}: {fault}" for fault in self.faults[:_MOST_FAULTS_SHOWN]]
        if len(faults) > len(lines):
            lines.append(f"... and {len(faults) - len(lines)} more")
        what = f"{model}: the data has {len(faults)} faults{' or more' * (len(faults) >= MAX_FAULTS)}"
        self.message = lines[0] if len(faults) == 1 else "\n  ".join([what, *lines])


class MalformedETag(EncodeError):
    """
    The value given as `if_match`, for example from a request's `If-Match` header, is neither "*" nor a single ETag.

    Args:
        problem: What is wrong and what to do.
        model: The method and the model, such as "modify of Order".
        field: "if_match".
        value: The value that was given.
    """


MAX_FAULTS = 100
"""At most this many faults are reported: an error must not be much larger than the data, which anyone may send."""

_MOST_FAULTS_SHOWN = 20


def _step(step: str | int) -> str:
    return f".{step}" if isinstance(step, str) and step.isidentifier() else f"[{step!r}]"


class DecodeError(TableOrmError, ValueError):
    """
    A stored row doesn't fit its model.

    Args:
        problem: What is wrong and what to do.
        model: The name of the model.
        key: The row's (PartitionKey, RowKey).
        field: The name of the field at fault, if there is one.

    Attributes:
        cursor: Where the query can resume after this row, or after the first of `parents`; None if the query has
            no cursors, or if there was no query.
        parents: The entities whose relation was being loaded when the row was found; empty outside of a relation.
    """

    cursor: str | None = None
    parents: tuple[Any, ...] = ()

    def __init__(self, problem: str, model: str, key: tuple[str, str], field: str | None = None) -> None:
        name = model[:80] if field is None else f"{model}.{field}"  # the kind that the row says, if no model is known
        super().__init__(f"{name}: row {key} {problem}")
        self.problem, self.model, self.key, self.field = problem, model, key, field


class EncryptionError(TableOrmError, ValueError):
    """
    An encrypted row was altered or moved, or its key is missing; or a query has a condition on an encrypted field. The
    message contains no key and no value.

    Args:
        problem: What is wrong.
        address: Table, PartitionKey and RowKey, if it is about a row.
        property_name: The name of the property at fault, if there is one.
    """

    def __init__(self, problem: str, address: object = None, property_name: str | None = None) -> None:
        where = "" if address is None else f"{address} "
        where += "" if property_name is None else f"{property_name!r} "
        super().__init__(f"{where}{problem}")
        self.problem, self.address, self.property_name = problem, address, property_name


class EntityNotFound(TableOrmError, LookupError):
    """There is no row with the key `key`; or there is no such blob, or no such message in a queue."""

    def __init__(self, message: str, code: str | None = None, key: object = None) -> None:
        super().__init__(message, code)
        self.key = key


class ReferenceNotFound(EntityNotFound):
    """An entity that another one refers to, or is counted in, doesn't exist. `key` is its PartitionKey and RowKey."""


class TableNotFound(TableOrmError, LookupError):
    """There is no such table. Create it with `db.create_tables(Model)`."""

    def __init__(self, message: str, code: str | None = None, table: str = "") -> None:
        super().__init__(message, code)
        self.table = table


class WrongKind(TableOrmError, LookupError):
    """The row with that key isn't of the requested model: its kind is `found`."""

    def __init__(self, message: str, key: object = None, found: str | None = None) -> None:
        super().__init__(message)
        self.key, self.found = key, found


class NotLoaded(TableOrmError, AttributeError):
    """A field or relation of this entity wasn't loaded, so it has no value."""


class NotRead(TableOrmError, ValueError):
    """
    The write needs an ETag, and the entity has none because it was never read or written.

    This is not a `PreconditionFailed`: repeating the write doesn't help.

    Args:
        message: Which write, and what to do.
        entity: What was to be written, or its key.
    """

    def __init__(self, message: str, entity: object = None) -> None:
        super().__init__(message)
        self.entity = entity


class NotSupported(TableOrmError):
    """This backend, this URL, or the database in its current state can't do what was asked."""


class Conflict(TableOrmError):
    """The store doesn't hold what the write expected. `entity` is what was to be written."""

    def __init__(self, message: str, code: str | None = None, entity: object = None) -> None:
        super().__init__(message, code)
        self.entity = entity


class EntityExists(Conflict):
    """
    An insert found a row with the same key.

    Args:
        message: Which row, and what to do.
        code: The service's error code.
        entity: What was to be written.
        index: The name of the index whose entry already exists, such as "Employee.by_email"; "" if it's the entity
            itself. During a re-key, the name of the older model if another entity has the key there.
    """

    def __init__(self, message: str, code: str | None = None, entity: object = None, *, index: str = "") -> None:
        super().__init__(message, code, entity)
        self.index = index


class UniqueViolation(EntityExists):
    """
    Another entity has the value of a unique index.

    Args:
        message: Which entity has it.
        code: The service's error code.
        entity: What was to be written.
        index: The name of the index, such as "Employee.by_email".
        values: The values of the index's fields that were to be written.
    """

    def __init__(
        self,
        message: str,
        code: str | None = None,
        entity: object = None,
        *,
        index: str = "",
        values: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, code, entity, index=index)
        self.values = dict(values or {})


class PreconditionFailed(Conflict):
    """The row has changed since it was read, so its ETag no longer matches."""


class LostRace(Conflict):
    """Other clients changed the row first in every attempt, so nothing was written. The same call may succeed later."""


class GoingBack(Conflict):
    """
    A re-key is being rolled back, or a rollback has just begun or stopped. Repeat an insert when the rollback is
    complete, because it may need the older key of a deleted entity. Repeat a query that was running at the time.
    """


class TransactionFailed(TableOrmError):
    """
    One operation of a transaction failed, so nothing was applied. `__cause__` is the error of that operation.

    Args:
        message: What failed.
        code: The service's error code.
        index: Which of your operations failed, counting from 0; None if the store didn't say.
        operation: The name of that operation's method.
        entity: The entity that the operation was given.

    Attributes:
        others: Errors of other operations that would have failed too, by index, if known.
    """

    def __init__(
        self,
        message: str,
        code: str | None = None,
        index: int | None = None,
        operation: str | None = None,
        entity: object = None,
    ) -> None:
        super().__init__(message, code)
        self.index, self.operation, self.entity = index, operation, entity
        self.others: Mapping[int, TableOrmError] = {}


class OutcomeUnknown(TableOrmError):
    """
    The reply to a write was lost, and nothing proves whether the write happened.

    This is not a `Conflict`: it's up to you whether to repeat the write.

    Args:
        message: What was attempted, and what was found.
        code: The service's error code of the last attempt.
        verb: The method that was called: "insert", "save", ...
        token: The write token that the row would carry; None for models without write tokens.
        found: The row as it was found afterwards, as an entity or bag; None if there is none, or it couldn't be read.
    """

    def __init__(
        self,
        message: str,
        code: str | None = None,
        verb: str = "",
        token: str | None = None,
        found: object = None,
    ) -> None:
        super().__init__(message, code)
        self.verb, self.token, self.found = verb, token, found


class LimitExceeded(TableOrmError, ValueError):
    """
    A limit of the service, or of an index list in a blob, would be exceeded, so nothing was sent.

    Args:
        message: What is too much, with the limit and the size.
        code: The service's error code.
        model: The name of the model; "" if it isn't about a single entity.
        field: The name of the field whose value is too large; "" if it isn't a single field.
        limit: What is allowed, in bytes or in operations of a transaction; None if unknown.
        size: The actual size.
    """

    def __init__(
        self,
        message: str,
        code: str | None = None,
        *,
        model: str = "",
        field: str = "",
        limit: int | None = None,
        size: int | None = None,
    ) -> None:
        super().__init__(message, code)
        self.model, self.field, self.limit, self.size = model, field, limit, size


class ScanRefused(TableOrmError):
    """The query would visit every partition. The message names the missing condition."""


class CursorError(TableOrmError, ValueError):
    """The cursor is damaged, belongs to another query, or points outside of the query."""


class MultipleEntitiesFound(TableOrmError):
    """One entity was asked for, and there are several."""


class AccessDenied(TableOrmError):
    """The credentials, the file's permissions or the scope don't permit this. `code` is None if it's the scope."""


class Unavailable(TableOrmError):
    """The store can't be reached, didn't answer in time, is full, or is damaged."""


class AccountNotFound(Unavailable):
    """The server knows no account of the name in the URL, so nothing was read or written. Trying again doesn't help."""


class Throttled(Unavailable):
    """The store rejects requests for now: there are too many at once, or it's busy or full. Try again later."""
