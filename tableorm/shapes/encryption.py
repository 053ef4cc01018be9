"""
Sealed rows: some properties of a row encrypted, and the row's metadata, which say how, authenticated as a whole.

Each row has a content key of its own, which a `KeyWrapper` wraps. Pure functions, but for the calls of the wrapper.
`docs/design/stored-fields.md` has the format; it needs the package cryptography, which `tableorm[encryption]` installs.
"""

import hmac
import os
from base64 import b64decode, b64encode
from collections.abc import Collection, Mapping
from typing import Any, Protocol

import attrs
import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap

from ..errors import EncryptionError, shown
from ..protocol.edm import ANNOTATION, Edm
from ..stores import Row, RowAddress

__all__ = ["METADATA", "ContentKey", "KeyRing", "KeyWrapper", "new_key", "open_key", "seal", "unseal"]

METADATA = "_en"
"""The property with the metadata of a sealed row."""

KEY_BYTES = 32

_FORMAT, _ALGORITHM = 1, "A256GCM"
_NONCE_BYTES, _TAG_BYTES = 12, 16
_JSON, _BYTES = b"\0", b"\1"


class KeyWrapper(Protocol):
    """What wraps content keys: a `KeyRing`, or a service that never gives its keys away."""

    async def wrap(self, key: bytes) -> tuple[str, bytes]:
        """Return the id of the key that wraps a content key, and the wrapped content key."""
        ...

    async def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
        """Return the content key. Raises EncryptionError if it was not wrapped by a key of this id."""
        ...


class KeyRing:
    """
    Keys in the memory of the program, by their ids. They wrap content keys by AES Key Wrap (RFC 3394).

    Args:
        keys: Keys of 32 bytes.
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
        """Return the id of the key that wraps a content key, and the wrapped content key."""
        return self._wrap_with, aes_key_wrap(self._keys[self._wrap_with], key)

    async def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
        """Return the content key. Raises EncryptionError if it was not wrapped by a key of this id."""
        if key_id not in self._keys:
            raise EncryptionError(f"needs the key {shown(key_id)}, and the KeyRing has {', '.join(self._keys)}")
        try:
            return aes_key_unwrap(self._keys[key_id], wrapped)
        except (InvalidUnwrap, ValueError):
            raise EncryptionError(f"has a content key that was not wrapped by the key {shown(key_id)}") from None


@attrs.frozen(eq=False)
class ContentKey:
    """
    The key of a row.

    Args:
        key_id: The id of the key that wraps it.
        wrapped: The wrapped key.
        commitment: What is stored of it, so that no other key opens the row.
    """

    key_id: str
    wrapped: bytes
    commitment: bytes
    _values: AESGCM = attrs.field(repr=False)
    _metadata: bytes = attrs.field(repr=False)

    @classmethod
    def of(cls, key: bytes, key_id: str, wrapped: bytes) -> "ContentKey":
        """Return the keys that are derived from a content key."""
        commitment, values, metadata = (_derive(key, use) for use in ("commitment", "values", "metadata"))
        return cls(key_id, wrapped, commitment, AESGCM(values), metadata)

    def encrypt(self, text: bytes, bound: bytes) -> bytes:
        """Return a nonce, what a value becomes, and its tag."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._values.encrypt(nonce, text, bound)

    def decrypt(self, sealed: bytes, bound: bytes) -> bytes:
        """Return the value. Raises InvalidTag if it is another one, or is bound to another place."""
        return self._values.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound)

    def authenticate(self, text: bytes) -> bytes:
        """Return the HMAC of metadata."""
        return hmac.digest(self._metadata, text, "sha256")


class _Metadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    algorithm: str
    key: str
    wrapped: str
    commitment: str
    tags: dict[str, str]


async def new_key(keys: KeyWrapper) -> ContentKey:
    """Return a new content key, for a row that is written as a whole."""
    key = os.urandom(KEY_BYTES)
    return ContentKey.of(key, *await keys.wrap(key))


async def open_key(metadata: object, address: RowAddress, keys: KeyWrapper) -> ContentKey:
    """
    Return the content key of a row, by the value of its property `METADATA`.

    Raises:
        EncryptionError: The metadata are of an unknown format, or the key is not the one that the row was sealed with.
    """
    found = _parse(metadata, address)[0]
    wrapped = _bytes(found.wrapped, address)
    try:
        key = await keys.unwrap(found.key, wrapped)
    except EncryptionError as error:
        raise EncryptionError(error.problem, address) from None
    if len(key) != KEY_BYTES:
        raise EncryptionError(f"has a content key of {len(key)} bytes, and {KEY_BYTES} are needed", address)
    made = ContentKey.of(key, found.key, wrapped)
    _check_key(found, made, address)
    return made


def seal(row: Row, names: Collection[str], address: RowAddress, key: ContentKey, old: object = None) -> Row:
    """
    Return a row with some of its properties sealed, and its metadata.

    Args:
        row: All properties of an insert or replace, or those of a merge.
        names: The properties to seal, where the row has them.
        address: Where the row is.
        key: A new content key; for a merge that of the stored row.
        old: For a merge the metadata of the row, as they were read. The merge needs the ETag of that row.

    Raises:
        EncryptionError: The old metadata are not those of the row and the key.
    """
    tags = {} if old is None else dict(_verify(old, address, key).tags)
    sealed = dict(row)
    for name in [name for name, value in row.items() if value is not None and ANNOTATION not in name]:
        tags.pop(name, None)
        if name in names:
            value = key.encrypt(_written(row, name), _bound(address, name))
            sealed[name], sealed[name + ANNOTATION] = b64encode(value).decode(), Edm.BINARY.value
            tags[name] = b64encode(value[-_TAG_BYTES:]).decode()
    wrapped, commitment = b64encode(key.wrapped).decode(), b64encode(key.commitment).decode()
    text = msgspec.json.encode(_Metadata(_FORMAT, _ALGORITHM, key.key_id, wrapped, commitment, tags))
    code = b64encode(key.authenticate(_bound(address) + text)).decode()
    sealed[METADATA] = f"{code} {text.decode()}"
    return sealed


def unseal(row: Row, names: Collection[str], address: RowAddress, key: ContentKey, *, complete: bool = True) -> Row:
    """
    Return a row as it was before it was sealed, without its metadata.

    Args:
        row: As it is stored.
        names: The properties that were to be sealed; of a row that was read in part those that were asked for.
        address: Where the row is.
        key: The content key of the row.
        complete: Whether all properties were read.

    Raises:
        EncryptionError: Something is not as it was sealed, or not for this place, or is missing. An older state of the
            whole row is not told from a newer one.
    """
    tags = _verify(row.get(METADATA), address, key).tags
    plain = {name: value for name, value in row.items() if name.partition(ANNOTATION)[0] != METADATA}
    for name in {*names, *tags}:
        if row.get(name) is None:
            if name in tags and (complete or name in names):
                raise EncryptionError("was sealed, and is missing", address, name)
        elif name not in tags:
            raise EncryptionError("is not sealed", address, name)
        else:
            value, kind = _opened(row, name, tags[name], address, key)
            plain.pop(name + ANNOTATION, None)
            plain[name] = value
            if kind is not None:
                plain[name + ANNOTATION] = kind
    return plain


def _derive(key: bytes, use: str) -> bytes:
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=f"tableorm sealed row {_FORMAT} {use}".encode()).derive(key)


def _bound(address: RowAddress, name: str = "") -> bytes:
    """Return what values and metadata are bound to: each text after its length, so that none runs into the next."""
    texts = (address.table.lower(), address.partition_key, address.row_key, name)  # tables have names of any case
    return b"".join(len(each.encode()).to_bytes(4, "big") + each.encode() for each in texts)


def _written(row: Row, name: str) -> bytes:
    """Return a value and its type as they are encrypted."""
    value, kind = row[name], row.get(name + ANNOTATION)
    if kind == Edm.BINARY:
        return _BYTES + b64decode(value)
    return _JSON + msgspec.json.encode([value] if kind is None else [value, kind])


def _opened(row: Row, name: str, tag: str, address: RowAddress, key: ContentKey) -> tuple[Any, str | None]:
    """Return a value and its type."""
    stored = _bytes(row[name], address, name)
    if row.get(name + ANNOTATION) != Edm.BINARY or b64encode(stored[-_TAG_BYTES:]).decode() != tag:
        raise EncryptionError("is another value than the one that was sealed last", address, name)
    try:
        text = key.decrypt(stored, _bound(address, name))
    except (InvalidTag, ValueError):
        raise EncryptionError("is not as it was sealed, or not for this place", address, name) from None
    if text[:1] == _BYTES:
        return b64encode(text[1:]).decode(), Edm.BINARY.value
    value, *kind = msgspec.json.decode(text[1:])
    return value, kind[0] if kind else None


def _bytes(text: object, address: RowAddress, name: str | None = None) -> bytes:
    """Return what base64 stands for. Raises EncryptionError, also if other text stands for the same."""
    try:
        data = b64decode(text, validate=True) if isinstance(text, str) else b""
    except ValueError:
        data = b""
    if not data or b64encode(data).decode() != text:
        raise EncryptionError("holds what was not sealed", address, name)
    return data


def _parse(metadata: object, address: RowAddress) -> tuple[_Metadata, bytes, bytes]:
    """Return metadata, their code, and their text. What is of an unknown format is refused, and never tried."""
    code, _, text = metadata.partition(" ") if isinstance(metadata, str) else ("", "", "")
    try:
        found: Any = msgspec.json.decode(text)
        kind = (found["format"], found["algorithm"])
        if kind == (_FORMAT, _ALGORITHM):
            return msgspec.convert(found, _Metadata), _bytes(code, address), text.encode()
    except (ValueError, TypeError, LookupError, RecursionError):
        raise EncryptionError("has no metadata of a sealed row", address) from None
    raise EncryptionError(f"is sealed in the format {shown(kind)}, which this version does not know", address)


def _check_key(found: _Metadata, key: ContentKey, address: RowAddress) -> None:
    if not hmac.compare_digest(_bytes(found.commitment, address), key.commitment):
        raise EncryptionError("was sealed with another content key", address)


def _verify(metadata: object, address: RowAddress, key: ContentKey) -> _Metadata:
    """Return metadata, once their key and all of them are authenticated."""
    found, code, text = _parse(metadata, address)
    _check_key(found, key, address)
    if not hmac.compare_digest(code, key.authenticate(_bound(address) + text)):
        raise EncryptionError("has other metadata than those that were sealed, or for another place", address)
    return found
