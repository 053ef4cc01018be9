"""
Blobs: values of any length, whose bytes are in blob storage, and whose address, length and hash are in the row.

`photo: Mapped[Blob | None] = field(default=None)`. A blob that is given to an entity is sent when the entity is
written, under a name that nothing had before. Nothing here sends anything: what is above hands in a `BlobReader`.
"""

import asyncio
import hashlib
import io
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from inspect import iscoroutinefunction
from typing import Any, BinaryIO, ClassVar, NamedTuple
from weakref import WeakValueDictionary

import attrs

from ..errors import EncodeError, NotSupported, shown
from ..expressions import Field
from ..models.fields import Mapped
from ..models.manifest import UploadEntry
from ..models.property_types import Shape, ValueType, annotation_name, split_optional
from ..models.write_tokens import new_token
from .sealed_blob import BlobSeal

_PIECE = 1024 * 1024
"""Bytes of a file that are read at a time."""

_QUICK = 64 * 1024
"""Bytes whose hash takes no time worth a thread."""


class BlobParts(NamedTuple):
    """
    What is stored of a blob in the row: the values of its members.

    Args:
        address: Where it is.
        length: How many bytes it has.
        sha256: The hash of what is stored: of its bytes, or of the sealed ones.
        content_type: What its bytes are; "" if nobody has said.
        key: Of a sealed blob its key; otherwise b"".
    """

    address: str
    length: int
    sha256: str
    content_type: str
    key: bytes = b""


BlobReader = Callable[[BlobParts, int, int | None], AsyncGenerator[bytes]]
"""Yields the bytes of a blob from one on, so many or all that follow. Raises TableOrmError."""


_sent: WeakValueDictionary[str, "Blob"] = WeakValueDictionary()
"""The blobs that are not stored yet, by what rows have in place of their addresses; a write reads its rows again."""


def sent_blob(address: object) -> "Blob | None":
    """Return the blob that a row is about to get, by what the row has as its address; None if it is stored."""
    return _sent.get(address) if isinstance(address, str) else None


class BlobContent:
    """
    What a blob is, which writes and readers know of it: where its bytes come from, or what is stored of them.

    Args:
        source: Bytes, an asynchronous iterable of these, or a binary file; None if they are stored.
        content_type: What the bytes are.
        parts: What is stored of it, or will be when the write that sends it commits; None before that.

    Attributes:
        reader: What reads its bytes, if they are stored; None if it does not know its database.
        waiting: What rows have in place of its address until it is sent.
    """

    __slots__ = ("_spent", "_start", "content_type", "parts", "reader", "source", "waiting")

    def __init__(self, source: Any, content_type: str | None, parts: BlobParts | None = None) -> None:
        self.source, self.content_type, self.parts = source, content_type, parts
        self.reader: BlobReader | None = None
        self.waiting = f"/{new_token()}/" if parts is None else ""
        self._spent, self._start = False, 0

    @property
    def length(self) -> int | None:
        """How many bytes it has; None if that is not known before it is sent."""
        if self.parts is not None:
            return self.parts.length
        return len(self.source) if isinstance(self.source, bytes) else None

    @property
    def members(self) -> BlobParts:
        """The values of its members."""
        return self.parts or BlobParts(self.waiting, 0, "", self.content_type or "")

    @property
    def once(self) -> bool:
        """Whether its bytes can be sent only once."""
        if self.source is None or isinstance(self.source, bytes):
            return False
        return isinstance(self.source, AsyncIterable) or not self.source.seekable()

    def check_unsent(self, label: str) -> None:
        """
        Refuse a blob of the field `label` that cannot be sent.

        Raises:
            EncodeError: It comes from a stream that was sent before, and is gone.
            NotSupported: Another write is sending it.
        """
        if self.parts is not None:
            raise NotSupported(f"{label}: the Blob is being sent by another write; make one for each")
        if self._spent and self.once:
            model, _, field = label.partition(".")
            problem = "comes from a stream, which was sent before and is gone; give a Blob of bytes or of a file"
            raise EncodeError(problem, model, field, None, misuse=True)

    async def chunks(self, label: str) -> AsyncGenerator[bytes]:
        """Yield its bytes from the beginning; of the field `label`, for messages. Raises what `check_unsent` raises."""
        self.check_unsent(label)
        source, again, self._spent = self.source, self._spent, True
        pieces: AsyncIterable[bytes] = source
        if isinstance(source, bytes):
            pieces = _pieces(source)
        elif not isinstance(source, AsyncIterable):
            if again:
                await asyncio.to_thread(source.seek, self._start)
            elif source.seekable():
                self._start = source.tell()
            pieces = _read_file(source)
        async for piece in pieces:
            yield piece


class Blob:
    """
    A value of any length, such as a photo, in a field of an entity.

        await db.insert(Employee(department="Sales", id=7, photo=Blob(data, "image/jpeg")))

    The bytes are sent when the entity is written. A blob that was read knows its length and hash, and reads its bytes
    only when you ask for them. Blobs are immutable: to change one, assign another.

    Args:
        data: The bytes; an asynchronous iterable of bytes; or a binary file, which is read from its current position.
            Of the latter two, only a part is in memory at a time. An iterable can be sent only once.
        content_type: The media type of the bytes, such as "image/jpeg".
    """

    _shape_of_values: ClassVar[type[Shape[Any]]]
    __slots__ = ("__weakref__", "_content")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, data: bytes | AsyncIterable[bytes] | BinaryIO, content_type: str | None = None) -> None:
        kinds = bytes, AsyncIterable
        if not isinstance(data, kinds) and not callable(getattr(data, "read", None)):
            given = type(data).__name__
            raise TypeError(
                f"Blob({given}) is rejected: give bytes, an asynchronous iterable of bytes or a binary file"
            )
        if not isinstance(content_type, str | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"Blob(content_type={shown(content_type)}) is rejected: give a str")
        if isinstance(data, io.TextIOBase):
            raise TypeError('Blob(file) is rejected: it is a text file; open it by open(path, "rb")')
        if iscoroutinefunction(getattr(data, "read", None)):
            raise TypeError("Blob(file) is rejected: its read() is asynchronous; of an UploadFile give upload.file")
        self._content = BlobContent(data, content_type)
        _sent[self._content.waiting] = self

    # What is known of it

    @property
    def length(self) -> int | None:
        """The number of bytes; None if it isn't known before the blob is sent."""
        return self._content.length

    @property
    def sha256(self) -> str | None:
        """
        The SHA-256 hash of the bytes, in hexadecimal digits; in an encrypted field, the hash of the stored bytes. None
        before the blob is sent.
        """
        return None if self._content.parts is None else self._content.parts.sha256

    @property
    def content_type(self) -> str | None:
        """The media type of the bytes; None if it wasn't declared."""
        return self._content.content_type

    @property
    def _json_summary(self) -> "BlobSummary":
        return BlobSummary(self.length, self.sha256, self.content_type)

    def __repr__(self) -> str:
        length = "bytes that are still to be sent" if self.length is None else f"{self.length:,} bytes"
        return f"<Blob of {length}{'' if self.content_type is None else f', {self.content_type}'}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Blob):
            return NotImplemented
        parts = self._content.parts
        return self is other or (parts is not None and parts == other._content.parts)

    def __copy__(self) -> "Blob":
        return self

    def __deepcopy__(self, memo: object) -> "Blob":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        content = self._content
        if content.source is None:
            return _stored, (content.parts,)
        if not isinstance(content.source, bytes):
            raise TypeError("a blob whose bytes come from a stream or a file is not pickled before it is sent")
        return Blob, (content.source, content.content_type)

    # Its bytes

    async def read(self, start: int = 0, length: int | None = None) -> bytes:
        """
        Return its bytes, or some of them. Only of all of them the hash is verified.

            data = await employee.photo.read()

        Args:
            start: The first byte wanted.
            length: How many bytes are wanted; fewer come if it ends before. None for all.

        Raises:
            DecodeError: It is not there, or its bytes are not those that were written.
            EntityNotFound: The entity is gone, or has no blob any more.
            NotSupported: It was not read from an open database, or that has no blobs.
        """
        async with aclosing(self.stream(start, length)) as chunks:
            return b"".join([chunk async for chunk in chunks])

    def stream(self, start: int = 0, length: int | None = None) -> AsyncGenerator[bytes]:
        """
        Yield its bytes, or some of them, in chunks of any size. Takes and raises what `read` does.

            async for chunk in employee.photo.stream():
                file.write(chunk)
        """
        for name, value in ("start", start), ("length", length):
            if value is not None and (type(value) is not int or value < 0):
                raise NotSupported(f"{name}={shown(value)} is rejected: give a number of bytes, from 0")
        content = self._content
        if isinstance(content.source, bytes):
            return _pieces(content.source[start : None if length is None else start + length])
        if content.parts is None:
            raise NotSupported(f"{self!r} cannot be read before it is sent: its bytes come from a stream or a file")
        if content.reader is None:
            raise NotSupported(
                f"{self!r} does not know its database: it was unpickled, or made of a row by itself; read the entity "
                "again, await db.refresh(entity)"
            )
        return content.reader(content.parts, start, length)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.stream()


def content_of(blob: Blob) -> BlobContent:
    """Return what a blob is."""
    return blob._content  # pyright: ignore[reportPrivateUsage]


def hold(blob: Blob, parts: BlobParts) -> None:
    """Note what the row of a blob gets, if the write that sends it commits."""
    content_of(blob).parts = parts
    _sent[parts.address] = blob


def release(blob: Blob, *, stored: bool) -> None:
    """End the write that has sent a blob: it is stored, or as it was before."""
    content = content_of(blob)
    if content.parts is not None:
        _sent.pop(content.parts.address, None)
    if stored:
        content.source = None
    else:
        content.parts = None


def _stored(parts: BlobParts) -> Blob:
    """Return a blob that is stored, and does not know its database."""
    blob = Blob.__new__(Blob)
    blob._content = BlobContent(None, parts[3] or None, BlobParts(*parts))  # pyright: ignore[reportPrivateUsage]
    return blob


async def _pieces(data: bytes) -> AsyncGenerator[bytes]:
    for at in range(0, len(data), _PIECE):
        yield data[at : at + _PIECE]


async def _read_file(file: BinaryIO) -> AsyncGenerator[bytes]:
    while piece := await asyncio.to_thread(file.read, _PIECE):
        yield piece


class Sending:
    """
    The bytes of a blob while they are sent: counted and hashed. Each iteration begins anew, if they come from something
    that can be read again.

    Args:
        content: The blob.
        label: The field, for messages.
        seal: What seals them; None if they are sent as they are.

    Attributes:
        length: How many bytes were read.
        ended: Whether those are all.
    """

    def __init__(self, content: BlobContent, label: str, seal: BlobSeal | None) -> None:
        self._content, self._label, self._seal = content, label, seal
        self._begin()

    def _begin(self) -> None:
        self.length, self.ended, self._digest = 0, False, hashlib.sha256()

    @property
    def sha256(self) -> str:
        """The hash of what was sent so far."""
        return self._digest.hexdigest()

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        self._begin()
        async for piece in self._counted() if self._seal is None else self._seal.sealed(self._counted()):
            await add_to_hash(self._digest, piece)
            yield piece
        self.ended = True

    async def _counted(self) -> AsyncGenerator[bytes]:
        async for piece in self._content.chunks(self._label):
            if not isinstance(piece, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"the data of a Blob gave a {type(piece).__name__}, and bytes are needed")
            self.length += len(piece)
            yield piece

    async def run_through(self) -> None:
        """Count and hash the bytes, and send none."""
        async for _ in self:
            pass


async def add_to_hash(digest: Any, piece: bytes) -> None:
    """Add bytes to a hash; other tasks run meanwhile if they are many."""
    if len(piece) <= _QUICK:
        digest.update(piece)
    else:
        await asyncio.to_thread(digest.update, piece)


# The field


class BlobField(Field[Blob]):
    """
    A blob on its class. Conditions are about its parts: `Employee.photo.length > 1000`.

    Attributes:
        length: How many bytes it has.
        sha256: The hash of its bytes, in hexadecimal digits.
        content_type: What its bytes are.
    """

    __slots__ = ("content_type", "length", "sha256")

    def __init__(self, model: type[Any], name: str) -> None:
        super().__init__(model, name, [f"{name}.{part}" for part in BlobParts._fields[:4]])
        self.length: Field[int] = self.parts[1]
        self.sha256: Field[str] = self.parts[2]
        self.content_type: Field[str] = self.parts[3]


@attrs.frozen
class BlobSummary:
    """What clients are shown of a blob. Its bytes have an address of their own."""

    length: int | None
    sha256: str | None
    content_type: str | None


class _BlobType(ValueType):
    @property
    def name(self) -> str:
        """The declared type."""
        return "Blob"


def _check(value: object) -> object:
    if not isinstance(value, Blob):
        given = type(value).__name__
        raise ValueError(  # noqa: TRY004 - as all that says what does not fit
            f"is {'an' if given[0] in 'aeiou' else 'a'} {given}, not a Blob; write Blob(data)"
        )
    return value


class BlobShape(Shape[Blob]):
    """How blobs are stored: see `BlobParts`. The row has a key of those that are sealed."""

    uploads = True
    _sealed = False

    def for_encrypted(self) -> "BlobShape":
        """See `Shape`."""
        shape = BlobShape()
        shape._sealed = True
        return shape

    def bind(self, model: type[Any], name: str, kind: type[Any], annotation: Any) -> None:
        """See `Shape`. Raises ValueError for another annotation."""
        del model, name
        if kind is not Mapped:
            raise ValueError(
                f"is declared as {kind.__name__}[{annotation_name(annotation)}]; write Mapped[Blob | None]"
            )

    def value_type(self, annotation: Any) -> tuple[ValueType, bool]:
        """See `Shape`."""
        return _BlobType(annotation=BlobSummary, encode=_check, base=Blob), split_optional(annotation)[1]

    def members(self, name: str, property_: str) -> Sequence[tuple[str, str, Any]]:
        """See `Shape`."""
        rest: list[tuple[str, Any]] = [("length", int), ("sha256", str), ("content_type", str)]
        if self._sealed:
            rest.append(("key", bytes))
        more = [(f"{name}.{part}", f"{property_}_{part}", kind) for part, kind in rest]
        return [(f"{name}.address", property_, str), *more]

    def write(self, value: Blob) -> Sequence[Any]:
        """See `Shape`."""
        members = content_of(value).members
        return members if self._sealed else members[:-1]

    def read(self, values: Sequence[Any]) -> Blob:
        """See `Shape`. Raises ValueError."""
        address, length, sha256, content_type, key = values if self._sealed else (*values, b"")
        if address is None:
            raise ValueError("has no address of a blob")
        waiting = _sent.get(address)
        if waiting is not None:
            return waiting
        if length is None or sha256 is None:
            raise ValueError("is a blob without its length or its hash")
        if key is None:
            raise ValueError("is an encrypted blob without its key")
        UploadEntry.of(address)
        return _stored(BlobParts(address, length, sha256, content_type or "", key))

    def expression(self, model: type[Any], name: str) -> BlobField:
        """See `Shape`."""
        return BlobField(model, name)


Blob._shape_of_values = BlobShape  # pyright: ignore[reportPrivateUsage]
