"""
The headers that every answer has, and the answers to faults, in JSON or XML.
"""

import datetime as dt
from collections.abc import Callable, Mapping
from importlib.metadata import version
from uuid import uuid4
from xml.sax.saxutils import escape

from tableorm.protocol.codes import STATUS, Code, Fault
from tableorm.protocol.edm import text_from_datetime

from .bodies import encode_json
from .calls import Answer, Call, Level
from .options import level_of, prefers_content

_SERVER = f"tableorm/{version('tableorm')}"
RETRY_SECONDS = 1


def new_request_id() -> str:
    """Make a name for a request, `x-ms-request-id`."""
    return str(uuid4())


def standard_headers(request_id: str, version: str, client_id: str | None) -> dict[str, str]:
    """Return the headers of every answer, besides Date."""
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


def answer_created(
    call: Call, path: str, encode: Callable[[], bytes], headers: Mapping[str, str] | None = None
) -> Answer:
    """
    Return the answer to a call that created something: with what was created, unless the client prefers otherwise.

    Args:
        call: The call.
        path: The path of what was created, below the account.
        encode: Encodes it.
        headers: Further headers.
    """
    url, content = f"{call.place.root}/{path}", prefers_content(call)
    all_headers = {**(headers or {}), "Location": url}
    if content is not None:
        all_headers["Preference-Applied"] = "return-content" if content else "return-no-content"
    if content is False:
        return Answer(204, headers=all_headers | {"DataServiceId": url})
    return Answer(201, headers=all_headers, body=encode(), content_type=level_of(call).content_type)


def error_answer(fault: Fault, request_id: str, *, xml: bool = False, index: int | None = None) -> Answer:
    """
    Return the answer that tells a client of a fault.

    Args:
        fault: The fault.
        request_id: The name that the server gave the request.
        xml: Whether the operation speaks XML.
        index: The number of the operation that failed, in a transaction.
    """
    code = fault.code if fault.code in STATUS else Code.INTERNAL_ERROR.value
    at = "" if index is None else f"{index}:"
    # The message may quote what a client sent, which need not be valid text.
    quoted = fault.message.encode("utf-8", "backslashreplace").decode("utf-8")
    message = f"{at}{quoted}\nRequestId:{request_id}\nTime:{text_from_datetime(dt.datetime.now(dt.UTC))}"
    headers = {"x-ms-error-code": code}
    if code == Code.SERVER_BUSY:
        headers["Retry-After"] = str(RETRY_SECONDS)
    if code == Code.NO_AUTHENTICATION:
        headers["WWW-Authenticate"] = "SharedKey"
    if xml:
        text = f"<Error><Code>{code}</Code><Message>{escape(_replace_controls(message))}</Message></Error>"
        body = b'<?xml version="1.0" encoding="utf-8"?>' + text.encode()
        return Answer(STATUS[code], headers=headers, body=body, content_type="application/xml", reason=code)
    body = encode_json({"odata.error": {"code": code, "message": {"lang": "en-US", "value": message}}})
    return Answer(STATUS[code], headers=headers, body=body, content_type=Level.MINIMAL.content_type, reason=code)


def _replace_controls(text: str) -> str:
    return "".join(char if char >= " " or char in "\t\n\r" else "?" for char in text)
