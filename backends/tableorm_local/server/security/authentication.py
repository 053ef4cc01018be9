"""
Authentication: who signed a request, and what the signature allows.

First the signature is checked, then whether it allows what is asked for (`tableorm.protocol.rights`). Each part of a
transaction is checked by itself, with the rights of the transaction's signature.
"""

import datetime as dt

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.rights import Owner, Rights, failed, read_token
from tableorm.protocol.shared_key import SignedParts, date_fault, parse_authorization, verify

from ...engine import AccessRecords
from ..wire.calls import Incoming

# From this version on the service says that credentials are missing. Source: REST, "Versioning for Azure Storage".
_NAMES_MISSING_CREDENTIALS = "2019-12-12"


async def authenticate(
    given: Incoming, keys: tuple[bytes, ...], records: AccessRecords, *, file_tokens: bool
) -> Rights:
    """
    Find out what the sender may do.

    Args:
        given: The request.
        keys: The keys of its account.
        records: The stored access policies, and the key of the account's file.
        file_tokens: Whether that key signs tokens too.

    Raises:
        Fault: NoAuthenticationInformation, AuthenticationFailed, InvalidAuthenticationInfo, or one of the
            Authorization...Mismatch family. The message shows neither signature nor key.
    """
    header = given.headers.get("Authorization")
    if header is not None:
        _check_shared_key(given, header, keys)
        return Owner()
    if "sig" in given.options:
        signing_keys = (*keys, *await records.keys()) if file_tokens else keys
        token = read_token(given.query, given.place.account, signing_keys)
        return await records.admit(token, address=given.address, scheme=given.scheme)
    if given.version >= _NAMES_MISSING_CREDENTIALS:
        raise Fault(
            Code.NO_AUTHENTICATION,
            "Server failed to authenticate the request. Please refer to the information in the www-authenticate "
            "header.",
        )
    raise failed("It has neither an Authorization header nor a shared access signature.")


def _check_shared_key(given: Incoming, header: str, keys: tuple[bytes, ...]) -> None:
    try:
        authorization = parse_authorization(header)
    except ValueError as error:
        raise Fault(
            Code.INVALID_AUTHENTICATION_INFO,
            f"The authentication information was not provided in the correct format: {error}.",
        ) from None
    date = given.headers.get("x-ms-date") or given.headers.get("Date") or ""
    problem = date_fault(date, dt.datetime.now(dt.UTC))
    if problem:
        raise failed(f"The date of the request: {problem}.")
    parts = SignedParts(
        verb=given.verb,
        account=given.place.account,
        path=given.place.path,
        date=date,
        content_md5=given.headers.get("Content-MD5", ""),
        content_type=given.headers.get("Content-Type", ""),
        comp=given.options.get("comp"),
    )
    if not verify(authorization, parts, keys):
        raise failed("The signature is not that of this request with a key of the account.")
