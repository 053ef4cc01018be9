"""
A call and its answer: one request to the service, whether it came by itself or as a part of a transaction.
"""

from collections.abc import Mapping
from enum import Enum

import attrs

from .addressing import Place, Resource

__all__ = ["Answer", "Call", "Level"]


class Level(Enum):
    """How much of what a client could know itself an answer says. Source: REST, "Payload format"."""

    NONE = "nometadata"
    MINIMAL = "minimalmetadata"
    FULL = "fullmetadata"

    @property
    def content_type(self) -> str:
        """Of an answer in JSON at this level."""
        return _CONTENT_TYPES[self]


_CONTENT_TYPES = {level: f"application/json;odata={level.value};streaming=true;charset=utf-8" for level in Level}


@attrs.define(eq=False)
class Call:
    """
    What is asked for.

    Args:
        verb: `GET`, `POST`, ...; `MERGE` if `X-HTTP-Method` says so.
        place: Account and location.
        resource: What it is about.
        options: The parameters of the query, decoded.
        headers: Names in any letter case.
        body: All of it; empty until it is read.
    """

    verb: str
    place: Place
    resource: Resource
    options: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def is_xml(self) -> bool:
        """Whether it is one of the operations that speak XML, errors included."""
        return "comp" in self.options


@attrs.define(eq=False)
class Answer:
    """
    What is answered.

    Args:
        status: Of HTTP.
        headers: Beside those that every answer has.
        body: Empty for none.
        content_type: Of the body.
        reason: Code of the error, if it is one.
    """

    status: int
    headers: dict[str, str] = attrs.Factory(dict[str, str])
    body: bytes = b""
    content_type: str = ""
    reason: str = ""
