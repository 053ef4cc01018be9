"""
Sums of rows, by which the two sides of a re-key are compared whatever their order.

Each entity gives a hash of 128 bits: of its key, its fields and its unknown properties, as they are written. The hashes
are added up in several *shares*, chosen by the key, so that a difference can be looked for in a part of the rows.
"""

from collections import defaultdict
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any
from zlib import crc32

import msgspec

from tableorm.jobs.counts import RowSum
from tableorm.models.schema import Schema
from tableorm.models.state import state_of
from tableorm.stores import Row

SHARES = 16
"""How many shares there are. The sums of all of them have to fit into one row beside failures."""


def hash_text(*texts: str) -> int:
    """Return a hash of 128 bits of some texts."""
    return int.from_bytes(blake2b(msgspec.json.encode(texts), digest_size=16).digest(), "big")


def hash_entity(schema: Schema, entity: Any, keys: tuple[str, str] | None = None) -> int:
    """
    Return a hash of 128 bits of what an entity stores.

    Args:
        schema: Its model.
        entity: The entity.
        keys: Its PartitionKey and RowKey, if they are known.

    Raises:
        TableOrmError: The entity cannot be written.
    """
    own: dict[str, Any] = entity.__dict__
    row, _ = schema.encode(own, *(keys or schema.make_keys(own)))
    members: Row = {**row, **state_of(entity).unknown(schema.known)}
    return int.from_bytes(blake2b(msgspec.json.encode(sorted(members.items())), digest_size=16).digest(), "big")


def share_of(partition_key: str, row_key: str) -> int:
    """Return the share that a row of the newer model is in."""
    return crc32(f"{partition_key}\0{row_key}".encode()) % SHARES


def differing_shares(sums: Mapping[str, RowSum]) -> dict[int, tuple[RowSum, RowSum]]:
    """Return the shares whose sums differ: what was expected of each, and what was found."""
    nothing = RowSum()
    pairs = {
        share: (sums.get(f"expected {share}", nothing), sums.get(f"found {share}", nothing)) for share in range(SHARES)
    }
    return {share: (expected, found) for share, (expected, found) in pairs.items() if expected != found}


class HashSums:
    """Sums by name, as they are added up."""

    def __init__(self) -> None:
        self._sums = defaultdict[str, list[int]](lambda: [0, 0])

    def add(self, name: str, value: int) -> None:
        """Add the hash of a row to a sum."""
        found = self._sums[name]
        found[0] += 1
        found[1] += value

    def take(self) -> dict[str, RowSum]:
        """Return the sums since the last call, and begin anew."""
        taken = {name: RowSum(rows, f"{value % 2**128:x}") for name, (rows, value) in self._sums.items()}
        self._sums.clear()
        return taken
