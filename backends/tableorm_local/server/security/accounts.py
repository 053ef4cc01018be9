"""
Accounts: who may sign requests, and with which keys; and which addresses only this machine can reach.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import attrs

from tableorm.protocol.sas import read_address
from tableorm.protocol.shared_key import DEVELOPMENT_ACCOUNT, decode_key

from ..wire.addressing import SECONDARY

__all__ = [
    "DEVELOPMENT_ACCOUNT",
    "DEVELOPMENT_KEY",
    "Account",
    "Accounts",
    "is_loopback",
    "read_keys",
]

# Published, the same for everyone: what clients expand `UseDevelopmentStorage=true` to.
# Source: "Use the Azurite emulator for local Azure Storage development", "Well-known storage account and key".
DEVELOPMENT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

_PUBLIC_KEY = decode_key(DEVELOPMENT_KEY)

# Source: "Storage account overview", "Storage account name".
_NAME = re.compile(r"[a-z0-9]{3,24}")
# In path style the first segment of the path is the account; these are pages of the server itself.
_RESERVED = frozenset({"healthz", "metrics"})
_MAX_KEYS = 2


def _decode_keys(keys: Iterable[str]) -> tuple[bytes, ...]:
    return tuple(decode_key(key) for key in keys)


@attrs.frozen(kw_only=True)
class Account:
    """
    An account of the server.

    Args:
        name: 3 to 24 lower case letters and digits.
        keys: One or two keys, in base64. Requests may be signed with either, so that one can be replaced while clients
            still use the other.

    Raises:
        ValueError: The name or a key cannot be used. The message does not show the key.
    """

    name: str
    keys: tuple[bytes, ...] = attrs.field(converter=_decode_keys, repr=False)

    def __attrs_post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name in _RESERVED:
            # The message leaves out the name, which is the key where the two were confused.
            raise ValueError(
                "the account name is not 3 to 24 lower case letters and digits, or it is one of "
                f"{', '.join(sorted(_RESERVED))}; choose another"
            )
        if not 1 <= len(self.keys) <= _MAX_KEYS:
            raise ValueError(f"account {self.name} has {len(self.keys)} keys; give one or two")

    @classmethod
    def development(cls) -> "Account":
        """Return the account whose key everyone knows."""
        return cls(name=DEVELOPMENT_ACCOUNT, keys=(DEVELOPMENT_KEY,))

    @property
    def is_public(self) -> bool:
        """Whether anyone can sign for it: one of its keys is the published one."""
        return _PUBLIC_KEY in self.keys


class Accounts:
    """
    The accounts of a server, by name.

    Raises:
        ValueError: There is no account, or two have the same name.
    """

    def __init__(self, accounts: Iterable[Account]) -> None:
        accounts = tuple(accounts)
        self._accounts = {account.name: account for account in accounts}
        if not accounts:
            raise ValueError("a server needs an account; leave `accounts` out for the development account")
        if len(self._accounts) < len(accounts):
            raise ValueError(f"two accounts have one name: {', '.join(account.name for account in accounts)}")

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in the order given."""
        return tuple(self._accounts)

    @property
    def any_public(self) -> bool:
        """Whether anyone can sign for one of them."""
        return any(account.is_public for account in self._accounts.values())

    def is_public(self, name: str) -> bool:
        """Return whether anyone can sign for an account."""
        return self._accounts[name].is_public

    def find(self, name: str) -> tuple[str, bool] | None:
        """Find the account of a host or path, and whether its secondary location is meant; None if there is none."""
        if name in self._accounts:
            return name, False
        primary = name.removesuffix(SECONDARY)
        return (primary, True) if primary in self._accounts else None

    def keys(self, name: str) -> tuple[bytes, ...]:
        """Return the keys of an account, now."""
        return self._accounts[name].keys

    def replace_keys(self, keys: Mapping[str, Iterable[str]]) -> None:
        """
        Replace the keys of accounts, from now on.

        Raises:
            ValueError: An account does not exist, or a key cannot be used; nothing was changed.
        """
        unknown = sorted(keys.keys() - self._accounts.keys())
        if unknown:
            raise ValueError(f"there is no account {', '.join(unknown)}; there are {', '.join(self._accounts)}")
        self._accounts |= {name: Account(name=name, keys=tuple(given)) for name, given in keys.items()}


def read_keys(path: Path) -> tuple[str, ...]:
    """
    Read the keys in a file: one or two lines of base64; blank lines and lines that start with # do not count.

    Raises:
        OSError: The file cannot be read.
        ValueError: There are no keys, or too many, or they are not base64. The message shows no key.
    """
    try:
        lines = [line.strip() for line in path.read_bytes().decode().splitlines()]
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not a text file; put one or two keys in it, in base64, a line each") from None
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not 1 <= len(keys) <= _MAX_KEYS:
        raise ValueError(f"{path}: {len(keys)} keys; put one or two in it, in base64, a line each")
    try:
        _decode_keys(keys)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return keys


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine can connect to a server that listens at this address."""
    if host == "localhost":
        return True
    try:
        return read_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
