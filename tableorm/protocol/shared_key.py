"""
Shared Key: how a client signs a request with a key of the account, and how a server checks that.

Pure text and HMAC. The form for tables differs from the one for blobs and queues: no canonicalized headers, and the
date is always signed. Source: REST, "Authorize with Shared Key", "Table service (Shared Key authorization)".
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

__all__ = [
    "DEVELOPMENT_ACCOUNT",
    "MAX_SKEW",
    "Authorization",
    "Scheme",
    "SignedParts",
    "authorization",
    "date_fault",
    "decode_key",
    "matches",
    "parse_authorization",
    "sign",
    "verify",
]

DEVELOPMENT_ACCOUNT = "devstoreaccount1"
"""What clients expand `UseDevelopmentStorage=true` to, with a key that is published."""

# Source: REST, "Authorize with Shared Key", "Specifying the Date header".
MAX_SKEW = dt.timedelta(minutes=15)


class Scheme(StrEnum):
    """The two forms; `SharedKeyLite` leaves out verb, Content-MD5 and Content-Type."""

    SHARED_KEY = "SharedKey"
    SHARED_KEY_LITE = "SharedKeyLite"


@attrs.frozen(kw_only=True)
class SignedParts:
    """
    What of a request is signed.

    Args:
        verb: `GET`, `POST`, ... in capitals.
        account: Whose key signs; without `-secondary`.
        path: As in the request line, still percent-encoded. In path style it begins with the account.
        date: The text of `x-ms-date` if the request has it, else of `Date`.
        content_md5: The header's text, empty without the header.
        content_type: Likewise, with its parameters.
        comp: The query parameter `comp`, the only one that is signed; None without it.
    """

    verb: str
    account: str
    path: str
    date: str
    content_md5: str = ""
    content_type: str = ""
    comp: str | None = None

    def text(self, scheme: Scheme = Scheme.SHARED_KEY) -> str:
        """The string to sign."""
        resource = f"/{self.account}{self.path or '/'}"
        if self.comp is not None:
            resource += f"?comp={self.comp}"
        if scheme is Scheme.SHARED_KEY_LITE:
            return f"{self.date}\n{resource}"
        return f"{self.verb}\n{self.content_md5}\n{self.content_type}\n{self.date}\n{resource}"


def decode_key(text: str) -> bytes:
    """
    The bytes of an account key, which is given as base64.

    Raises:
        ValueError: It is not base64; the key itself is not in the message.
    """
    try:
        key = b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"the account key is not base64 ({error}); copy it whole from the account's keys") from None
    if not key:
        raise ValueError("the account key is empty; copy it from the account's keys")
    return key


def sign(key: bytes, text: str) -> str:
    """The signature of a string to sign: HMAC-SHA256 under the decoded key, in base64."""
    return b64encode(hmac.digest(key, _bytes(text), "sha256")).decode("ascii")


def _bytes(text: str) -> bytes:
    # Servers decode headers in this way, so that what was sent comes back byte for byte.
    return text.encode("utf-8", "surrogateescape")


def matches(signature: str, text: str, keys: Iterable[bytes]) -> bool:
    """
    Whether `signature` is that of `text` under one of `keys`.

    Every key is tried, and each comparison takes the same time, so that the time taken tells nothing.
    """
    found = False
    for key in keys:
        found |= hmac.compare_digest(_bytes(sign(key, text)), _bytes(signature))
    return found


def authorization(parts: SignedParts, key: bytes, scheme: Scheme = Scheme.SHARED_KEY) -> str:
    """The value of the `Authorization` header."""
    return f"{scheme} {parts.account}:{sign(key, parts.text(scheme))}"


@attrs.frozen
class Authorization:
    """An `Authorization` header, read."""

    scheme: Scheme
    account: str
    signature: str


_SCHEMES = {scheme.value: scheme for scheme in Scheme}


def parse_authorization(header: str) -> Authorization:
    """
    Read an `Authorization` header of Shared Key.

    Raises:
        ValueError: Another scheme, or not of the form `SCHEME ACCOUNT:SIGNATURE`. The signature is not in the message.
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
    Whether the header belongs to the request and was made with one of the account's keys, in constant time.

    At the secondary location a signature for the primary's path is accepted too: see `_signed_paths`.
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
    The paths that a client may have signed for a request to this path.

    In path style the secondary location is `/ACCOUNT-secondary/...`. Clients that fail over after they have signed
    send a signature made for `/ACCOUNT/...`; azure-data-tables moreover puts the secondary account before the
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
    What is wrong with the date of a signed request (`x-ms-date`, else `Date`) that arrives at `now`, or None.

    A signature is good for `MAX_SKEW` only, so that a request that was overheard cannot be sent again later.
    """
    sent = _moment(date)
    if sent is None:
        return f"{date[:60]!r} is not a date such as 'Thu, 29 Feb 2024 12:34:56 GMT'"
    if abs(now - sent) > MAX_SKEW:
        return f"{date!r} is more than {MAX_SKEW // dt.timedelta(minutes=1)} minutes off {now:%a, %d %b %Y %H:%M:%S %Z}"
    return None


# Whoever sends many requests sends many with the same second.
@functools.lru_cache(maxsize=64)
def _moment(date: str) -> dt.datetime | None:
    """The moment, in UTC unless it says otherwise; None if it is no date."""
    try:
        moment = parsedate_to_datetime(date)
    except (ValueError, TypeError, OverflowError):
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
