"""
What services, the SDK and the transport report, in the words of stores: the one place that translates foreign errors.

A fault says whether the request may have taken effect all the same (`doubt`). That is so for a write whenever the
answer is missing or does not tell; azure-core calls a reset connection a failure to send, which is no proof.
"""

import json
import re
import ssl
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    DecodeError,
    DeserializationError,
    HttpResponseError,
    IncompleteReadError,
    ResponseNotReadError,
    SerializationError,
    ServiceRequestError,
    ServiceRequestTimeoutError,
    ServiceResponseError,
    ServiceResponseTimeoutError,
    StreamClosedError,
    StreamConsumedError,
)

from tableorm.protocol.codes import Code, Fault

__all__ = [
    "EXCEPTIONS",
    "NoToken",
    "body_of",
    "code_of",
    "fault_of_error",
    "fault_of_response",
    "is_throttled",
    "never_sent",
    "translated",
]


class NoToken(ServiceRequestError):
    """The credential got no token, for a reason that may pass: nothing was sent to the service."""


EXCEPTIONS: tuple[tuple[type[BaseException], Code], ...] = (
    # The first that fits; what `never_sent` does not know is in doubt.
    (ClientAuthenticationError, Code.AUTHENTICATION_FAILED),
    (ServiceRequestTimeoutError, Code.NO_ANSWER),
    (ServiceResponseTimeoutError, Code.OPERATION_TIMED_OUT),
    (ServiceRequestError, Code.NO_ANSWER),
    (IncompleteReadError, Code.NO_ANSWER),
    (ServiceResponseError, Code.NO_ANSWER),
    (DecodeError, Code.INTERNAL_ERROR),
    (SerializationError, Code.INVALID_INPUT),
    (DeserializationError, Code.INTERNAL_ERROR),
    (StreamClosedError, Code.NO_ANSWER),
    (StreamConsumedError, Code.INTERNAL_ERROR),
    (ResponseNotReadError, Code.INTERNAL_ERROR),
    (AzureError, Code.INTERNAL_ERROR),
    (TimeoutError, Code.OPERATION_TIMED_OUT),
    (aiohttp.ClientError, Code.NO_ANSWER),
    (OSError, Code.NO_ANSWER),
    (ValueError, Code.INVALID_INPUT),
)
"""Exceptions without an answer of the service, and the code that each gets."""

_NEVER_SENT = (
    ClientAuthenticationError,
    NoToken,
    ServiceRequestTimeoutError,
    SerializationError,
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.InvalidURL,
    ssl.SSLCertVerificationError,
    ConnectionRefusedError,
    ValueError,
)

# What an answer without any code means, by its status.
_STATUS_CODES = {
    400: Code.INVALID_INPUT,
    401: Code.NO_AUTHENTICATION,
    403: Code.AUTHORIZATION_FAILURE,
    404: Code.INVALID_URI,  # the service's own has a code: a row that is not there is told from a place that is not
    405: Code.METHOD_NOT_ALLOWED,
    408: Code.OPERATION_TIMED_OUT,
    409: Code.RESOURCE_EXISTS,
    411: Code.MISSING_CONTENT_LENGTH,
    412: Code.CONDITION_NOT_SATISFIED,
    413: Code.REQUEST_BODY_TOO_LARGE,
    415: Code.MEDIA_TYPE_NOT_SUPPORTED,
    416: Code.INVALID_RANGE,
    429: Code.TOO_MANY_REQUESTS,
    501: Code.NOT_IMPLEMENTED,
    503: Code.SERVER_BUSY,
}
_CODES = frozenset(map(str, Code))
# Where a code is none of the service's, these statuses say better what a program can do.
_TELLING = frozenset({401, 403, 408, 413, 429})
# The emulator sends these texts without a code.
_TEXT_CODES = (
    ("resource name contains invalid characters", Code.INVALID_RESOURCE_NAME),
    ("resource name length is not within the permissible limits", Code.KEY_OUT_OF_RANGE),
)
_XML = re.compile(r"<Code>([^<]*)</Code>.*?(?:<Message>([^<]*)|$)", re.DOTALL)
_INDEX = re.compile(r"(\d{1,3}):")


def fault_of_response(
    status: int, headers: Mapping[str, str], body: bytes, *, write: bool, transaction: bool = False
) -> Fault:
    """
    The fault of an answer that is no success.

    Args:
        status: Its HTTP status.
        headers: Its headers; names ignore case.
        body: Its body: JSON, XML, or neither.
        write: Whether the request writes.
        transaction: Whether it is the answer of one operation of a transaction, whose text begins with its index.
    """
    code, text = _code_and_text(headers, body)
    if not code:
        code = next((known for part, known in _TEXT_CODES if part in text), "")
    named, strange = code, code not in _CODES
    if strange and (status >= 500 or status in _TELLING):
        code = ""
    code = code or _STATUS_CODES.get(status, Code.INVALID_INPUT if status < 500 else Code.INTERNAL_ERROR)
    text = re.split(r"[\r\n]+(?:RequestId|Time):", text, maxsplit=1)[0].strip()
    index: int | None = None
    found = _INDEX.match(text) if transaction else None
    if found is not None:
        index, text = int(found.group(1)), text[found.end() :]
    if not text:
        text = f"The service answered {status} {named}".rstrip() + "."
    elif named not in ("", code):
        text = f"{text} ({named})"
    # A gateway's 503 has no code, or one of its own, and may stand for a request that went through.
    doubt = write and (status in (408, 500, 502, 504) or status > 504 or (status == 503 and strange))
    return Fault(code, text, index, doubt=doubt, retry_after=_retry_after(headers))


def _code_and_text(headers: Mapping[str, str], body: bytes) -> tuple[str, str]:
    header = headers.get("x-ms-error-code") or ""
    text = body[:20_000].decode("utf-8", "replace").lstrip("\ufeff \r\n")
    if text.startswith("{"):
        try:
            error: Any = json.loads(text)
            error = error.get("odata.error") or error.get("error") or error
            message: Any = error.get("message") or ""
            words: Any = message if isinstance(message, str) else message["value"]
            return str(error.get("code") or header), str(words or "")
        except (ValueError, AttributeError, KeyError, TypeError):
            return header, text[:200]
    found = _XML.search(text)
    if found is not None:
        return found.group(1) or header, found.group(2) or ""
    return header, text[:200]


def code_of(response: Any) -> str:
    """The service's code in an answer, empty if it has none."""
    return _code_and_text(response.headers, body_of(response))[0]


def is_throttled(status: int, code: str) -> bool:
    """Whether an answer refuses a request for its rate, unread. Source: "Table service error codes"; Cosmos DB: 429."""
    return status == 429 or (status == 503 and code == Code.SERVER_BUSY)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    for name, unit in (("x-ms-retry-after-ms", 0.001), ("retry-after-ms", 0.001), ("Retry-After", 1.0)):
        value = headers.get(name)
        if value:
            try:
                return max(0.0, float(value) * unit)
            except ValueError:
                pass
            try:
                return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
            except (ValueError, TypeError):
                continue
    return None


def never_sent(error: BaseException) -> bool:
    """Whether an exception proves that the request did not reach the service."""
    if isinstance(error, _NEVER_SENT):
        return True
    if not isinstance(error, ServiceRequestError | ServiceResponseError | HttpResponseError):
        return False
    inner = error.inner_exception or error.__cause__
    return inner is not None and isinstance(inner, _NEVER_SENT)


def fault_of_error(error: BaseException, *, write: bool) -> Fault:
    """
    The fault of an exception of the SDK or the transport.

    Args:
        error: What was raised.
        write: Whether the request writes.
    """
    if isinstance(error, HttpResponseError) and error.response is not None:
        response: Any = error.response
        named = getattr(error, "error_code", None)
        if response.status_code < 300 and named:  # the SDK makes an error of the success "it was there already"
            return Fault(getattr(named, "value", named), f"{_words(error)}.")
        if isinstance(error, IncompleteReadError | DecodeError) or response.status_code < 300:
            return Fault(Code.NO_ANSWER, f"The answer broke off: {_words(error)}.", doubt=write)
        return fault_of_response(response.status_code, response.headers, body_of(response), write=write)
    reason = _reason(error)
    code = next((code for kind, code in EXCEPTIONS if isinstance(reason, kind)), Code.INTERNAL_ERROR)
    return Fault(code, f"{_words(error)}.", doubt=write and not never_sent(error))


def _reason(error: BaseException) -> BaseException:
    """What is behind an error of the SDK that has no answer and says no more than that there was one."""
    while type(error) is HttpResponseError and error.response is None and error.inner_exception is not None:
        error = error.inner_exception
    return error


def body_of(response: Any) -> bytes:
    """The body of an answer; empty if it was not read."""
    try:
        read = getattr(response, "body", None)
        body: object = read() if read is not None else response.content
    except (AzureError, ValueError):
        return b""
    return body if isinstance(body, bytes) else b""


def _words(error: BaseException) -> str:
    """What an exception says, in one line; a time-out often says nothing."""
    text = " ".join(str(error).split())[:300].rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@contextmanager
def translated(*, write: bool) -> Generator[None]:
    """Within it, what the SDK raises becomes a `Fault`."""
    try:
        yield
    except Fault:
        raise
    except Exception as error:
        raise fault_of_error(error, write=write) from error
