"""
Every error that tableorm raises, in one tree; `BulkFailed` is defined beside the report that it has.

    TableOrmError
      ModelError            a declaration is wrong, raised when the class is made; or a call is wrong
        TemplateError       a key template is wrong, or cannot make or read a key
      EncodeError           a value does not fit its field
        InvalidInput        data that an entity is made or changed from does not fit; it lists every fault
        MalformedETag       what was given as if_match is neither "*" nor one ETag
      DecodeError           a stored row does not fit its model
      EncryptionError       an encrypted row is not as it was sealed, or its key is not there
      EntityNotFound        no such row
        ReferenceNotFound   an entity that another one refers to, or is counted in, does not exist
      TableNotFound         no such table
      WrongKind             the row is of another kind
      NotLoaded             the field, or what a relation leads to, was not loaded
      NotRead               the write needs an ETag, and the entity was neither read nor written
      NotSupported          this backend or version cannot do it
      Conflict
        EntityExists        an insert found a row with its key
          UniqueViolation   another entity has the value of a unique index
        PreconditionFailed  the row has changed since it was read
        LostRace            others wrote first, at each of many attempts; nothing was written
        GoingBack           entities of a re-key go back to their older keys, which is in the way for now
      TransactionFailed     one operation failed, nothing was applied
      BulkFailed            some operations of a bulk failed, the others were applied
      OutcomeUnknown        the reply to a write was lost, and nothing proves what happened
      LimitExceeded         a limit of the service, or a list that is full, checked before anything is sent
      ScanRefused           the query would scan
      CursorError           the cursor belongs to another query, or is damaged
      MultipleEntitiesFound one entity was asked for, and there are several
      AccessDenied          the caller is not permitted to do this
      Unavailable           the store cannot be reached, is busy, or is damaged
        AccountNotFound     the server knows no such account
        Throttled           the store refuses for now: it is asked for too much, or is busy

Each message names the model and the key (or field) and the value, and says what to do. `.code` is the service's error
code if there is one. All errors survive pickling.
"""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple

__all__ = [
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
]


def shown(value: object, limit: int = 80) -> str:
    """Return `repr` of a value for a message, cut to `limit` characters."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001  # a message about a value must not fail because its repr() does
        text = f"<{type(value).__name__} whose repr() raises {type(error).__name__}>"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def counted(number: int, noun: str) -> str:
    """Return a number with a noun, for a message: "1 request", "2 requests"; "entity" becomes "entities"."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def near(name: str, known: Iterable[str], noun: str) -> str:
    """Return the names of a noun that exist, for a message about one that does not, and the nearest of them."""
    names = list(known)
    found = get_close_matches(name, names, 1)
    subject = f"the {noun} is" if len(names) == 1 else f"the {noun}s are"
    listed = f"{subject} {', '.join(names[:30])}{', ...' * (len(names) > 30)}" if names else f"there are no {noun}s"
    return f"did you mean {found[0]!r}? {listed}" if found else listed


class TableOrmError(Exception):
    """
    Base of every error of tableorm.

    Args:
        message: What happened, to what, and what to do.
        code: The service's error code, if it gave one.
    """

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


class ModelError(TableOrmError, TypeError):
    """A declaration or a call is wrong; the message names the class and the field, the keyword or the call."""


class TemplateError(ModelError, ValueError):
    """
    A key template is wrong, or a key cannot be made from fields or read back into them.

    Args:
        problem: What is wrong and what to do.
        model: Name of the model.
        key: "partition_key" or "row_key"; "key" if it is about both.
        template: The template's text.
        fields: Names of the fields whose values do not fit the key; empty if anything else is wrong, as a field that
            was not set.
        limit: How many characters a key has at most, if that is what is wrong; None for anything else.
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
    A value does not fit its field, so nothing was written.

    Args:
        problem: What is wrong and what to do.
        model: Name of the model.
        field: Name of the field.
        value: The value.
        misuse: Whether the program uses the field wrongly, so that no other value would do.
    """

    misuse = False

    def __init__(self, problem: str, model: str, field: str, value: object, *, misuse: bool = False) -> None:
        super().__init__(f"{model}.{field}: {shown(value)} {problem}")
        self.problem, self.model, self.field, self.value, self.misuse = problem, model, field, value, misuse


class InputFault(NamedTuple):
    """
    One thing that is wrong with data that an entity is made or changed from.

    Args:
        path: Where it is: `("items", 2, "price")`; empty if it is the data as a whole.
        problem: What is wrong and what to do.
        value: The value that is there; None where something is missing.
        kind: "missing"; "unknown" for a name that the model does not know; "invalid" for a value.
    """

    path: tuple[str | int, ...]
    problem: str
    value: object
    kind: Literal["missing", "unknown", "invalid"] = "invalid"

    def __str__(self) -> str:
        return self.problem if self.kind == "missing" else f"{shown(self.value)} {self.problem}"


class InvalidInput(EncodeError):
    """
    Data that an entity is made or changed from does not fit its model.

    Args:
        model: Name of the model.
        faults: What is wrong, up to 100 things; `field`, `value` and `problem` are those of the first.
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
    What was given as `if_match`, for example the header `If-Match` of a request, is neither "*" nor one ETag.

    Args:
        problem: What is wrong and what to do.
        model: The verb and the model: "modify of Order".
        field: "if_match".
        value: What was given.
    """


MAX_FAULTS = 100
"""So many faults are looked for: an error must not be much larger than the data, which anybody may have sent."""

_MOST_FAULTS_SHOWN = 20


def _step(step: str | int) -> str:
    return f".{step}" if isinstance(step, str) and step.isidentifier() else f"[{step!r}]"


class DecodeError(TableOrmError, ValueError):
    """
    A stored row does not fit its model.

    Args:
        problem: What is wrong and what to do.
        model: Name of the model.
        key: (PartitionKey, RowKey) of the row.
        field: Name of the field that is at fault, if there is one.

    Attributes:
        cursor: Where the query that has found the row goes on behind it; None if it has no cursors, or was no query.
    """

    cursor: str | None = None

    def __init__(self, problem: str, model: str, key: tuple[str, str], field: str | None = None) -> None:
        name = model[:80] if field is None else f"{model}.{field}"  # the kind that the row says, if no model is known
        super().__init__(f"{name}: row {key} {problem}")
        self.problem, self.model, self.key, self.field = problem, model, key, field


class EncryptionError(TableOrmError, ValueError):
    """
    An encrypted row is not as it was sealed, is not for its place, or its key is not there; or a query has a condition
    on an encrypted field. The message has no key and no value.

    Args:
        problem: What is wrong.
        address: Table, PartitionKey and RowKey, if it is about a row.
        property_name: Name of the property that is at fault, if there is one.
    """

    def __init__(self, problem: str, address: object = None, property_name: str | None = None) -> None:
        where = "" if address is None else f"{address} "
        where += "" if property_name is None else f"{property_name!r} "
        super().__init__(f"{where}{problem}")
        self.problem, self.address, self.property_name = problem, address, property_name


class EntityNotFound(TableOrmError, LookupError):
    """There is no row with the key `key`; or no such blob, or message in a queue."""

    def __init__(self, message: str, code: str | None = None, key: object = None) -> None:
        super().__init__(message, code)
        self.key = key


class ReferenceNotFound(EntityNotFound):
    """An entity that another one refers to, or is counted in, does not exist; `key` is its PartitionKey and RowKey."""


class TableNotFound(TableOrmError, LookupError):
    """There is no such table; create it with `db.create_tables(Model)`."""

    def __init__(self, message: str, code: str | None = None, table: str = "") -> None:
        super().__init__(message, code)
        self.table = table


class WrongKind(TableOrmError, LookupError):
    """The row at that key is of another kind than the model asked for: of the kind `found`."""

    def __init__(self, message: str, key: object = None, found: str | None = None) -> None:
        super().__init__(message)
        self.key, self.found = key, found


class NotLoaded(TableOrmError, AttributeError):
    """A field of this entity, or what a relation of it leads to, was not loaded, so it has no value."""


class NotRead(TableOrmError, ValueError):
    """
    The write needs an ETag, and the entity was neither read nor written, so it has none.

    This is no `PreconditionFailed`: to repeat the write cannot help.

    Args:
        message: Which write, and what to do.
        entity: What was to be written, or its key.
    """

    def __init__(self, message: str, entity: object = None) -> None:
        super().__init__(message)
        self.entity = entity


class NotSupported(TableOrmError):
    """This backend, URL or state of the database cannot do what was asked."""


class Conflict(TableOrmError):
    """The store does not hold what the write expected. `entity` is what was to be written."""

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
        index: Name of the index whose entry found a row at its key: "Employee.by_email". "" if the entity itself did.
            While entities get new keys, the name of the older model if another entity has the key by that.
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
        index: Name of the index: "Employee.by_email".
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
    """The row has changed since it was read, so its ETag is another one."""


class LostRace(Conflict):
    """Others wrote first, at each of many attempts, so nothing was written; the same call may succeed later."""


class GoingBack(Conflict):
    """
    Entities of a re-key go back to their older keys, or have just begun to, or stopped. An insert needs the older key
    of an entity that was deleted: it may succeed when all have gone back. A query was running when they turned round:
    run it again.
    """


class TransactionFailed(TableOrmError):
    """
    One operation of a transaction failed, so nothing was applied. `__cause__` is the error of that operation.

    Args:
        message: What failed.
        code: The service's error code.
        index: Which of the user's operations failed, counted from 0; None when the store did not say.
        operation: The verb of that operation.
        entity: The entity that the operation was given.

    Attributes:
        others: The errors of further operations that would have failed too, by index, as far as they are known.
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

    This is not a `Conflict`: whether to repeat the write is your choice.

    Args:
        message: What was attempted, and what was found.
        code: The service's error code of the last attempt.
        verb: What was attempted: "insert", "save", ...
        token: The write token that the row would carry; None for models without write tokens.
        found: The row as it was found afterwards, an entity or a bag; None if there is none, or it could not be read.
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
        model: Name of the model; "" if it is not about one entity.
        field: Name of the field whose value is too large; "" if it is not a single one.
        limit: What is allowed: bytes, or operations of a transaction; None if it is not known.
        size: How much there is of it.
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
    """The query would visit every partition. The message says which condition is missing."""


class CursorError(TableOrmError, ValueError):
    """The cursor is damaged, belongs to another query, or names a position outside of the query."""


class MultipleEntitiesFound(TableOrmError):
    """The query was to find one entity, and there are several."""


class AccessDenied(TableOrmError):
    """
    The credentials, the permissions of the file, or the scope do not allow this. `code` is None if it is the scope.
    """


class Unavailable(TableOrmError):
    """The store cannot be reached, did not answer in time, is full, or is damaged."""


class AccountNotFound(Unavailable):
    """The server knows no account of the name in the URL, so nothing was read or written. To repeat cannot help."""


class Throttled(Unavailable):
    """The store refuses for now: it is asked for too much at once, is busy, or is full. Try again later."""
