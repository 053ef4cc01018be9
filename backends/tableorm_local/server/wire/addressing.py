"""
Addresses: from the host and the path of a request to its resource, in both styles of URLs.

    host style   http://ACCOUNT.table.core.localhost/RESOURCE
    path style   http://127.0.0.1/ACCOUNT/RESOURCE

The path is read as it was sent. It is decoded once, then its literals are parsed: a comma, a parenthesis or
`',RowKey='` may be part of a key.
"""

import re
from collections.abc import Callable
from enum import Enum, auto
from urllib.parse import quote, unquote_to_bytes

import attrs

from tableorm.protocol.codes import Code, Fault


class Kind(Enum):
    """The kinds of resources."""

    SERVICE = auto()
    TABLES = auto()
    TABLE = auto()
    ENTITIES = auto()
    ENTITY = auto()
    TRANSACTION = auto()
    BELOW_TABLE = auto()


@attrs.frozen
class Resource:
    """
    The resource of a request.

    Args:
        kind: Clients ask for a resource below a table if they were given a table's URL instead of the account's.
        table: The table's name as it was spelt; empty if the resource has no table.
        partition_key: The PartitionKey of an entity.
        row_key: The RowKey of an entity.
        rest: The path below the table.
    """

    kind: Kind
    table: str = ""
    partition_key: str = ""
    row_key: str = ""
    rest: str = ""


@attrs.frozen(kw_only=True)
class Place:
    """
    The account of a request, and the path of its resource there.

    Args:
        account: Name of the account.
        secondary: Whether the request is for the secondary location, which cannot be written to.
        path: The path of the request line, which is signed: percent-encoded, with the account in path style.
        resource_path: The part of the path after the account.
        root: The part of URLs before a resource's path: `http://HOST` or `http://HOST/ACCOUNT`.
    """

    account: str
    secondary: bool
    path: str
    resource_path: str
    root: str


# The name of an account's copy in another region is that of the account with this at its end.
SECONDARY = "-secondary"

# The name of a machine has 253 characters at most, and its port five. All links of an answer have it.
_HOST = re.compile(r"[A-Za-z0-9.:_\[\]-]{1,259}")
# A URL up to its path. Its host is no other text than a name or an address: what splits any URL brings the host into a
# normal form, and the time for that grows with the square of its length.
_BEFORE_PATH = re.compile(
    r"https?://((?:[A-Z0-9._-]{1,253}|\[[0-9A-F:.]{2,45}\])(?::[0-9]{0,5})?)(?=[/?#]|\Z)", re.ASCII | re.IGNORECASE
)
_HOST_STYLE = re.compile(r"([a-z0-9]+(?:-secondary)?)\.table\.")


FindAccount = Callable[[str], tuple[str, bool] | None]
"""Finds the account that a host or path names, and whether its secondary location; None if there is none."""


def place_of(find: FindAccount, scheme: str, host: str, target: str) -> Place:
    """
    Return the place that a request addresses: its account, and the path of the resource below it.

    Args:
        find: Looks an account up.
        scheme: `http` or `https`.
        host: The header `Host`.
        target: The target of the request line: a path, or an absolute URL; a query is ignored.

    Raises:
        Fault: HostInformationNotPresent, InvalidUri; ResourceNotFound if there is no such account.
    """
    _, path = _split(target)
    if not _HOST.fullmatch(host):
        raise Fault(
            Code.HOST_INFORMATION_NOT_PRESENT,
            "The required host information is not present in the request: Host must be the name of a machine, of at "
            "most 253 characters, with or without a port.",
        )
    root = f"{scheme}://{host}"
    by_host = _HOST_STYLE.match(host.lower())
    if by_host is not None:
        found, rest = find(by_host.group(1)), path
    else:
        first, slash, rest = path[1:].partition("/")
        found, rest = find(first), slash + rest
        root += "/" + first
    if found is None:
        raise Fault(Code.RESOURCE_NOT_FOUND, "The specified resource does not exist. No such account is served here.")
    account, secondary = found
    if secondary and not by_host and (rest == f"/{account}" or rest.startswith(f"/{account}/")):
        # azure-data-tables sends the account twice when it asks the secondary location for statistics.
        rest = rest[len(account) + 1 :]
    return Place(account=account, secondary=secondary, path=path, resource_path=rest, root=root)


def is_host_style(host: str) -> bool:
    """Return whether a header `Host` names an account."""
    return _HOST_STYLE.match(host.lower()) is not None


def _split(url: str) -> tuple[str | None, str]:
    """Return the host of an absolute URL, None if the URL is a path, and the path without query and fragment."""
    host = None
    if not url.startswith("/"):
        before = _BEFORE_PATH.match(url)
        if before is None:
            raise Fault(
                Code.INVALID_URI,
                "The requested URI does not represent any resource on the server. It must be a path, or begin with "
                "http:// or https:// and the name of a machine.",
            )
        host, url = before[1], url[before.end() :]
    return host, url.partition("?")[0].partition("#")[0] or "/"


def part_path(place: Place, url: str) -> str:
    """
    Return the path of the resource in the URL of a part of a transaction. The URL may name another host.

    Args:
        place: The place of the transaction, whose style also a part has that names no host.
        url: An absolute URL, or a path.

    Raises:
        Fault: InvalidUri.
    """
    if url.startswith(place.root) and url[len(place.root) : len(place.root) + 1] == "/":
        # As most clients write it: at the place of the transaction itself.
        return url[len(place.root) :].partition("?")[0].partition("#")[0]
    host, path = _split(url)
    by_host = place.path == place.resource_path if host is None else is_host_style(host)
    if by_host:
        return path  # a table may have the account's name
    for first in (f"/{place.account}", f"/{place.account}{SECONDARY}"):
        if path == first or path.startswith(first + "/"):
            return path[len(first) :]
    return path


_LITERAL = r"'((?:[^']|'')*+)'"
_TABLE = re.compile(rf"Tables\({_LITERAL}\)")
_KEY = rf"(PartitionKey|RowKey)\s*=\s*{_LITERAL}"
_KEYS = re.compile(rf"\(\s*{_KEY}\s*,\s*{_KEY}\s*\)")
_NAME_END = re.compile(r"[(/]")


# An escape is a percent sign and two hexadecimal digits.
_BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")


def check_escapes(text: str) -> None:
    """
    Refuse text whose percent signs do not all begin an escape: decoding these takes five times as long as escapes.

    Raises:
        Fault: InvalidUri.
    """
    if _BAD_ESCAPE.search(text):
        raise Fault(
            Code.INVALID_URI, "The requested URI is invalid: it has a % without two hexadecimal digits; write % as %25."
        )


def resource_of(path: str) -> Resource:
    """
    Read the path of a resource, percent-encoded, without the account.

    Raises:
        Fault: InvalidUri if it is not percent-encoded UTF-8; InvalidInput if the Table service has no such path.
    """
    check_escapes(path)
    try:
        # Bytes that are not UTF-8 arrive as lone surrogates.
        text = unquote_to_bytes(path.encode("utf-8", "surrogateescape")).decode("utf-8")
    except UnicodeDecodeError:
        raise Fault(Code.INVALID_URI, "The requested URI is not UTF-8 once it is percent-decoded.") from None
    text = text.removeprefix("/")
    fixed = _FIXED.get(text)
    if fixed is not None:
        return fixed
    found = _TABLE.fullmatch(text)
    if found:
        return Resource(Kind.TABLE, _unquote(found.group(1)))
    end = _NAME_END.search(text)
    if end is None:
        return Resource(Kind.ENTITIES, text)
    table, rest = text[: end.start()], text[end.start() :]
    if not table:
        raise _path_fault()
    if rest in ("()", "/", "()/"):
        return Resource(Kind.ENTITIES, table)
    if rest.startswith("/"):
        return Resource(Kind.BELOW_TABLE, table, rest=rest[1:])
    found = _KEYS.fullmatch(rest)
    if found and found[1] != found[3]:
        keys = {found[1]: _unquote(found[2]), found[3]: _unquote(found[4])}
        return Resource(Kind.ENTITY, table, partition_key=keys["PartitionKey"], row_key=keys["RowKey"])
    raise _path_fault()


_FIXED = {
    "": Resource(Kind.SERVICE),
    "Tables": Resource(Kind.TABLES),
    "Tables()": Resource(Kind.TABLES),
    "$batch": Resource(Kind.TRANSACTION),
}


def _path_fault() -> Fault:
    return Fault(
        Code.INVALID_INPUT,
        "Bad Request - Error in query syntax. The path must be one of /Tables, /Tables('NAME'), /NAME(), "
        "/NAME(PartitionKey='..',RowKey='..') and /$batch.",
    )


def _unquote(literal: str) -> str:
    return literal.replace("''", "'")


def table_path(table: str) -> str:
    """Return the path of a table as a resource, without the account."""
    return f"Tables('{table}')"


def entity_path(table: str, partition_key: str, row_key: str) -> str:
    """Return the path of an entity, without the account, in the form that clients write."""
    return f"{table}(PartitionKey='{_escape(partition_key)}',RowKey='{_escape(row_key)}')"


def _escape(key: str) -> str:
    return quote(key.replace("'", "''"), safe="-_.~!*()")
