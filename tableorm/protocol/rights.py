"""
Rights: what a token allows, decided in one place for servers, embedded engines and clients.

A server and an engine call `read_token`, which verifies the signature, and then `admit`, which checks time and place. A
client has the token but not the key, and can only read what the token says. That is enough to refuse what the service
would refuse, before anything is sent.
"""

import datetime as dt
from collections.abc import Iterable

import attrs

from .codes import Code, Fault
from .key_range import KeyRange
from .sas import (
    ACCOUNT_RULES,
    TABLE_PERMISSIONS,
    AccessPolicy,
    AccountSas,
    Action,
    TableSas,
    allows_address,
    allows_protocol,
    parse_sas,
    time_fault,
    under_policy,
    verify_sas,
)


@attrs.frozen
class Owner:
    """The rights of a caller who has a key of the account: everything is allowed."""


Rights = Owner | AccountSas | TableSas
"""What a caller may do."""

_FAILED = (
    "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly "
    "including the signature."
)
_NOT_AUTHORIZED = "This request is not authorized to perform this operation"


def failed(why: str) -> Fault:
    """Make the fault AuthenticationFailed."""
    return Fault(Code.AUTHENTICATION_FAILED, f"{_FAILED} {why}")


def read_token(query: str, account: str, keys: Iterable[bytes]) -> AccountSas | TableSas:
    """
    Read the token of a query string, and verify that one of the account's keys has signed it.

    Raises:
        Fault: AuthenticationFailed: it is not a token, or its signature is wrong. The message leaves out the signature.
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
    Check that a verified token is valid at this time and from this place.

    Args:
        token: The token that `read_token` has returned.
        policy: The stored access policy that the token names; None if it names none, or the table has none of that
            name.
        now: The time.
        address: The address that the request comes from.
        scheme: `http` or `https`.

    Returns:
        The token, with the values that its policy supplies.

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


def authorize(rights: Rights, access: Action, table: str, keys: tuple[str, str] | None) -> None:
    """
    Refuse a request that the caller's rights do not allow.

    Args:
        rights: The caller's rights.
        access: What the caller asks for.
        table: The table that the request is about; empty if it is about none.
        keys: PartitionKey and RowKey of the entity that the request is about; None if it is about none, or they are
            not known.

    Raises:
        Fault: AuthorizationResourceTypeMismatch, AuthorizationPermissionMismatch or AuthorizationFailure. The message
            says which right is missing, or outside of which range the key is.
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
    """Return the range of rows that a query may return; None for all rows."""
    return rights.keys if isinstance(rights, TableSas) else None
