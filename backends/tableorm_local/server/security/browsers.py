"""
Browsers: keeps foreign web pages from an account whose key is published, so that every page can sign for it.

A page reaches a server of this machine in two ways: by a name of its own that it lets stand for 127.0.0.1 for a while,
and by requests that browsers send to other origins without asking first.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from tableorm.protocol.codes import Code, Fault

from .accounts import is_loopback


@lru_cache
def names_this_machine(host: str) -> bool:
    """Return whether a header `Host` has a name that stands for this machine wherever it is looked up."""
    found = _HOST.fullmatch(host.lower())
    name = "" if found is None else found.group(1).removesuffix(".")
    return name.endswith(".localhost") or is_loopback(name)


# A name or an address, perhaps with a port, and nothing else.
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s@:/?#\[\]\\]+)(?::[0-9]*)?")


def _is_cross_origin(scheme: str, headers: Mapping[str, str]) -> bool:
    """Return whether a page of another origin sends a request, as far as the browser says so."""
    origin = headers.get("Origin")
    if origin is not None and origin.lower() != f"{scheme}://{headers.get('Host', '')}".lower():
        return True
    return headers.get("Sec-Fetch-Site", "").strip().lower() == "cross-site"


def check_browser(account: str, scheme: str, headers: Mapping[str, str], *, allowed: bool) -> None:
    """
    Refuse a request for an account with the published key that a foreign page may have sent.

    Args:
        account: The name of the account.
        scheme: `http` or `https`.
        headers: The headers of the request.
        allowed: Whether a rule of CORS allows the origin of the request.

    Raises:
        Fault: AuthorizationFailure.
    """
    host = headers.get("Host", "")
    if not names_this_machine(host):
        raise _refusal(
            account,
            f"it is served under the names of this machine alone, such as 127.0.0.1 and localhost (got {host[:80]!r})",
        )
    if not allowed and _is_cross_origin(scheme, headers):
        origin = headers.get("Origin", "another site")
        raise _refusal(account, f"pages of another origin need a rule of CORS (got {origin[:80]!r})")


def _refusal(account: str, why: str) -> Fault:
    return Fault(
        Code.AUTHORIZATION_FAILURE,
        f"This request is not authorized to perform this operation. The key of the account {account} is published, so "
        f"{why}; or give the server an account with a key of its own.",
    )
