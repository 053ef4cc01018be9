"""
Faults of errors: the one place that translates the errors of services, the SDK and the transport.

A fault says whether the request may have taken effect all the same (`doubt`). For a write that is so whenever the
answer is missing or does not say. azure-core calls a reset connection a failure to send, which proves nothing.
"""

import errno
import json
import os
import re
import socket
import ssl
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
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
    ServiceRequestError,
    ServiceRequestTimeoutError,
    ServiceResponseError,
    ServiceResponseTimeoutError,
    StreamClosedError,
)

from tableorm.protocol.codes import STATUS, Code, Fault
from tableorm.protocol.redaction import without_named_secrets, without_secrets


class NoHost(ServiceRequestError):
    """No host has the name in the URL, or nobody listens there, and nothing has answered before."""


class NoToken(ServiceRequestError):
    """The credential got no token, for a reason that may pass: nothing was sent to the service."""


EXCEPTIONS: tuple[tuple[type[BaseException], Code], ...] = (
    # The first one that fits counts. A write is in doubt unless `never_sent` knows better.
    (ClientAuthenticationError, Code.AUTHENTICATION_FAILED),
    (NoHost, Code.NO_HOST),
    (ServiceResponseTimeoutError, Code.OPERATION_TIMED_OUT),
    (ServiceRequestError, Code.NO_ANSWER),
    (IncompleteReadError, Code.NO_ANSWER),
    (ServiceResponseError, Code.NO_ANSWER),
    (DeserializationError, Code.INTERNAL_ERROR),
    (StreamClosedError, Code.NO_ANSWER),
    (AzureError, Code.INTERNAL_ERROR),
    (TimeoutError, Code.OPERATION_TIMED_OUT),
    (aiohttp.ClientError, Code.NO_ANSWER),
    (OSError, Code.NO_ANSWER),
    (ValueError, Code.INVALID_INPUT),
)
"""Exceptions without an answer of the service, and the code that each gets."""

_NEVER_SENT = (
    ClientAuthenticationError,
    NoHost,
    NoToken,
    ServiceRequestTimeoutError,
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.InvalidURL,
    ssl.SSLCertVerificationError,
    ConnectionRefusedError,
    ValueError,
)

# The code of an answer that has none, by its status.
_STATUS_CODES = {
    400: Code.INVALID_INPUT,
    401: Code.NO_AUTHENTICATION,
    403: Code.AUTHORIZATION_FAILURE,
    404: Code.INVALID_URI,  # not of a row: for that the service gives a code
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
# If a code is not the service's own, these statuses say better what a program can do.
_TELLING = frozenset({401, 403, 408, 413, 429})
# The emulator sends these texts without a code.
_TEXT_CODES = (
    ("resource name contains invalid characters", Code.INVALID_RESOURCE_NAME),
    ("resource name length is not within the permissible limits", Code.KEY_OUT_OF_RANGE),
)
_NO_ACCOUNT = "No such account is served here."  # the text of `tableorm serve`
_UNKNOWN_VERSION = re.compile(r"The API version \S+ is not supported")
_KNOWN_VERSIONS = (
    " Or give connect() a version that it knows: storage_api_version='2025-11-05' for queues and blobs, "
    "api_version='2019-02-02' for tables."
)
_DENIED = frozenset({401, 403})
# What is wrong with a signature or a date; in XML, and as a member of JSON.
_DETAIL = re.compile(r'AuthenticationErrorDetail(?:>|"\s*:\s*")([^<"]*)', re.IGNORECASE)
_MOST_DETAIL = 400
# A signature by key may be 15 minutes old, but that of a token is rejected a second before it begins.
_CLOCKS_DIFFER = timedelta(minutes=1)
_XML = re.compile(r"<Code>([^<]*)</Code>.*?(?:<Message>([^<]*)|$)", re.DOTALL)
_INDEX = re.compile(r"(\d{1,3}):")


def fault_of_response(
    status: int, headers: Mapping[str, str], body: bytes, *, write: bool, transaction: bool = False
) -> Fault:
    """
    Return the fault of an answer that is not a success.

    Args:
        status: Its HTTP status.
        headers: Its headers, whose names ignore case.
        body: Its body: JSON, XML or text.
        write: Whether the request writes.
        transaction: Whether it answers one operation of a transaction. Then the text begins with the index of that.
    """
    # They may quote the URL of the request, with a token in it.
    code, text = map(without_named_secrets, _read_error(headers, body))
    detail = _read_detail(body) + _clock_hint(headers) if status in _DENIED else ""
    if not code:
        code = next((known for part, known in _TEXT_CODES if part in text), "")
    named, strange = code, code not in STATUS
    if strange and (status >= 500 or status in _TELLING):
        code = ""
    code = code or _STATUS_CODES.get(status, Code.INVALID_INPUT if status < 500 else Code.INTERNAL_ERROR)
    text, *noted = map(str.strip, re.split(r"[\r\n](?:RequestId|Time):", text))
    # An answer within that of a transaction has it in the text alone.
    request_id = headers.get("x-ms-request-id") or next(iter(noted), None)
    if code == Code.RESOURCE_NOT_FOUND and (_is_xml(body) or text.endswith(_NO_ACCOUNT)):
        code = named = Code.NO_ACCOUNT
    index: int | None = None
    found = _INDEX.match(text) if transaction else None
    if found is not None:
        index, text = int(found.group(1)), text[found.end() :]
    if not text:
        text = f"The service answered {status} {named}".rstrip() + "."
    elif named not in ("", code):
        text = f"{text} ({named})"
    if _UNKNOWN_VERSION.match(text):
        text += _KNOWN_VERSIONS
    text += detail
    # A gateway's 503 has no code, or one of its own, and the request may have been done.
    doubt = write and (status in (408, 500, 502, 504) or status > 504 or (status == 503 and strange))
    return Fault(code, text, index, doubt=doubt, retry_after=retry_after_of(headers), request_id=request_id)


def _is_xml(body: bytes) -> bool:
    """
    Return whether an answer is XML. That a row, or a table to delete, is missing is said in the JSON that was asked
    for; and of queues and blobs there are other codes. In XML Azurite says that it has no such account.
    """
    return body[:20].lstrip(b"\xef\xbb\xbf \r\n").startswith(b"<")


def _read_error(headers: Mapping[str, str], body: bytes) -> tuple[str, str]:
    header = headers.get("x-ms-error-code") or ""
    text = body[:20_000].decode("utf-8", "replace").lstrip("\ufeff \r\n")
    if text.startswith("{"):
        try:
            error: Any = json.loads(text)
            error = error.get("odata.error") or error.get("error") or error
            message: Any = error.get("message") or ""
            text_of_message: Any = message if isinstance(message, str) else message["value"]
            return str(error.get("code") or header), str(text_of_message or "")
        except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
            return header, text[:200]
    found = _XML.search(text)
    if found is not None:
        return found.group(1) or header, found.group(2) or ""
    return header, text[:200]


def _read_detail(body: bytes) -> str:
    """Return what a refusal says of the signature or the date, behind a space; without signatures, and no longer."""
    found = _DETAIL.search(body[:20_000].decode("utf-8", "replace"))
    text = "" if found is None else " ".join(without_secrets(found[1][:_MOST_DETAIL]).split())
    return f" {text.rstrip('.')}." if text else ""


def _clock_hint(headers: Mapping[str, str]) -> str:
    """Return how far the clock of this machine is from that of the service, behind a space; nothing if it is near."""
    try:
        ahead = datetime.now(UTC) - parsedate_to_datetime(headers.get("Date") or "")
    except (ValueError, TypeError, OverflowError):
        return ""
    if abs(ahead) < _CLOCKS_DIFFER:
        return ""
    by = timedelta(seconds=int(abs(ahead).total_seconds()))
    where = "ahead of" if ahead > timedelta(0) else "behind"
    return f" The clock of this machine is {by} {where} that of the service; set it."


def code_of(response: Any) -> str:
    """Return the service's code in an answer, empty if it has none."""
    return _read_error(response.headers, body_of(response))[0]


def is_throttled(status: int, code: str) -> bool:
    """Return whether an answer refuses a request for its rate. Source: "Table service error codes"; Cosmos DB: 429."""
    return status == 429 or (status == 503 and code == Code.SERVER_BUSY)


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Return after how many seconds the service wants to be asked again; None if it does not say."""
    for name, unit in (("x-ms-retry-after-ms", 0.001), ("retry-after-ms", 0.001), ("Retry-After", 1.0)):
        value = headers.get(name)
        if value:
            try:
                return max(0.0, float(value) * unit)
            except ValueError:
                pass
            try:
                return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
            except (ValueError, TypeError, OverflowError):
                continue
    return None


def never_sent(error: BaseException) -> bool:
    """Return whether an exception proves that the request did not reach the service."""
    if isinstance(error, _NEVER_SENT):
        return True
    if not isinstance(error, ServiceRequestError | ServiceResponseError | HttpResponseError):
        return False
    inner = error.inner_exception or error.__cause__
    return inner is not None and isinstance(inner, _NEVER_SENT)


def lacks_host(error: AzureError) -> bool:
    """Return whether the host of a request has no address, or refuses connections."""
    inner = error.inner_exception or error.__cause__
    if isinstance(inner, aiohttp.ClientConnectorDNSError):
        return inner.errno != socket.EAI_AGAIN
    return isinstance(inner, aiohttp.ClientConnectorError) and inner.errno == errno.ECONNREFUSED


def fault_of_error(error: BaseException, *, write: bool) -> Fault:
    """
    Return the fault of an exception of the SDK or the transport.

    Args:
        error: The exception.
        write: Whether the request writes.
    """
    if isinstance(error, HttpResponseError) and error.response is not None:
        response: Any = error.response
        named = getattr(error, "error_code", None)
        if response.status_code < 300 and named:  # the SDK raises an error for the success "it exists already"
            return Fault(getattr(named, "value", named), f"{_describe(error)}.")
        if isinstance(error, IncompleteReadError | DecodeError) or response.status_code < 300:
            return Fault(Code.NO_ANSWER, f"The answer broke off: {_describe(error)}.", doubt=write)
        return fault_of_response(response.status_code, response.headers, body_of(response), write=write)
    cause = _find_cause(error)
    code = next((code for kind, code in EXCEPTIONS if isinstance(cause, kind)), Code.INTERNAL_ERROR)
    return Fault(code, f"{_describe(error)}.", doubt=write and not never_sent(error))


def _find_cause(error: BaseException) -> BaseException:
    """Return the cause of an error of the SDK that has no answer and says nothing itself."""
    while type(error) is HttpResponseError and error.response is None and error.inner_exception is not None:
        error = error.inner_exception
    return error


def body_of(response: Any) -> bytes:
    """Return the body of an answer; empty if it was not read."""
    try:
        read = getattr(response, "body", None)
        body: object = read() if read is not None else response.content
    except (AzureError, ValueError):
        return b""
    return body if isinstance(body, bytes) else b""


def _describe(error: BaseException) -> str:
    """Describe an exception in one line."""
    inner = error.__cause__ if type(error) in (NoHost, ServiceRequestError) else error
    if isinstance(inner, aiohttp.ClientSSLError):
        where = f"{inner.host}:{inner.port} ({inner.strerror or inner.args[1]})"
        return f"No TLS connection to {where}; check the server's certificate, or the https of the URL"
    if isinstance(inner, aiohttp.ClientConnectorError):
        reason = os.strerror(inner.errno) if inner.errno and inner.errno > 0 else inner.strerror
        if isinstance(inner, aiohttp.ClientConnectorDNSError):
            return f"The host {inner.host!r} is not found ({reason}); check the URL and the network"
        return f"Nothing answers at {inner.host}:{inner.port} ({reason}); start the server, or check the URL"
    text = " ".join(without_named_secrets(str(error)[:_LONGEST_TEXT]).split())[:300].rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@contextmanager
def translated(*, write: bool) -> Generator[None]:
    """Translate the errors of the SDK that are raised within it into faults."""
    try:
        yield
    except Fault:
        raise
    except Exception as error:  # noqa: BLE001 - what is not a fault becomes one
        # aiohttp puts the URL, with its token, into errors; then the text of the fault must do.
        cause = None if _shows_signature(error) else error
        raise fault_of_error(error, write=write) from cause


_LONGEST_TEXT = 16 * 1024


def _shows_signature(error: BaseException | None) -> bool:
    """
    Return whether the text of an error, or of one that caused it, shows the signature of a token, or may: texts with
    whole answers in them are too long to be searched.
    """
    while error is not None:
        text = str(error) + repr(error)
        if len(text) > _LONGEST_TEXT or without_named_secrets(text) != text:
            return True
        error = error.__cause__ or error.__context__
    return False
