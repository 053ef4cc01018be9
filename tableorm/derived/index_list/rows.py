"""
The rows of an index list, which hold the keys of its entities, and divide when they grow.
"""

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from itertools import count
from typing import cast

from ...errors import DecodeError
from ...models.reserved import ENTITY_TYPE
from ...protocol.edm import ANNOTATION, Edm
from ...protocol.limits import binary_size
from ...stores import Row, row_keys

SEPARATOR = "~"

DIVIDED = "Divided"
"""Property of a row whose keys are in two others."""

_CHUNK = 48 * 1024  # bytes of a Binary property, of the 64 KiB that one holds

_PROPERTY = "Keys{:02d}"

BITS = 33  # of the key of a row, that it goes on with behind the list's: "~", and enough bits for all there can be


def bits_of(key: str, count: int) -> str:
    """The first bits of the hash of a RowKey, which say in which row of a list it is: for ever the same."""
    digest = hashlib.sha256(key.encode("utf-8")).digest()
    return f"{int.from_bytes(digest):0256b}"[:count]


def list_row(partition_key: str, row_key: str, kind: str, keys: Iterable[str], *, divided: bool = False) -> Row:
    """
    A row of a list, in canonical form: no store needs to read the keys again to see whether they are base64.

    Args:
        partition_key: Of the entities.
        row_key: Of the row: the list's key, "~", and bits.
        kind: Of the list.
        keys: RowKeys of the entities.
        divided: Whether they are in two other rows.
    """
    row: Row = {"PartitionKey": partition_key, "RowKey": row_key, ENTITY_TYPE: kind}
    # No key holds a control character, so one can end each.
    packed = "\n".join([*sorted(keys), ""]).encode("utf-8")
    for number, start in enumerate(range(0, len(packed), _CHUNK)):
        name = _PROPERTY.format(number)
        row[name], row[name + ANNOTATION] = b64encode(packed[start : start + _CHUNK]).decode(), Edm.BINARY.value
    if divided:
        row[DIVIDED] = True
    return row


def is_divided(row: Row | None) -> bool:
    """Whether the keys of a row of a list are in two others."""
    return row is not None and row.get(DIVIDED) is True


def bytes_of(row: Row | None) -> int:
    """Bytes of the RowKeys in a row of a list, each with the character that ends it."""
    return sum(binary_size(text) for _, text in _chunks(row) if isinstance(text, str))


def _chunks(row: Row | None) -> Iterator[tuple[str, object]]:
    for number in count():
        name = _PROPERTY.format(number)
        if row is None or row.get(name) is None:
            return
        yield name, row[name]


def keys_of(row: Row | None) -> dict[str, None]:
    """
    The RowKeys in a row of a list, in the order in which they are stored, which is theirs.

    Raises:
        DecodeError: It is damaged.
    """
    if row is None:
        return {}
    try:
        packed = b"".join([b64decode(cast("str", text), validate=True) for _, text in _chunks(row)]).decode("utf-8")
    except (ValueError, TypeError) as error:
        raise DecodeError(
            f"is a list of keys that cannot be read: {error}; repair it with `tableorm audit --repair`",
            str(row.get(ENTITY_TYPE)),
            row_keys(row),
        ) from None
    return dict.fromkeys(packed.split("\n")[:-1])


def split_address(row_key: str) -> tuple[str, str] | None:
    """The key of the list that a row is of, and the bits of its own place in it; None if no list has such a row."""
    list_key, separator, bits = row_key.rpartition(SEPARATOR)
    if not separator or len(bits) >= BITS or bits.strip("01"):
        return None
    return list_key, bits
