"""
Calls and answers: one request to the service and its answer, by themselves or as a part of a transaction; and the
faults that many requests get, in the words of the service.
"""

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum

import attrs
from multidict import MultiMapping

from tableorm.protocol.codes import Code, Fault

from .addressing import Place, Resource


class Level(Enum):
    """How much metadata an answer has, which a client could also know itself. Source: REST, "Payload format"."""

    NONE = "nometadata"
    MINIMAL = "minimalmetadata"
    FULL = "fullmetadata"

    @property
    def content_type(self) -> str:
        """The content type of an answer in JSON at this level."""
        return _CONTENT_TYPES[self]


_CONTENT_TYPES = {level: f"application/json;odata={level.value};streaming=true;charset=utf-8" for level in Level}


@attrs.frozen(kw_only=True)
class Incoming:
    """
    A request as it arrived, before anything of it is checked.

    Args:
        id: The name that the server gave it.
        verb: The verb of the request line.
        place: Account and path.
        query: Percent-encoded, without `?`.
        options: The parameters of the query, decoded.
        headers: Names in any letter case.
        version: The version of the service that the client asks for.
        scheme: `http` or `https`.
        address: The client's address.
        read_body: Reads all of the body.
    """

    id: str
    verb: str
    place: Place
    query: str = attrs.field(repr=False)
    options: Mapping[str, str] = attrs.field(repr=False)
    headers: MultiMapping[str] = attrs.field(repr=False)
    version: str
    scheme: str
    address: str
    read_body: Callable[[], Awaitable[bytes]] = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class Call:
    """
    What a client asks for.

    Args:
        verb: `GET`, `POST`, ...; `MERGE` if `X-HTTP-Method` says so.
        place: Account and location.
        resource: The service, a table, an entity, ...
        options: The parameters of the query, decoded.
        headers: Names in any letter case.
        body: The whole body; empty until it is read.
    """

    verb: str
    place: Place
    resource: Resource
    options: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""


@attrs.frozen
class Answer:
    """
    The answer to a call.

    Args:
        status: The status of HTTP.
        headers: The headers besides those that every answer has.
        body: The body, empty if there is none.
        content_type: The type of the body.
        reason: The code of the error, empty if it is not an error.
    """

    status: int
    headers: Mapping[str, str] = attrs.Factory(dict[str, str])
    body: bytes = b""
    content_type: str = ""
    reason: str = ""


def invalid_input(why: str, index: int | None = None) -> Fault:
    """Return the fault for input that is not valid, perhaps of operation `index`."""
    return Fault(Code.INVALID_INPUT, f"One of the request inputs is not valid: {why}", index)


def invalid_parameter(why: str) -> Fault:
    """Return the fault for a parameter of the query that is not valid."""
    return Fault(
        Code.INVALID_QUERY_PARAMETER,
        f"Value for one of the query parameters specified in the request URI is invalid: {why}.",
    )


def internal_error() -> Fault:
    """Return the fault for an error of the server itself."""
    return Fault(Code.INTERNAL_ERROR, "Server encountered an internal error. Please try again after some time.")
