"""
What a web service tells its clients of an error: an HTTP status and a text.
"""

from ..errors import (
    AccessDenied,
    AccountNotFound,
    Conflict,
    CursorError,
    EncodeError,
    EntityExists,
    EntityNotFound,
    GoingBack,
    InvalidInput,
    LimitExceeded,
    LostRace,
    MalformedETag,
    PreconditionFailed,
    ReferenceNotFound,
    TemplateError,
    TransactionFailed,
    Unavailable,
    UniqueViolation,
    WrongKind,
)
from ..writes.bulk.report import BulkFailed

_ANSWERS: dict[type[BaseException], tuple[int, str]] = {
    BaseException: (500, "the service has failed"),
    AccessDenied: (403, "this is not permitted"),
    EntityNotFound: (404, "there is no such entity"),
    WrongKind: (404, "there is no such entity"),
    ReferenceNotFound: (409, "an entity that this one refers to does not exist"),
    Conflict: (409, "the stored data does not allow this"),
    LostRace: (503, "others changed the same data, and nothing was written: try again"),
    GoingBack: (503, "the keys of the stored data are being changed: try again later"),
    EntityExists: (409, "the entity already exists"),
    PreconditionFailed: (412, "it was changed in the meantime: read it again, and repeat the change"),
    LimitExceeded: (413, "this is too much for one entity or one request"),
    CursorError: (422, "the cursor belongs to another list"),
    EncodeError: (422, "a value does not fit"),
    MalformedETag: (400, "If-Match must be '*' or one ETag, as the header ETag of an answer has it"),
    AccountNotFound: (500, "the service has failed"),
    Unavailable: (503, "the service is busy: try again later"),
}


def http_status(error: BaseException) -> int:
    """
    Return the HTTP status for an error in a web service: 500, unless the client can do something about it, such as 422
    for a value that doesn't fit. For a `TransactionFailed` or `BulkFailed`, it is the status of the cause.

        return JSONResponse({"detail": http_message(error)}, status_code=http_status(error))
    """
    return _answer_to(_cause_of(error))[0]


def http_message(error: BaseException) -> str:
    """
    Return a message that a web service can safely show its clients: no keys, no table names, and no values except
    those of the data that `InvalidInput` is about. For a `TransactionFailed` or `BulkFailed`, it is the message of the
    cause.
    """
    error = _cause_of(error)
    text = _answer_to(error)[1]
    if isinstance(error, InvalidInput):
        return error.message
    if isinstance(error, TemplateError) and error.fields:
        if error.limit is not None:
            text = f"too long: a key has {error.limit} characters at most"
        return f"{', '.join(error.fields)}: {text}"
    if (isinstance(error, EncodeError) and not error.misuse and not isinstance(error, MalformedETag)) or (
        isinstance(error, LimitExceeded) and error.field
    ):
        return f"{error.field}: {text}"
    if isinstance(error, UniqueViolation):
        return f"another entity has the same {', '.join(error.values) or 'value'} already"
    return text


def _cause_of(error: BaseException) -> BaseException:
    while isinstance(error, (TransactionFailed, BulkFailed)) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _answer_to(error: BaseException) -> tuple[int, str]:
    if isinstance(error, AccessDenied) and error.code is not None:
        return _ANSWERS[BaseException]  # the store refuses the service itself
    if isinstance(error, EncodeError) and error.misuse:
        return _ANSWERS[BaseException]
    if isinstance(error, TemplateError) and error.fields:
        return 422, "a value does not fit the key"
    return next((_ANSWERS[each] for each in type(error).__mro__ if each in _ANSWERS), _ANSWERS[BaseException])
