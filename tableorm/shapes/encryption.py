"""
Sealed rows: some properties of a row encrypted, and the row's metadata, which say how, authenticated as a whole.

Each row has a content key of its own, which a `KeyWrapper` wraps. Pure functions, but for the calls of the wrapper.
`docs/design/stored-fields.md` has the format.
"""

import hmac
import os
from base64 import b64decode, b64encode
from binascii import a2b_base64
from collections.abc import Collection
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import attrs
import msgspec

from ..errors import EncryptionError, shown
from ..models.reserved import METADATA
from ..protocol.edm import ANNOTATION, Edm
from ..stores import Row, RowAddress
from .key_ring import KEY_BYTES, KeyWrapper, cipher_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_FORMAT, _ALGORITHM = 1, "A256GCM"
_NONCE_BYTES, _TAG_BYTES = 12, 16
_JSON, _BYTES = b"\0", b"\1"


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
    _values: "AESGCM" = attrs.field(repr=False)
    _metadata: bytes = attrs.field(repr=False)

    @classmethod
    def of(cls, key: bytes, key_id: str, wrapped: bytes) -> "ContentKey":
        """Return the keys that are derived from a content key."""
        secret = hmac.digest(bytes(KEY_BYTES), key, "sha256")  # HKDF-SHA256 without a salt: RFC 5869
        commitment, values, metadata = (_derive(secret, use) for use in ("commitment", "values", "metadata"))
        return cls(key_id, wrapped, commitment, cipher_of(values), metadata)

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
    return (await _unwrap(_parse(metadata, address)[0], address, keys))[1]


async def rewrap(metadata: object, address: RowAddress, keys: KeyWrapper, current: str) -> str | None:
    """
    Return the metadata of a row with its content key wrapped anew.

    Args:
        metadata: The metadata of the row.
        address: Where it is.
        keys: What unwraps the key, and wraps it.
        current: The id of the key that wraps new content keys. None is returned if it has wrapped this one.

    Raises:
        EncryptionError: The metadata are not those of the row, or the content key cannot be unwrapped.
    """
    found = _parse(metadata, address)[0]
    if found.key == current:
        return None
    content, key = await _unwrap(found, address, keys)
    _verify(metadata, address, key)
    return _metadata(ContentKey.of(content, *await keys.wrap(content)), found.tags, address)


def name_of_key(metadata: object, address: RowAddress) -> tuple[str, str]:
    """
    Return the id of the key that wraps the content key of a row, and the wrapped one, by the metadata. Neither is
    authenticated before the content key is known. Raises EncryptionError.
    """
    found = _parse(metadata, address)[0]
    return found.key, found.wrapped


def sealed_names(metadata: object, address: RowAddress) -> frozenset[str]:
    """Return the properties that were sealed, by the metadata, which are not authenticated. Raises EncryptionError."""
    return frozenset(_parse(metadata, address)[0].tags)


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
    sealed[METADATA] = _metadata(key, tags, address)
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


async def _unwrap(found: _Metadata, address: RowAddress, keys: KeyWrapper) -> tuple[bytes, ContentKey]:
    """Return the content key of a row as it is wrapped, and what is derived from it. Raises EncryptionError."""
    wrapped = _bytes(found.wrapped, address)
    try:
        content = await keys.unwrap(found.key, wrapped)
    except EncryptionError as error:
        raise EncryptionError(error.problem, address) from None
    if len(content) != KEY_BYTES:
        raise EncryptionError(f"has a content key of {len(content)} bytes, and {KEY_BYTES} are needed", address)
    key = ContentKey.of(content, found.key, wrapped)
    _check_key(found, key, address)
    return content, key


def _metadata(key: ContentKey, tags: dict[str, str], address: RowAddress) -> str:
    """Return the metadata of a row with these tags."""
    wrapped, commitment = b64encode(key.wrapped).decode(), b64encode(key.commitment).decode()
    text = msgspec.json.encode(_Metadata(_FORMAT, _ALGORITHM, key.key_id, wrapped, commitment, tags))
    return f"{b64encode(key.authenticate(_bound(address) + text)).decode()} {text.decode()}"


def _derive(secret: bytes, use: str) -> bytes:
    return hmac.digest(secret, f"tableorm sealed row {_FORMAT} {use}\1".encode(), "sha256")


def _bound(address: RowAddress, name: str = "") -> bytes:
    """Return what values and metadata are bound to: each text after its length, so that none runs into the next."""
    return _bound_to_row(address.table, address.partition_key, address.row_key) + _sized(name)


@lru_cache(64)
def _bound_to_row(table: str, partition_key: str, row_key: str) -> bytes:
    return _sized(table.lower()) + _sized(partition_key) + _sized(row_key)  # tables have names of any case


def _sized(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(4, "big") + data


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
    except Exception:  # noqa: BLE001 - an InvalidTag, of a package that need not be there, or a ValueError
        raise EncryptionError("is not as it was sealed, or not for this place", address, name) from None
    if text[:1] == _BYTES:
        return b64encode(text[1:]).decode(), Edm.BINARY.value
    value, *kind = msgspec.json.decode(text[1:])
    return value, kind[0] if kind else None


def _bytes(text: object, address: RowAddress, name: str | None = None) -> bytes:
    """Return what base64 stands for. Raises EncryptionError, also if other text stands for the same."""
    try:
        data = a2b_base64(text) if isinstance(text, str) else b""
    except ValueError:
        data = b""
    if not data or b64encode(data).decode() != text:
        raise EncryptionError("holds what was not sealed", address, name)
    return data


def _parse(metadata: object, address: RowAddress) -> tuple[_Metadata, bytes, bytes]:
    """Return metadata, their code, and their text. What is of an unknown format is rejected, and never tried."""
    try:
        found, code, text = _read(metadata if isinstance(metadata, str) else "")
    except EncryptionError as error:
        raise EncryptionError(error.problem, address) from None
    except (ValueError, TypeError, LookupError, RecursionError):
        raise EncryptionError("has no metadata of a sealed row", address) from None
    return found, _bytes(code, address), text


@lru_cache(2000)  # a page is read in several steps
def _read(metadata: str) -> tuple[_Metadata, str, bytes]:
    """Return metadata, their code and text. Raises EncryptionError for an unknown format, or what JSON raises."""
    code, _, text = metadata.partition(" ")
    found: Any = msgspec.json.decode(text)
    kind = (found["format"], found["algorithm"])
    if kind != (_FORMAT, _ALGORITHM):
        raise EncryptionError(f"is sealed in the format {shown(kind)}, which this version does not know")
    return msgspec.convert(found, _Metadata), code, text.encode()


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
