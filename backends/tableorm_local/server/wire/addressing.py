"""
Addresses: from the host and the path of a request to the resource that it is about, in both styles.

    host style   http://ACCOUNT.table.core.localhost/RESOURCE
    path style   http://127.0.0.1/ACCOUNT/RESOURCE

The path is read as it was sent. It is decoded once, then the literals in it are parsed: a comma, a parenthesis or
`',RowKey='` may be part of a key.
"""

import re
from enum import Enum, auto
from urllib.parse import quote, unquote_to_bytes, urlsplit

import attrs

from tableorm.protocol.codes import Code, Fault

from ..security.accounts import SECONDARY, Accounts

__all__ = [
    "Kind",
    "Place",
    "Resource",
    "entity_path",
    "is_host_style",
    "part_path",
    "place_of",
    "resource_of",
    "table_path",
]


class Kind(Enum):
    """What a path means."""

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
    What a request is about.

    Args:
        kind: See `Kind`; below a table is what clients ask for that were given a table's URL instead of the account's.
        table: The table's name as it was spelt, empty if none is meant.
        partition_key: Of an entity.
        row_key: Of an entity.
        rest: What is below the table.
    """

    kind: Kind
    table: str = ""
    partition_key: str = ""
    row_key: str = ""
    rest: str = ""


@attrs.frozen
class Place:
    """
    Whose resource it is.

    Args:
        account: Name of the account.
        secondary: Whether it was asked for at the secondary location, which cannot be written to.
        path: As in the request line, which is what is signed: percent-encoded, with the account in path style.
        resource_path: What of it is after the account.
        root: What stands before a resource's path in URLs: `http://HOST` or `http://HOST/ACCOUNT`.
    """

    account: str
    secondary: bool
    path: str
    resource_path: str
    root: str


_HOST = re.compile(r"[A-Za-z0-9.:_\[\]-]+")
_HOST_STYLE = re.compile(r"([a-z0-9]+(?:-secondary)?)\.table\.", re.ASCII)


def place_of(accounts: Accounts, scheme: str, host: str, target: str) -> Place:
    """
    Find the account.

    Args:
        accounts: Those that there are.
        scheme: `http` or `https`.
        host: The header `Host`.
        target: Of the request line: a path, or an absolute URL; what follows `?` is left aside.

    Raises:
        Fault: HostInformationNotPresent, InvalidUri; ResourceNotFound if there is no such account.
    """
    path = _path_of(target)
    if not _HOST.fullmatch(host):
        raise Fault(Code.HOST_INFORMATION_NOT_PRESENT, "The required host information is not present in the request.")
    root = f"{scheme}://{host}"
    by_host = _HOST_STYLE.match(host.lower())
    if by_host is not None:
        found, rest = accounts.find(by_host.group(1)), path
    else:
        first, slash, rest = path[1:].partition("/")
        found, rest = accounts.find(first), slash + rest
        root += "/" + first
    if found is None:
        raise Fault(Code.RESOURCE_NOT_FOUND, "The specified resource does not exist. No such account is served here.")
    account, secondary = found
    if secondary and not by_host and (rest == f"/{account}" or rest.startswith(f"/{account}/")):
        # What azure-data-tables sends when it asks the secondary location for statistics.
        rest = rest[len(account) + 1 :]
    return Place(account, secondary, path, rest, root)


def is_host_style(host: str) -> bool:
    """Whether a header `Host` names an account."""
    return _HOST_STYLE.match(host.lower()) is not None


def _path_of(target: str) -> str:
    if not target.startswith("/"):
        try:
            target = urlsplit(target).path or "/"
        except ValueError:
            target = ""
        if not target.startswith("/"):
            raise Fault(Code.INVALID_URI, "The requested URI does not represent any resource on the server.")
    return target.partition("?")[0].partition("#")[0]


def part_path(place: Place, url: str) -> str:
    """
    The path of the resource in the URL of a part of a transaction, which may name another host.

    Args:
        place: Of the transaction; its style is that of a part that names no host.
        url: Absolute, or a path.

    Raises:
        Fault: InvalidUri.
    """
    path = _path_of(url)
    by_host = place.path == place.resource_path if url.startswith("/") else is_host_style(urlsplit(url).netloc)
    if by_host:
        return path  # a table may have the account's name
    for first in (f"/{place.account}", f"/{place.account}{SECONDARY}"):
        if path == first or path.startswith(first + "/"):
            return path[len(first) :]
    return path


_LITERAL = r"'((?:[^']|'')*+)'"
_TABLE = re.compile(rf"Tables\({_LITERAL}\)", re.DOTALL)
_KEYS = re.compile(rf"\(\s*PartitionKey\s*=\s*{_LITERAL}\s*,\s*RowKey\s*=\s*{_LITERAL}\s*\)", re.DOTALL)
_KEYS_TURNED = re.compile(rf"\(\s*RowKey\s*=\s*{_LITERAL}\s*,\s*PartitionKey\s*=\s*{_LITERAL}\s*\)", re.DOTALL)
_NAME_END = re.compile(r"[(/]")


def resource_of(path: str) -> Resource:
    """
    Read a path, percent-encoded, without the account.

    Raises:
        Fault: InvalidUri if it is not UTF-8; InvalidInput if it is no path of the Table service.
    """
    try:
        # Bytes that are no UTF-8 arrive in this form.
        text = unquote_to_bytes(path.encode("utf-8", "surrogateescape")).decode("utf-8")
    except UnicodeDecodeError:
        raise Fault(Code.INVALID_URI, "The requested URI is not UTF-8 once it is percent-decoded.") from None
    text = text.removeprefix("/")
    fixed = _FIXED.get(text)
    if fixed is not None:
        return fixed
    found = _TABLE.fullmatch(text)
    if found:
        return Resource(Kind.TABLE, _text(found.group(1)))
    end = _NAME_END.search(text)
    if end is None:
        return Resource(Kind.ENTITIES, text)
    table, rest = text[: end.start()], text[end.start() :]
    if not table:
        raise _no_resource()
    if rest in ("()", "/", "()/"):
        return Resource(Kind.ENTITIES, table)
    if rest.startswith("/"):
        return Resource(Kind.BELOW_TABLE, table, rest=rest[1:])
    found = _KEYS.fullmatch(rest)
    if found:
        return Resource(Kind.ENTITY, table, _text(found.group(1)), _text(found.group(2)))
    found = _KEYS_TURNED.fullmatch(rest)
    if found:
        return Resource(Kind.ENTITY, table, _text(found.group(2)), _text(found.group(1)))
    raise _no_resource()


_FIXED = {
    "": Resource(Kind.SERVICE),
    "Tables": Resource(Kind.TABLES),
    "Tables()": Resource(Kind.TABLES),
    "$batch": Resource(Kind.TRANSACTION),
}


def _no_resource() -> Fault:
    return Fault(
        Code.INVALID_INPUT,
        "Bad Request - Error in query syntax. The path is none of /Tables, /Tables('NAME'), /NAME(), "
        "/NAME(PartitionKey='..',RowKey='..') and /$batch.",
    )


def _text(literal: str) -> str:
    return literal.replace("''", "'")


def table_path(table: str) -> str:
    """The path of a table as a resource, after the account."""
    return f"Tables('{table}')"


def entity_path(table: str, partition_key: str, row_key: str) -> str:
    """The path of an entity, after the account, as clients write it."""
    return f"{table}(PartitionKey='{_escaped(partition_key)}',RowKey='{_escaped(row_key)}')"


def _escaped(key: str) -> str:
    return quote(key.replace("'", "''"), safe="-_.~!*()")
