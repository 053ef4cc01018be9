"""
Long values: a text, bytes or JSON in up to 15 properties, declared by `field(chunked=True)`.

A value that fits into one property is stored like that of a plain field. Of a longer one the length is stored too, so
that a hole shows. A merge cannot remove a property: of chunks that a shorter value does not need it makes empty ones.
"""

import zlib
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, NoReturn

from ..expressions import Field, FieldTerm, misfit_error
from ..models.fields import SHAPES, Mapped
from ..models.property_types import PropertyType, Shape, TooLong, annotation_name, property_type, split_optional
from ..protocol.edm import utf16_length
from ..protocol.limits import MAX_VALUE_BYTES
from ..types import Int32

MAX_CHUNKS = 15
"""How many properties a value can take: with all of them, 64 KiB of an entity are left for the rest."""

MAX_EXPANDED_BYTES = 2 * 1024 * 1024
"""How long a value with `compress=True` can be: to compress and expand more would hold up the event loop."""

# How large chunks are: of bytes, and of text in UTF-16. When text is encrypted, two bytes of it may take three.
_PLAIN = MAX_VALUE_BYTES, MAX_VALUE_BYTES
_SEALED = MAX_VALUE_BYTES - 64, MAX_VALUE_BYTES // 3 * 2 - 64


class _ChunkedField(Field[Any]):
    """A long value on its class: conditions only ask whether it is there, by its first chunk."""

    __slots__ = ()

    def _require_constant(self, other: object, term: FieldTerm) -> NoReturn:
        problem = "a field with chunked=True is stored in parts, which the service cannot compare as one value; "
        raise misfit_error(term, other, f"{problem}filter in Python, or declare a short field beside it")


class _ChunkedShape(Shape[Any]):
    kind: PropertyType

    def __init__(self, *, compress: bool) -> None:
        self.compress, self.form = compress, "chunked, compressed" if compress else "chunked"
        self._sizes = [_PLAIN]

    def for_encrypted(self) -> "_ChunkedShape":
        return self._divided_by(_SEALED)

    def beside_encrypted(self) -> "_ChunkedShape":
        return self._divided_by(_SEALED, _PLAIN)

    def _divided_by(self, *sizes: tuple[int, int]) -> "_ChunkedShape":
        shape = copy(self)
        shape._sizes = [*sizes]
        return shape

    def bind(self, model: type[Any], name: str, kind: type[Any], annotation: Any) -> None:
        bare = split_optional(annotation)[0]
        found = property_type(bare, MAX_EXPANDED_BYTES)
        if kind is not Mapped or isinstance(found, str) or not (found.json_text or bare in (str, bytes)):
            declared = f"{kind.__name__}[{annotation_name(annotation)}]"
            raise ValueError(f"= field(chunked=True) is declared as {declared}; long values are str, bytes and JSON")
        if getattr(self, "kind", found).annotation != found.annotation:
            raise ValueError("has the same field(chunked=True) as another field; write one for each")
        self.kind = found

    def value_type(self, annotation: Any) -> tuple[PropertyType, bool]:
        return self.kind, split_optional(annotation)[1]

    def members(self, name: str, property_: str) -> Sequence[tuple[str, str, Any]]:
        kind = bytes if self.compress or self.kind.annotation is bytes else str
        chunks = [(f"{name}[{number}]", f"{property_}_{number}", kind) for number in range(1, MAX_CHUNKS)]
        return [(f"{name}[0]", property_, kind), *chunks, (f"{name}.length", f"{property_}_length", Int32)]

    def write(self, value: Any) -> Sequence[Any]:
        data: str | bytes = value if self.kind.annotation is bytes else self.kind.encode(value)
        blob = "declare a Blob" if self._sizes[0] == _PLAIN else "declare a Blob with encrypted()"
        if self.compress:
            data = data if isinstance(data, bytes) else data.encode()
            if len(data) > MAX_EXPANDED_BYTES:
                problem = f"has {len(data):,} bytes, and {MAX_EXPANDED_BYTES:,} can be compressed"
                raise TooLong(f"{problem}; {blob}")
            data = zlib.compress(data, 1)
        kind, unit = (0, "bytes") if isinstance(data, bytes) else (1, "UTF-16 code units")
        size = _size(data)
        for sizes in self._sizes:
            chunks = [*_divided(data, sizes[kind])]
            if len(chunks) <= MAX_CHUNKS:
                return [*chunks, *[None] * (MAX_CHUNKS - len(chunks)), size if len(chunks) > 1 else None]
        most = MAX_CHUNKS * self._sizes[-1][kind] // (1 + kind)
        remedy = blob if self.compress else f"add compress=True, or {blob}"
        problem = f"has {size:,} {unit} as it is stored, and {MAX_CHUNKS} properties hold {most:,}"
        raise TooLong(f"{problem}; {remedy}")

    def read(self, values: Sequence[Any]) -> Any:
        data = self._joined(values[:-1], values[-1])
        if self.compress:
            data = _expanded(data)
        if self.kind.annotation is bytes:
            return data
        return self.kind.decode(data if isinstance(data, str) else data.decode(), None)

    def _joined(self, chunks: Sequence[Any], length: int | None) -> Any:
        """Return the data; without a length, or with 0, it is in one property. Raises ValueError if there is a hole."""
        filled = [chunk for chunk in chunks if chunk]
        if chunks[0] is None or not all(chunks[: len(filled)]):
            raise ValueError("is stored in parts of which one is missing")
        if len(filled) > 1 and not length:
            raise ValueError("is stored in parts without their length")
        size = sum(map(_size, filled))
        if length and size != length:
            raise ValueError(f"is stored in parts of {size:,} in all, and their length is {length:,}")
        return chunks[0] if len(filled) < 2 else chunks[0][:0].join(filled)

    def expression(self, model: type[Any], name: str) -> Field[Any]:
        return _ChunkedField(model, name, [f"{name}[0]"])


def _size(data: str | bytes) -> int:
    return len(data) if isinstance(data, bytes) else utf16_length(data)


def _divided(data: str | bytes, most: int) -> Iterator[str | bytes]:
    """
    Yield the chunks of data, at least one, of so many bytes as the service counts them. A character outside of the
    basic plane is never divided.
    """
    if isinstance(data, bytes) or data.isascii():
        step = most if isinstance(data, bytes) else most // 2
        yield from (data[at : at + step] for at in range(0, max(len(data), 1), step))
        return
    units, at = data.encode("utf-16-le"), 0
    while at < len(units):
        end = at + most
        if units[end - 1 : end] and 0xD8 <= units[end - 1] <= 0xDB:
            end -= 2
        yield units[at:end].decode("utf-16-le")
        at = end


def _expanded(data: bytes) -> bytes:
    """Return what was compressed. Raises ValueError if it is nothing of that sort, or too long."""
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(data, MAX_EXPANDED_BYTES + 1)
    except zlib.error as error:
        raise ValueError(f"holds what was not compressed by zlib: {error}") from None
    if len(found) > MAX_EXPANDED_BYTES:
        raise ValueError(f"would expand to more than {MAX_EXPANDED_BYTES:,} bytes")
    if not stream.eof or stream.unused_data:
        raise ValueError("holds what was not compressed by zlib: it ends too early, or has something after its end")
    return found


SHAPES["chunked"] = _ChunkedShape
