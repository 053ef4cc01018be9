"""
Keys of many shapes, as programs make them.
"""

import random
import uuid

from tableorm.keys.ranges import KeyPosition


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
