"""
Authentication and authorization: who signed a request, and what that allows.

First the signature is checked, then what it is asked for; a part of a transaction is checked by itself, with the rights
that the transaction was signed with.
"""

import datetime as dt
from collections.abc import Mapping
from typing import Protocol

import attrs

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.key_range import KeyRange
from tableorm.protocol.sas import (
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
from tableorm.protocol.shared_key import SignedParts, date_fault, parse_authorization, verify

from .accounts import Accounts
from .addressing import Place

__all__ = ["Credentials", "Owner", "Policies", "Rights", "authenticate", "authorize", "range_of"]


class Policies(Protocol):
    """Where the stored access policies of tables are."""

    async def policy(self, account: str, table: str, name: str) -> AccessPolicy | None:
        """The policy of that name; None if there is none, or no such table."""
        ...


@attrs.frozen
class Owner:
    """A request that was signed with a key of the account: it may do everything."""


Rights = Owner | AccountSas | TableSas
"""What a request may do."""


@attrs.frozen(kw_only=True)
class Credentials:
    """
    What of a request shows who sent it.

    Args:
        verb: As in the request line.
        place: Account and path.
        headers: Of the request.
        options: Of its query.
        query: The query itself, percent-encoded.
        version: Of the service, that it asks for.
        scheme: `http` or `https`.
        address: Where the connection comes from.
        now: When it arrived.
    """

    verb: str
    place: Place
    headers: Mapping[str, str]
    options: Mapping[str, str]
    query: str = attrs.field(repr=False)
    version: str
    scheme: str
    address: str
    now: dt.datetime


# From it on the service names the obstacle. Source: REST, "Versioning for Azure Storage".
_NAMES_MISSING_CREDENTIALS = "2019-12-12"

_FAILED = (
    "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly "
    "including the signature."
)


def _failed(why: str) -> Fault:
    return Fault(Code.AUTHENTICATION_FAILED, f"{_FAILED} {why}")


async def authenticate(given: Credentials, accounts: Accounts, policies: Policies) -> Rights:
    """
    Find out what the sender may do.

    Raises:
        Fault: NoAuthenticationInformation, AuthenticationFailed, InvalidAuthenticationInfo, or one of the
            Authorization...Mismatch family. Neither signature nor key is in the message.
    """
    header = given.headers.get("Authorization")
    if header is not None:
        _check_shared_key(given, header, accounts)
        return Owner()
    if "sig" in given.options:
        return await _check_sas(given, accounts, policies)
    if given.version >= _NAMES_MISSING_CREDENTIALS:
        raise Fault(
            Code.NO_AUTHENTICATION,
            "Server failed to authenticate the request. Please refer to the information in the www-authenticate "
            "header.",
        )
    raise _failed("It has neither an Authorization header nor a shared access signature.")


def _check_shared_key(given: Credentials, header: str, accounts: Accounts) -> None:
    try:
        authorization = parse_authorization(header)
    except ValueError as error:
        raise Fault(
            Code.INVALID_AUTHENTICATION_INFO,
            f"The authentication information was not provided in the correct format: {error}.",
        ) from None
    date = given.headers.get("x-ms-date") or given.headers.get("Date") or ""
    problem = date_fault(date, given.now)
    if problem:
        raise _failed(f"The date of the request: {problem}.")
    account = given.place.account
    parts = SignedParts(
        verb=given.verb,
        account=account,
        path=given.place.path,
        date=date,
        content_md5=given.headers.get("Content-MD5", ""),
        content_type=given.headers.get("Content-Type", ""),
        comp=given.options.get("comp"),
    )
    if not verify(authorization, parts, accounts.keys(account)):
        raise _failed("The signature is not that of this request with a key of the account.")


async def _check_sas(given: Credentials, accounts: Accounts, policies: Policies) -> Rights:
    try:
        token, signature = parse_sas(given.query)
    except ValueError as error:
        raise _failed(f"The shared access signature: {error}.") from None
    account = given.place.account
    if not verify_sas(token, signature, account, accounts.keys(account)):
        raise _failed("Signature did not match.")
    if isinstance(token, TableSas) and token.si is not None:
        policy = await policies.policy(account, token.tn, token.si)
        if policy is None:
            raise _failed(f"The table has no stored access policy {token.si!r}.")
        try:
            token = under_policy(token, policy)
        except ValueError as error:
            raise _failed(f"The shared access signature: {error}.") from None
    problem = time_fault(token, given.now)
    if problem:
        raise _failed(f"Signature not valid in the specified time frame: {problem}.")
    if not allows_address(token, given.address):
        raise Fault(
            Code.AUTHORIZATION_SOURCE_IP,
            "This request is not authorized to perform this operation using this source IP.",
        )
    if not allows_protocol(token, given.scheme):
        raise Fault(
            Code.AUTHORIZATION_PROTOCOL, "This request is not authorized to perform this operation using this protocol."
        )
    if isinstance(token, AccountSas) and not token.allows_tables:
        raise Fault(
            Code.AUTHORIZATION_SERVICE, "This request is not authorized to perform this operation using this service."
        )
    return token


_NOT_AUTHORIZED = "This request is not authorized to perform this operation"


def authorize(rights: Rights, access: Access, table: str, keys: tuple[str, str] | None) -> None:
    """
    Refuse what the sender may not do.

    Args:
        rights: Of the request.
        access: What it does.
        table: To which table; empty if to none.
        keys: PartitionKey and RowKey of the entity that it is about; None if it is about none, or they are in the body.

    Raises:
        Fault: AuthorizationResourceTypeMismatch, AuthorizationPermissionMismatch, AuthorizationFailure.
    """
    match rights:
        case Owner():
            return
        case AccountSas():
            if not rights.allows_type(access):
                raise Fault(Code.AUTHORIZATION_RESOURCE_TYPE, f"{_NOT_AUTHORIZED} using this resource type: {access}.")
        case TableSas():
            if access not in TABLE_PERMISSIONS or not rights.allows_table(table):
                raise Fault(
                    Code.AUTHORIZATION_FAILURE,
                    f"{_NOT_AUTHORIZED}: {access}; the token is for entities of the table {rights.tn!r}.",
                )
            if keys is not None and not rights.keys.contains(*keys):
                raise Fault(
                    Code.AUTHORIZATION_FAILURE,
                    f"{_NOT_AUTHORIZED}: {access}; the entity is not in the range of keys that the token is for.",
                )
    if not rights.allows(access):
        raise Fault(
            Code.AUTHORIZATION_PERMISSION,
            f"{_NOT_AUTHORIZED} using this permission: {access}; the token allows {rights.sp or ''!r}.",
        )


def range_of(rights: Rights) -> KeyRange | None:
    """The rows that a query may return; None for all."""
    return rights.keys if isinstance(rights, TableSas) else None
