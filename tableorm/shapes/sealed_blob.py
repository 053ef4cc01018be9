"""
Sealed blobs: a header and numbered chunks, each encrypted by itself, of which the last one is marked.

Each has a key of its own, which is a sealed value of the row that has its address. `docs/design/stored-fields.md` has
the format; it needs the package cryptography, which is imported when a blob is sealed or read.
"""

import os
from collections.abc import AsyncGenerator, AsyncIterable

from ..errors import EncodeError, EncryptionError
from .key_ring import KEY_BYTES, cipher_of

_HEADER = b"tableorm blob 1\n"
_FORMAT = _HEADER[-2:-1]
SEALED_KEY_BYTES = 1 + KEY_BYTES
"""How many bytes the row has of the key of a blob: the format comes first."""

_CHUNK_BYTES, _TAG_BYTES = 64 * 1024, 16
_STORED_BYTES = _CHUNK_BYTES + _TAG_BYTES


def new_blob_key() -> bytes:
    """Return what the row has as the key of a blob that is to be sent."""
    return _FORMAT + os.urandom(KEY_BYTES)


class BlobSeal:
    """
    What seals or opens one blob.

    Args:
        key: What the row has as its key.
        token: The token of its upload.
        label: The field, for messages.

    Raises:
        EncryptionError: The key is of an unknown format.
    """

    def __init__(self, key: bytes, token: str, label: str) -> None:
        self._label = label
        if len(key) != SEALED_KEY_BYTES or key[:1] != _FORMAT:
            raise self._broken("is sealed in a format that this version does not know")
        self._cipher, self._bound = cipher_of(key[1:]), _HEADER + token.encode()
        self._sent: list[bytes] = []  # the tags of the chunks that were sealed

    async def sealed(self, pieces: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
        """
        Yield what is stored of some bytes. Nothing else is ever sealed with the same key: where bytes are sent again,
        they have to be the same.

        Raises:
            EncodeError: They are not.
        """
        yield _HEADER
        rest, number = bytearray(), 0
        async for piece in pieces:
            for at in range(0, len(piece), _CHUNK_BYTES):
                rest += piece[at : at + _CHUNK_BYTES]
                if len(rest) > _CHUNK_BYTES:
                    yield self._seal(number, bytes(rest[:_CHUNK_BYTES]), last=False)
                    del rest[:_CHUNK_BYTES]
                    number += 1
        yield self._seal(number, bytes(rest), last=True)

    def _seal(self, number: int, text: bytes, *, last: bool) -> bytes:
        chunk = self._cipher.encrypt(_nonce(number, last=last), text, self._bound)
        tag = chunk[-_TAG_BYTES:]
        if number == len(self._sent):
            self._sent.append(tag)
        elif tag != self._sent[number]:
            model, _, name = self._label.partition(".")
            raise EncodeError("comes from a file that was changed while it was sent", model, name, None, misuse=True)
        return chunk

    @staticmethod
    def stored_range(start: int, length: int | None, total: int) -> tuple[int, int | None]:
        """Return where what is stored of a range begins, and how many bytes that are; None for all, with the header."""
        if start == 0 and length is None:
            return 0, None
        first, final = _chunks(start, length, total)
        return len(_HEADER) + first * _STORED_BYTES, (final - first + 1) * _STORED_BYTES

    async def opened(
        self, stored: AsyncIterable[bytes], start: int, length: int | None, total: int
    ) -> AsyncGenerator[bytes]:
        """
        Yield the bytes of a range.

        Args:
            stored: What is stored of it.
            start: Its first byte.
            length: How many bytes it has; None for all.
            total: How many bytes the blob has.

        Raises:
            EncryptionError: They are not as they were sealed, or not those of this blob.
        """
        whole = start == 0 and length is None
        number, final = _chunks(start, length, total)
        last, skipped = max(total - 1, 0) // _CHUNK_BYTES, start % _CHUNK_BYTES
        wanted = total - start if length is None else min(length, total - start)
        rest, header = bytearray(), len(_HEADER) if whole else 0
        async for piece in stored:
            rest += piece
            if header and len(rest) >= header:
                if bytes(rest[:header]) != _HEADER:
                    raise self._broken("has another header than a sealed blob")
                del rest[:header]
                header = 0
            while not header and number <= final:
                size = _STORED_BYTES if number < last else total - last * _CHUNK_BYTES + _TAG_BYTES
                if len(rest) < size:
                    break
                text = self._open(number, bytes(rest[:size]), last=number == last)[skipped:][:wanted]
                del rest[:size]
                number, skipped, wanted = number + 1, 0, wanted - len(text)
                yield text
        if rest or number <= final:
            raise self._broken("is longer or shorter than it was sealed")

    def _open(self, number: int, chunk: bytes, *, last: bool) -> bytes:
        try:
            return self._cipher.decrypt(_nonce(number, last=last), chunk, self._bound)
        except Exception:  # noqa: BLE001 - an InvalidTag, of a package that need not be there
            raise self._broken(f"has a chunk {number} that is not as it was sealed, or is of another blob") from None

    def _broken(self, problem: str) -> EncryptionError:
        return EncryptionError(f"the blob of {self._label} {problem}")


def _chunks(start: int, length: int | None, total: int) -> tuple[int, int]:
    """Return the numbers of the first and the last chunk of a range; a blob without bytes has one chunk."""
    end = total if length is None else min(start + length, total)
    return start // _CHUNK_BYTES, max(end - 1, 0) // _CHUNK_BYTES


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([last])
