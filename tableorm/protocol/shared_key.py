"""
Shared Key: how a client signs a request with a key of the account, and how a server verifies it.

These functions work on text and HMACs only. The form for tables differs from the one for blobs and queues: it has no
canonicalized headers, and the date is always signed.

Source: REST, "Authorize with Shared Key", "Table service (Shared Key authorization)".
"""

import binascii
import datetime as dt
import functools
import hmac
from base64 import b64decode, b64encode
from collections.abc import Iterable
from email.utils import parsedate_to_datetime
from enum import StrEnum

import attrs

DEVELOPMENT_ACCOUNT = "devstoreaccount1"
"""The account that clients use for `UseDevelopmentStorage=true`, with a key that is published."""

# Source: REST, "Authorize with Shared Key", "Specifying the Date header".
MAX_SKEW = dt.timedelta(minutes=15)


class Scheme(StrEnum):
    """The two forms of Shared Key; `SharedKeyLite` leaves out the verb, Content-MD5 and Content-Type."""

    SHARED_KEY = "SharedKey"
    SHARED_KEY_LITE = "SharedKeyLite"


@attrs.frozen(kw_only=True)
class SignedParts:
    """
    The parts of a request that are signed.

    Args:
        verb: `GET`, `POST`, ... in capitals.
        account: The account whose key signs, without `-secondary`.
        path: The path in the request line, still percent-encoded. In path style it begins with the account.
        date: The text of `x-ms-date` if the request has it, else of `Date`.
        content_md5: The text of the header Content-MD5; empty if there is none.
        content_type: The text of the header Content-Type, with its parameters; empty if there is none.
        comp: The query parameter `comp`, the only one that is signed; None if there is none.
    """

    verb: str
    account: str
    path: str
    date: str
    content_md5: str = ""
    content_type: str = ""
    comp: str | None = None

    def text(self, scheme: Scheme = Scheme.SHARED_KEY) -> str:
        """Return the string to sign."""
        resource = f"/{self.account}{self.path or '/'}"
        if self.comp is not None:
            resource += f"?comp={self.comp}"
        if scheme is Scheme.SHARED_KEY_LITE:
            return f"{self.date}\n{resource}"
        return f"{self.verb}\n{self.content_md5}\n{self.content_type}\n{self.date}\n{resource}"


def decode_key(text: str) -> bytes:
    """
    Return the bytes of an account key, which is given as base64.

    Raises:
        ValueError: The text is not base64. The message leaves out the key.
    """
    try:
        key = b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"the account key is not base64 ({error}); copy it whole from the account's keys") from None
    if not key:
        raise ValueError("the account key is empty; copy it from the account's keys")
    return key


def sign(key: bytes, text: str) -> str:
    """Return the signature of a string to sign: its HMAC-SHA256 with the decoded key, in base64."""
    return b64encode(hmac.digest(key, _bytes(text), "sha256")).decode("ascii")


def _bytes(text: str) -> bytes:
    # Servers decode headers in this way, so that the bytes that were sent come back unchanged.
    return text.encode("utf-8", "surrogateescape")


def matches(signature: str, text: str, keys: Iterable[bytes]) -> bool:
    """
    Return whether one of `keys` has made `signature` for `text`.

    Every key is tried, and each comparison takes the same time, so that the time taken reveals nothing.
    """
    found = False
    for key in keys:
        found |= hmac.compare_digest(_bytes(sign(key, text)), _bytes(signature))
    return found


def authorization(parts: SignedParts, key: bytes, scheme: Scheme = Scheme.SHARED_KEY) -> str:
    """Return the value of the `Authorization` header."""
    return f"{scheme} {parts.account}:{sign(key, parts.text(scheme))}"


@attrs.frozen
class Authorization:
    """The parts of an `Authorization` header."""

    scheme: Scheme
    account: str
    signature: str


_SCHEMES = {scheme.value: scheme for scheme in Scheme}


def parse_authorization(header: str) -> Authorization:
    """
    Read an `Authorization` header of Shared Key.

    Raises:
        ValueError: The scheme is another one, or the form is not `SCHEME ACCOUNT:SIGNATURE`. The message leaves out the
            signature.
    """
    name, space, rest = header.strip().partition(" ")
    if name not in _SCHEMES:
        raise ValueError(f"the Authorization header has the scheme {name[:40]!r}; {' and '.join(_SCHEMES)} are known")
    account, colon, signature = rest.strip().partition(":")
    if not (space and account and colon and signature) or " " in account + signature:
        raise ValueError(f"the Authorization header is not of the form '{name} ACCOUNT:SIGNATURE'")
    return Authorization(_SCHEMES[name], account, signature)


def verify(given: Authorization, parts: SignedParts, keys: Iterable[bytes]) -> bool:
    """
    Return, in constant time, whether one of the account's keys has made this header for this request.

    At the secondary location a signature for the primary's path is accepted too; `_signed_paths` explains why.
    """
    if given.account != parts.account:
        return False
    keys = tuple(keys)
    found = False
    for path in _signed_paths(parts):
        signed = parts if path == parts.path else attrs.evolve(parts, path=path)
        found |= matches(given.signature, signed.text(given.scheme), keys)
    return found


def _signed_paths(parts: SignedParts) -> list[str]:
    """
    Return the paths that a client may have signed for a request to this path.

    In path style the secondary location is `/ACCOUNT-secondary/...`. Clients that switch to it after they have signed
    send a signature made for `/ACCOUNT/...`. In addition azure-data-tables puts the secondary account before the
    primary's path and sends `/ACCOUNT-secondary/ACCOUNT/...`. Both name the same resource, read-only.
    """
    paths = [parts.path]
    primary, secondary = f"/{parts.account}", f"/{parts.account}-secondary"
    if parts.path == secondary or parts.path.startswith(secondary + "/"):
        rest = parts.path.removeprefix(secondary)
        paths.append(primary + rest)
        if rest == primary or rest.startswith(primary + "/"):
            paths.append(rest)
    return paths


def date_fault(date: str, now: dt.datetime) -> str | None:
    """
    Return what is wrong with the date (`x-ms-date`, else `Date`) of a signed request that arrives at `now`, or None.

    A signature is valid for `MAX_SKEW` only, so that someone who overhears a request cannot send it again later.
    """
    sent = _parse_date(date)
    if sent is None:
        return f"{date[:60]!r} is not a date such as 'Thu, 29 Feb 2024 12:34:56 GMT'"
    if abs(now - sent) > MAX_SKEW:
        return f"{date!r} is more than {MAX_SKEW // dt.timedelta(minutes=1)} minutes off {now:%a, %d %b %Y %H:%M:%S %Z}"
    return None


# A client that sends many requests sends many in the same second.
@functools.lru_cache(maxsize=64)
def _parse_date(date: str) -> dt.datetime | None:
    """Read a date, in UTC unless it says otherwise; None if the text is not a date."""
    try:
        moment = parsedate_to_datetime(date)
    except (ValueError, TypeError, OverflowError):
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
