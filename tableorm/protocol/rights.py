"""
Rights: what a token lets its bearer do, decided in one place for servers, for embedded engines and for clients.

A server and an engine first `read_token`, which proves the signature, then `admit` it, now and here. Who holds a token
and not the key can only ask what it says: that is enough to refuse, before anything is sent, what would be refused.
"""

import datetime as dt
from collections.abc import Iterable

import attrs

from .codes import Code, Fault
from .key_range import KeyRange
from .sas import (
    ACCOUNT_RULES,
    TABLE_PERMISSIONS,
    Access,
    AccessPolicy,
    AccountSas,
    TableSas,
    allows_address,
    allows_protocol,
    parse_sas,
    time_fault,
    under_policy,
    verify_sas,
)

__all__ = ["Owner", "Rights", "admit", "authorize", "failed", "range_of", "read_token"]


@attrs.frozen
class Owner:
    """Whoever has a key of the account: everything is allowed."""


Rights = Owner | AccountSas | TableSas
"""What may be done."""

_FAILED = (
    "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly "
    "including the signature."
)
_NOT_AUTHORIZED = "This request is not authorized to perform this operation"


def failed(why: str) -> Fault:
    """The fault AuthenticationFailed."""
    return Fault(Code.AUTHENTICATION_FAILED, f"{_FAILED} {why}")


def read_token(query: str, account: str, keys: Iterable[bytes]) -> AccountSas | TableSas:
    """
    The token of a query string, signed with one of the account's keys.

    Raises:
        Fault: AuthenticationFailed: it is no token, or the signature is wrong, which is not in the message.
    """
    try:
        token, signature = parse_sas(query)
    except ValueError as error:
        raise failed(f"The shared access signature: {error}.") from None
    if not verify_sas(token, signature, account, keys):
        raise failed("Signature did not match.")
    return token


def admit(
    token: AccountSas | TableSas,
    policy: AccessPolicy | None,
    *,
    now: dt.datetime,
    address: str,
    scheme: str,
) -> AccountSas | TableSas:
    """
    What a verified token allows at this time, from this place.

    Args:
        token: As `read_token` returns it.
        policy: The stored access policy that it names; None if there is none of that name, or it names none.
        now: The time.
        address: Where the request comes from.
        scheme: `http` or `https`.

    Returns:
        The token, with what its policy supplies.

    Raises:
        Fault: AuthenticationFailed, or one of the Authorization...Mismatch family.
    """
    if isinstance(token, TableSas) and token.si is not None:
        if policy is None:
            raise failed(f"The table has no stored access policy {token.si!r}.")
        try:
            token = under_policy(token, policy)
        except ValueError as error:
            raise failed(f"The shared access signature: {error}.") from None
    problem = time_fault(token, now)
    if problem:
        raise failed(f"Signature not valid in the specified time frame: {problem}.")
    if not allows_address(token, address):
        raise Fault(Code.AUTHORIZATION_SOURCE_IP, f"{_NOT_AUTHORIZED} using this source IP.")
    if not allows_protocol(token, scheme):
        raise Fault(Code.AUTHORIZATION_PROTOCOL, f"{_NOT_AUTHORIZED} using this protocol.")
    if isinstance(token, AccountSas) and not token.allows_tables:
        raise Fault(Code.AUTHORIZATION_SERVICE, f"{_NOT_AUTHORIZED} using this service.")
    return token


def authorize(rights: Rights, access: Access, table: str, keys: tuple[str, str] | None) -> None:
    """
    Refuse what is not allowed.

    Args:
        rights: Of whoever asks.
        access: What is asked for.
        table: Of which table; empty if of none.
        keys: PartitionKey and RowKey of the entity that it is about; None if it is about none, or they are not known.

    Raises:
        Fault: AuthorizationResourceTypeMismatch, AuthorizationPermissionMismatch, AuthorizationFailure; says which
            right is missing, or which range was left.
    """
    match rights:
        case Owner():
            return
        case AccountSas():
            if not rights.allows_type(access):
                raise Fault(
                    Code.AUTHORIZATION_RESOURCE_TYPE,
                    f"{_NOT_AUTHORIZED} using this resource type: {access}; the token is for {rights.srt!r}.",
                )
        case TableSas():
            if access not in TABLE_PERMISSIONS or not rights.allows_table(table):
                raise Fault(
                    Code.AUTHORIZATION_FAILURE,
                    f"{_NOT_AUTHORIZED}: {access}; the token is for entities of the table {rights.tn!r}.",
                )
            if keys is not None and not rights.keys.contains(*keys):
                raise Fault(
                    Code.AUTHORIZATION_FAILURE,
                    f"{_NOT_AUTHORIZED}: {access}; the entity {keys} is not in the range of keys that the token is "
                    f"for, {rights.keys}.",
                )
    if not rights.allows(access):
        letters = (TABLE_PERMISSIONS[access],) if isinstance(rights, TableSas) else ACCOUNT_RULES[access][1]
        needed = " or ".join(map(repr, letters))
        raise Fault(
            Code.AUTHORIZATION_PERMISSION,
            f"{_NOT_AUTHORIZED} using this permission: {access} needs {needed}; the token allows {rights.sp or ''!r}.",
        )


def range_of(rights: Rights) -> KeyRange | None:
    """The rows that a query may return; None for all."""
    return rights.keys if isinstance(rights, TableSas) else None
