"""
What every answer has, and the bodies of errors, in JSON or XML as the operation speaks.
"""

import datetime as dt
from importlib.metadata import version
from uuid import uuid4
from xml.sax.saxutils import escape

from tableorm.protocol.codes import STATUS, Code, Fault
from tableorm.protocol.edm import text_from_datetime

from .bodies import encode
from .calls import Answer, Level

__all__ = ["error_answer", "new_request_id", "standard_headers"]

_SERVER = f"tableorm/{version('tableorm')}"
RETRY_SECONDS = 1


def new_request_id() -> str:
    """What the server calls a request."""
    return str(uuid4())


def standard_headers(request_id: str, version: str, client_id: str | None) -> dict[str, str]:
    """The headers of every answer, besides Date."""
    headers = {
        "Server": _SERVER,
        "x-ms-request-id": request_id,
        "x-ms-version": version,
        "Cache-Control": "no-cache",
        "X-Content-Type-Options": "nosniff",
    }
    if client_id is not None:
        headers["x-ms-client-request-id"] = client_id
    return headers


def error_answer(
    fault: Fault, request_id: str, now: dt.datetime, *, xml: bool = False, index: int | None = None
) -> Answer:
    """
    The answer that tells a client of a fault.

    Args:
        fault: What is wrong.
        request_id: The server's name of the request.
        now: The time, aware.
        xml: Whether the operation speaks XML.
        index: In a transaction, the operation that failed.
    """
    code = fault.code if fault.code in _STATUS else Code.INTERNAL_ERROR.value
    at = "" if index is None else f"{index}:"
    # What clients sent is quoted in it, and need not be text.
    said = fault.message.encode("utf-8", "backslashreplace").decode("utf-8")
    message = f"{at}{said}\nRequestId:{request_id}\nTime:{text_from_datetime(now)}"
    headers = {"x-ms-error-code": code}
    if code == Code.SERVER_BUSY:
        headers["Retry-After"] = str(RETRY_SECONDS)
    if code == Code.NO_AUTHENTICATION:
        headers["WWW-Authenticate"] = "SharedKey"
    if xml:
        text = f"<Error><Code>{code}</Code><Message>{escape(_xml_text(message))}</Message></Error>"
        body = b'<?xml version="1.0" encoding="utf-8"?>' + text.encode()
        return Answer(_STATUS[code], headers, body, "application/xml", code)
    body = encode({"odata.error": {"code": code, "message": {"lang": "en-US", "value": message}}})
    return Answer(_STATUS[code], headers, body, Level.MINIMAL.content_type, code)


_STATUS: dict[str, int] = {code.value: status for code, status in STATUS.items()}


def _xml_text(text: str) -> str:
    return "".join(char if char >= " " or char in "\t\n\r" else "?" for char in text)
