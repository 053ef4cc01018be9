"""
Continuations: where the next page starts, in headers of one answer and in parameters of the next request.

They have the service's form: version, length, text that is safe in a URL. Clients must not look into them.
"""

import re
from collections.abc import Mapping

from tableorm.protocol.codes import Fault
from tableorm.protocol.url_text import from_url_text, to_url_text

from .calls import invalid_input

_FORM = re.compile(r"1!([0-9]{1,5})!([A-Za-z0-9_-]*)")


def entity_continuation(token: str) -> dict[str, str]:
    """Return the headers for a token of the store, which is safe in a URL."""
    # Some clients need two headers; how the token is split among them does not matter.
    return {
        "x-ms-continuation-NextPartitionKey": _encode(token),
        "x-ms-continuation-NextRowKey": _encode(_ROW_MARK),
    }


def first_entity(options: Mapping[str, str]) -> str | None:
    """Return the store's token in a query; None for the first page. Fault InvalidInput."""
    text = options.get("NextPartitionKey")
    return _decode(text) if text else None


def table_continuation(name: str) -> dict[str, str]:
    """Return the headers for a page after which this table comes next."""
    return {"x-ms-continuation-NextTableName": _encode(to_url_text(name.encode()))}


def first_table(options: Mapping[str, str]) -> str:
    """Return the name of the table that comes next; empty for the first page. Fault InvalidInput."""
    text = options.get("NextTableName")
    if not text:
        return ""
    token = _decode(text)
    try:
        name = from_url_text(token).decode("ascii")
    except ValueError:
        name = ""
    if not name.isalnum():
        raise _malformed(text)
    return name


_ROW_MARK = "AA"


def _encode(token: str) -> str:
    return f"1!{len(token)}!{token}"


def _decode(text: str) -> str:
    found = _FORM.fullmatch(text)
    if found is None or len(found.group(2)) != int(found.group(1)):
        raise _malformed(text)
    return found.group(2)


def _malformed(text: str) -> Fault:
    return invalid_input(f"the continuation {text[:80]!r} is malformed; send that of the page before, unchanged.")
