"""
Keys that wrap the content keys of sealed rows, and the cipher of a key.

The package cryptography, which `tableorm[encryption]` installs, is imported when a key is made or used.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import EncryptionError, shown

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32


def cipher_of(key: bytes) -> "AESGCM":
    """Return the cipher of a key. Raises EncryptionError if the package cryptography is not installed."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415
    except ImportError:
        raise EncryptionError(
            "encrypted fields need the package cryptography; install tableorm with its extra 'encryption'"
        ) from None
    return AESGCM(key)


class KeyWrapper(Protocol):
    """Wraps content keys: a `KeyRing`, or a service that never reveals its keys."""

    async def wrap(self, key: bytes) -> tuple[str, bytes]:
        """Return the id of the key that wraps the content key, and the wrapped content key."""
        ...

    async def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
        """Return the content key. Raises EncryptionError if it was not wrapped by the key of this id."""
        ...


class KeyRing:
    """
    Keys in the memory of the program, by id. They wrap content keys with AES Key Wrap (RFC 3394).

        keys = KeyRing({"2026": new_key, "2025": old_key}, wrap_with="2026")

    Args:
        keys: The keys, 32 bytes each.
        wrap_with: The id of the key that wraps new content keys. The others only unwrap older ones.
    """

    __slots__ = ("_keys", "_wrap_with")

    def __init__(self, keys: Mapping[str, bytes], *, wrap_with: str) -> None:
        for name, key in keys.items():
            if type(key) is not bytes or len(key) != KEY_BYTES:
                raise EncryptionError(f"the key {name!r} of a KeyRing has to be {KEY_BYTES} bytes")
        if wrap_with not in keys:
            raise EncryptionError(f"KeyRing(wrap_with={wrap_with!r}) names none of its keys: {', '.join(keys)}")
        self._keys, self._wrap_with = dict(keys), wrap_with

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self._keys)}; wraps with {self._wrap_with})"

    def __reduce__(self) -> Any:
        raise TypeError("a KeyRing is not pickled: that would write its keys")

    async def wrap(self, key: bytes) -> tuple[str, bytes]:
        """Return the id of the key that wraps the content key, and the wrapped content key."""
        from cryptography.hazmat.primitives.keywrap import aes_key_wrap  # noqa: PLC0415

        return self._wrap_with, aes_key_wrap(self._keys[self._wrap_with], key)

    async def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
        """Return the content key. Raises EncryptionError if it was not wrapped by the key of this id."""
        from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap  # noqa: PLC0415

        if key_id not in self._keys:
            raise EncryptionError(f"needs the key {shown(key_id)}, and the KeyRing has {', '.join(self._keys)}")
        try:
            return aes_key_unwrap(self._keys[key_id], wrapped)
        except (InvalidUnwrap, ValueError):
            raise EncryptionError(f"has a content key that was not wrapped by the key {shown(key_id)}") from None
