"""
Authentication: who signed a request, and what the signature allows.

First the signature is checked, then whether it allows what is asked for (`tableorm.protocol.rights`). Each part of a
transaction is checked by itself, with the rights of the transaction's signature.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.rights import Owner, Rights, admit, failed, read_token
from tableorm.protocol.sas import AccessPolicy, TableSas
from tableorm.protocol.shared_key import SignedParts, date_fault, parse_authorization, verify

from ..wire.addressing import Place
from .accounts import Accounts

__all__ = ["Credentials", "TokenStore", "authenticate"]


class TokenStore(Protocol):
    """The policies and keys for tokens that are stored with the data."""

    async def policy(self, account: str, table: str, name: str) -> AccessPolicy | None:
        """Return a stored access policy; None if the table has none of that name, or does not exist."""
        ...

    async def keys(self, account: str) -> Sequence[bytes]:
        """Return the keys besides the account's own that sign tokens: the file's, for programs that have it open."""
        ...


@attrs.frozen(kw_only=True)
class Credentials:
    """
    The parts of a request that show who sent it.

    Args:
        verb: The verb of the request line.
        place: Account and path.
        headers: The headers of the request.
        options: The parameters of its query, decoded.
        query: The query itself, percent-encoded.
        version: The version of the service that the client asks for.
        scheme: `http` or `https`.
        address: The client's address.
        now: The time when the request arrived.
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


# From this version on the service says that credentials are missing. Source: REST, "Versioning for Azure Storage".
_NAMES_MISSING_CREDENTIALS = "2019-12-12"


async def authenticate(given: Credentials, accounts: Accounts, store: TokenStore) -> Rights:
    """
    Find out what the sender may do.

    Raises:
        Fault: NoAuthenticationInformation, AuthenticationFailed, InvalidAuthenticationInfo, or one of the
            Authorization...Mismatch family. The message shows neither signature nor key.
    """
    header = given.headers.get("Authorization")
    if header is not None:
        _check_shared_key(given, header, accounts)
        return Owner()
    if "sig" in given.options:
        return await _check_sas(given, accounts, store)
    if given.version >= _NAMES_MISSING_CREDENTIALS:
        raise Fault(
            Code.NO_AUTHENTICATION,
            "Server failed to authenticate the request. Please refer to the information in the www-authenticate "
            "header.",
        )
    raise failed("It has neither an Authorization header nor a shared access signature.")


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
        raise failed(f"The date of the request: {problem}.")
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
        raise failed("The signature is not that of this request with a key of the account.")


async def _check_sas(given: Credentials, accounts: Accounts, store: TokenStore) -> Rights:
    account = given.place.account
    token = read_token(given.query, account, [*accounts.keys(account), *await store.keys(account)])
    policy = None
    if isinstance(token, TableSas) and token.si is not None:
        policy = await store.policy(account, token.tn, token.si)
    return admit(token, policy, now=given.now, address=given.address, scheme=given.scheme)
