"""
Every exception and every code of the service has its place: one table, complete.
"""

import datetime as dt
import errno
import inspect
import json
import re
import socket
import ssl
from email.utils import format_datetime
from typing import Any

import aiohttp
import azure.core.exceptions
import azure.data.tables
import azure.storage.blob
import azure.storage.queue
import pytest
from aiohttp.client_reqrep import ConnectionKey
from azure.core.exceptions import (
    AzureError,
    DecodeError,
    HttpResponseError,
    ResponseNotReadError,
    SerializationError,
    ServiceRequestError,
    ServiceRequestTimeoutError,
    ServiceResponseError,
    StreamClosedError,
    StreamConsumedError,
)

from tableorm.connection.translate import translate
from tableorm.errors import AccessDenied, Conflict, EntityNotFound, LimitExceeded, TableOrmError, Unavailable
from tableorm.protocol.codes import STATUS, Code, Fault
from tableorm.stores import with_index
from tableorm_azure.faults import EXCEPTIONS, fault_of_error, fault_of_response, never_sent


def _exceptions(module: Any) -> list[type[Exception]]:
    found = [getattr(module, name) for name in dir(module)]
    return [each for each in found if inspect.isclass(each) and issubclass(each, Exception)]


MODULES = (azure.core.exceptions, azure.data.tables, azure.storage.queue, azure.storage.blob, aiohttp)
EVERY = sorted({each for module in MODULES for each in _exceptions(module)}, key=lambda each: each.__name__)
# No exceptions of requests: of a server, of a websocket, or of a program that uses the client wrongly.
OTHERS = {
    each
    for each in EVERY
    if each.__module__.startswith("aiohttp") and not issubclass(each, aiohttp.ClientError | OSError | ValueError)
}


def _made(kind: type[BaseException]) -> BaseException:
    """An exception of that class, made without knowing how."""
    error = kind.__new__(kind)
    BaseException.__init__(error, "it broke")
    for name in ("inner_exception", "response", "error", "code", "status"):
        if not hasattr(kind, name):
            error.__dict__.setdefault(name, None)
    return error


def test_every_exception_has_a_code() -> None:
    """Each class of the SDK and of the transport is in the table by itself or by a base that is not just Exception."""
    known = tuple(kind for kind, _ in EXCEPTIONS)

    assert [kind for kind in OTHERS if issubclass(kind, AzureError)] == []
    assert [kind for kind in EVERY if kind not in OTHERS and not issubclass(kind, known)] == []


BY_A_BASE = (
    (ServiceRequestTimeoutError, Code.NO_ANSWER),
    (DecodeError, Code.INTERNAL_ERROR),
    (SerializationError, Code.INVALID_INPUT),
    (StreamConsumedError, Code.INTERNAL_ERROR),
    (ResponseNotReadError, Code.INTERNAL_ERROR),
)


@pytest.mark.parametrize(("kind", "code"), [*EXCEPTIONS, *BY_A_BASE], ids=lambda each: getattr(each, "__name__", ""))
def test_the_table_says_the_code(kind: type[BaseException], code: Code) -> None:
    """An exception gets the code of the first row that it belongs to."""
    strange = (HttpResponseError, StreamClosedError, StreamConsumedError, ResponseNotReadError)
    error = _made(kind) if issubclass(kind, strange) else kind("it broke")

    fault = fault_of_error(error, write=True)
    assert fault.code == code
    assert kind.__name__ in fault.message or type(error).__name__ in fault.message


def test_no_row_hides_another() -> None:
    """A row stands before those of its bases."""
    for index, (kind, _) in enumerate(EXCEPTIONS):
        assert not any(issubclass(kind, earlier) for earlier, _ in EXCEPTIONS[:index])


def test_every_code_is_an_error_of_ours() -> None:
    """Whatever code the service answers, the user gets an error of the tree, with the code."""
    for code in Code:
        if code == Code.NO_ACCOUNT:  # it is made of another
            continue
        fault = fault_of_response(STATUS[code], {"x-ms-error-code": code}, b"", write=True)

        error = translate(fault, "insert of Employee ('Sales', '1')", "Directory")
        assert isinstance(error, TableOrmError), code
        assert error.code == code == fault.code


WAITED_FOR: dict[type[TableOrmError], list[Code]] = {
    EntityNotFound: [Code.ENTITY_NOT_FOUND],
    Conflict: [Code.TABLE_BEING_DELETED],
    AccessDenied: [
        Code.AUTHENTICATION_FAILED,
        Code.AUTHORIZATION_FAILURE,
        Code.AUTHORIZATION_PERMISSION,
        Code.AUTHORIZATION_SOURCE_IP,
        Code.NO_AUTHENTICATION,
        Code.INVALID_AUTHENTICATION_INFO,
        Code.INSUFFICIENT_PERMISSIONS,
    ],
    LimitExceeded: [Code.ENTITY_TOO_LARGE, Code.REQUEST_BODY_TOO_LARGE],
    Unavailable: [Code.INTERNAL_ERROR, Code.OPERATION_TIMED_OUT, Code.NO_ANSWER],
}


@pytest.mark.parametrize("expected", WAITED_FOR)
def test_codes_that_programs_wait_for(expected: type[TableOrmError]) -> None:
    """What a program can act upon has a class, which it shares with other codes of that sort."""
    for code in WAITED_FOR[expected]:
        assert isinstance(translate(Fault(code, "No."), "get", "Directory"), expected), code


JSON = b'{"odata.error":{"code":"X","message":{"lang":"en-US","value":"Sorry.\\nRequestId:1\\nTime:2"}}}'
XML = b'\xef\xbb\xbf<?xml version="1.0"?><Error><Code>X</Code><Message>Sorry.\nRequestId:1\nTime:2</Message></Error>'


@pytest.mark.parametrize(
    ("status", "headers", "body", "code", "message"),
    [
        (400, {}, JSON, "X", "Sorry."),
        (400, {"x-ms-error-code": "Y"}, JSON, "X", "Sorry."),
        (409, {}, XML, "X", "Sorry."),
        (
            401,
            {},
            b'{"error":{"code":"Unauthorized"}}',
            Code.NO_AUTHENTICATION,
            "The service answered 401 Unauthorized.",
        ),
        (403, {}, XML, Code.AUTHORIZATION_FAILURE, "Sorry. (X)"),
        (503, {}, b'{"error":{"code":503,"message":"Sorry."}}', Code.SERVER_BUSY, "Sorry. (503)"),
        (404, {}, JSON, "X", "Sorry."),
        (400, {}, b"{oops", Code.INVALID_INPUT, "{oops"),
        (502, {}, b"<html>Bad gateway", Code.INTERNAL_ERROR, "<html>Bad gateway"),
        (503, {}, b"", Code.SERVER_BUSY, "The service answered 503."),
        (404, {}, b"", Code.INVALID_URI, "The service answered 404."),
        (
            400,
            {},
            b'{"odata.error":{"code":"","message":"The specified resource name contains invalid characters."}}',
            Code.INVALID_RESOURCE_NAME,
            "The specified resource name contains invalid characters.",
        ),
    ],
)
def test_answers(status: int, headers: dict[str, str], body: bytes, code: str, message: str) -> None:
    """
    The code comes from the body, else from the header, else from the status, which also says more than a code that is
    none of the service's, where it means the same everywhere; the text without request id.
    """
    fault = fault_of_response(status, headers, body, write=False)

    assert (fault.code, fault.message) == (code, message)
    assert fault.index is None


@pytest.mark.parametrize("body", [JSON, XML], ids=["json", "xml"])
def test_the_id_of_a_request(body: bytes) -> None:
    """It comes from the header, else from the text, and is in the message of the error if the service's words are."""
    assert fault_of_response(400, {"x-ms-request-id": "header"}, body, write=False).request_id == "header"
    assert fault_of_response(400, {}, b"{oops", write=False).request_id is None
    fault = fault_of_response(400, {}, body, write=False)
    assert fault.request_id == with_index(fault, 3).request_id == "1"

    error = translate(fault, "get", "Directory")
    assert str(error) == "get: Sorry. (X, request ID 1)"
    assert error.fault is fault


_REFUSED = "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly."
_TOO_OLD = "Request date header too old: 'Fri, 04 Oct 2019 18:02:12 GMT'"
_SIGNATURE = "Kx8fJ2q0cPZt3vYb1mHn5sRd7wLgAoUeIi4C6TyQzXk="


def _refused(detail: str) -> bytes:
    return (
        f"<?xml version='1.0'?><Error><Code>AuthenticationFailed</Code>"
        f"<Message>{_REFUSED}\nRequestId:1\nTime:2</Message>"
        f"<AuthenticationErrorDetail>{detail}</AuthenticationErrorDetail></Error>"
    ).encode()


def test_a_refusal_says_what_is_wrong_with_the_signature() -> None:
    """The service's detail is in the message, in XML and in JSON, but for a signature, and no more than its start."""
    in_json = {"error": {"code": "AuthenticationFailed", "message": _REFUSED, "AuthenticationErrorDetail": _TOO_OLD}}
    for body in (_refused(_TOO_OLD), json.dumps(in_json).encode()):
        assert fault_of_response(403, {}, body, write=False).message == f"{_REFUSED} {_TOO_OLD}."
    detail = f"The MAC signature found in the HTTP request '{_SIGNATURE}' is not the same.\n{'x ' * 10_000}"
    message = fault_of_response(403, {}, _refused(detail), write=False).message
    assert "is not the same. x x" in message and _SIGNATURE not in message
    assert len(message) < 600


@pytest.mark.parametrize(
    ("off", "hint"),
    [
        (dt.timedelta(minutes=37), "The clock of this machine is 0:3[67]:[0-9]{2} behind that of the service; set it."),
        (
            -dt.timedelta(days=2),
            "The clock of this machine is 2 days, 0:00:[0-9]{2} ahead of that of the service; set it.",
        ),
        (dt.timedelta(0), ""),
    ],
)
def test_a_refusal_names_a_wrong_clock(off: dt.timedelta, hint: str) -> None:
    """If the dates of machine and service differ, a request that is denied says by how much; no other answer does."""
    date = {"Date": format_datetime(dt.datetime.now(dt.UTC) + off, usegmt=True)}
    message = fault_of_response(403, date, _refused(""), write=False).message

    assert re.fullmatch(re.escape(_REFUSED) + (f" {hint}" if hint else ""), message)
    assert "clock" not in fault_of_response(404, date, JSON, write=False).message
    for odd in ("", "soon", "99999999999999"):
        assert fault_of_response(403, {"Date": odd}, _refused(""), write=False).message == _REFUSED


def test_a_version_that_the_service_does_not_know_names_the_options() -> None:
    """Azurite tells to update or to reconfigure itself; asking for an older version is enough."""
    text = (
        "The API version 2026-10-06 is not supported by Azurite. Please upgrade Azurite to latest version and retry. "
    )
    body = f"<Error><Code>InvalidHeaderValue</Code><Message>{text}\nRequestId:1\nTime:2</Message></Error>".encode()
    fault = fault_of_response(400, {}, body, write=False)

    assert fault.code == "InvalidHeaderValue"
    assert fault.message == (
        text + "Or give connect() a version that it knows: storage_api_version='2025-11-05' for queues and blobs, "
        "api_version='2019-02-02' for tables."
    )


@pytest.mark.parametrize(
    ("text", "index", "message"),
    [
        ("2:The entity exists.", 2, "The entity exists."),
        ("0:The entity exists.", 0, "The entity exists."),
        ("99:One of the request inputs is not valid.", 99, "One of the request inputs is not valid."),
        ("The entity exists.", None, "The entity exists."),
        ("At 12:34 it failed.", None, "At 12:34 it failed."),
    ],
)
def test_index_of_a_transaction(text: str, index: int | None, message: str) -> None:
    """The failing operation is the number before the first colon; without one it is not known, and never guessed."""
    body = JSON.replace(b"Sorry.", text.encode())

    fault = fault_of_response(409, {}, body, write=True, transaction=True)
    assert (fault.index, fault.message) == (index, message)
    assert fault_of_response(409, {}, body, write=True).index is None


@pytest.mark.parametrize(
    ("status", "code", "doubt"),
    [
        (400, "InvalidInput", False),
        (409, "EntityAlreadyExists", False),
        (412, "UpdateConditionNotSatisfied", False),
        (408, "OperationTimedOut", True),
        (429, "", False),
        (500, "InternalError", True),
        (500, "OperationTimedOut", True),
        (502, "", True),
        (503, "ServerBusy", False),
        (503, "", True),
        (503, "ServiceUnavailable", True),
        (504, "", True),
    ],
)
def test_doubt(status: int, code: str, *, doubt: bool) -> None:
    """A write is in doubt if its answer does not tell; a read never is."""
    headers = {"x-ms-error-code": code} if code else {}

    assert fault_of_response(status, headers, b"", write=True).doubt is doubt
    assert fault_of_response(status, headers, b"", write=False).doubt is False


def _caused(error: ServiceRequestError | ServiceResponseError, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


WHERE = ConnectionKey("tables.example.org", 10002, False, True, None, None, None)
NO_TLS = "No TLS connection to tables.example.org:10002"
REFUSED = aiohttp.ClientConnectorError(WHERE, ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed"))


@pytest.mark.parametrize(
    ("error", "sent"),
    [
        (_caused(ServiceRequestError("x"), REFUSED), False),
        (_caused(ServiceRequestError("x"), aiohttp.ServerDisconnectedError()), True),
        (_caused(ServiceRequestError("x"), aiohttp.ClientOSError(104, "reset")), True),
        (_caused(ServiceResponseError("x"), aiohttp.ClientPayloadError("cut")), True),
        (ServiceRequestError("x"), True),
        (azure.core.exceptions.ServiceRequestTimeoutError("x"), False),
        (azure.core.exceptions.ServiceResponseTimeoutError("x"), True),
        (azure.core.exceptions.ClientAuthenticationError("x"), False),
        (TimeoutError(), True),
        (ConnectionResetError(), True),
    ],
)
def test_what_is_known_not_to_be_sent(error: Exception, *, sent: bool) -> None:
    """Only a connection that was never made is a proof; azure-core calls a reset one a failed request too."""
    assert never_sent(error) is not sent
    assert fault_of_error(error, write=True).doubt is sent
    assert fault_of_error(error, write=False).doubt is False


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            REFUSED,
            "Nothing answers at tables.example.org:10002 (Connection refused); start the server, or check the URL.",
        ),
        (
            aiohttp.ClientConnectorDNSError(WHERE, socket.gaierror(socket.EAI_NONAME, "Name or service not known")),
            "The host 'tables.example.org' is not found (Name or service not known); check the URL and the network.",
        ),
        (
            aiohttp.ClientConnectorSSLError(WHERE, ssl.SSLError(1, "wrong version number")),
            f"{NO_TLS} (wrong version number); check the server's certificate, or the https of the URL.",
        ),
        (
            aiohttp.ClientConnectorCertificateError(WHERE, ssl.SSLCertVerificationError(1, "self-signed certificate")),
            f"{NO_TLS} (self-signed certificate); check the server's certificate, or the https of the URL.",
        ),
    ],
    ids=["refused", "unknown", "plain", "certificate"],
)
def test_a_store_that_is_not_there(error: Exception, text: str) -> None:
    """The message says where nobody answers and what to do, and nothing in the words of a library."""
    assert fault_of_error(_caused(ServiceRequestError(str(error)), error), write=False).message == text


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "3"}, 3.0),
        ({"x-ms-retry-after-ms": "250"}, 0.25),
        ({"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"Retry-After": "soon"}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    """How long the service asks to wait is in the fault, in seconds."""
    assert fault_of_response(503, headers, b"", write=True).retry_after == seconds
