"""
Rows that are read as those of a table, quickly, and keys of many shapes.
"""

import random
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from tableorm.keys.ranges import KeyPosition, KeyRegion, key_order
from tableorm.stores import Row

__all__ = ["SHAPES", "RowsInMemory", "make_keys"]

_NEXT = b"\0\0"  # no key has this character


class RowsInMemory:
    """Rows with some keys, in key order, and how many requests have read them."""

    def __init__(self, keys: Iterable[KeyPosition]) -> None:
        positions = sorted({*keys}, key=key_order)
        self.rows: list[Row] = [{"PartitionKey": pk, "RowKey": rk, "EntityType": rk[:1]} for pk, rk in positions]
        self.requests = 0
        self._keys = [key_order(position) for position in positions]

    async def read(self, region: KeyRegion, limit: int) -> tuple[list[Row], bool]:
        self.requests += 1
        low, high = self._find_low(region), self._find_high(region)
        return self.rows[low : min(high, low + limit)], high > low + limit

    def _find_low(self, region: KeyRegion) -> int:
        partition, row = region.partition, region.row
        first, _ = key_order((partition.lower or "", ""))
        if partition.point:
            find = bisect_right if row.lower_open else bisect_left
            return find(self._keys, (first, key_order((row.lower or "", ""))[0]))
        assert row.lower is row.upper is None
        return bisect_left(self._keys, (first + (_NEXT if partition.lower_open else b""), b""))

    def _find_high(self, region: KeyRegion) -> int:
        partition, row = region.partition, region.row
        last, _ = key_order((partition.upper or "", ""))
        if partition.point and row.upper is not None:
            find = bisect_left if row.upper_open else bisect_right
            return find(self._keys, (last, key_order((row.upper, ""))[0]))
        if partition.upper is None:
            return len(self._keys)
        return bisect_left(self._keys, (last + (b"" if partition.upper_open else _NEXT), b""))


def make_keys(shape: str, count: int) -> set[KeyPosition]:
    """Return about so many keys as programs make them."""
    return {*_make_keys(shape, count)}


def _make_keys(shape: str, count: int) -> list[KeyPosition]:
    chance = random.Random(shape)
    match shape:
        case "one partition":
            return [("Sales", f"empid_{number:08d}") for number in range(count)]
        case "few large partitions":
            names = ("Sales", "Marketing", "Support", "Service", "HR")
            sizes = [int(count * share) for share in (0.7, 0.2, 0.05, 0.04, 0.01)]
            return [(name, f"{n:06d}") for name, size in zip(names, sizes, strict=True) for n in range(size)]
        case "partition a row":
            return [(str(uuid.UUID(int=chance.getrandbits(128))), "profile") for _ in range(count)]
        case "days":
            return [(f"2014{1 + n % 12:02d}{1 + n % 28:02d}", f"{chance.randrange(10**9):09d}") for n in range(count)]
        case "entities and entries":
            kinds = ("empid_{:06d}", "email_{:06d}@contoso.com", "name_{:06d}")
            return [(f"shop{number % 7}", text.format(number)) for number in range(count // 3) for text in kinds]
        case _:  # a few partitions have most of the rows
            return [(f"u{int(chance.paretovariate(0.7)) % 10**6}", f"{number:07d}") for number in range(count)]


SHAPES = ("one partition", "few large partitions", "partition a row", "days", "entities and entries", "uneven users")
