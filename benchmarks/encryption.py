"""
A benchmark of encrypted fields: saves and pages of entities with two encrypted fields, against the same in plain.
"""

from pathlib import Path

from benchmarks.measure import compare, report
from tableorm import Encryption, Entity, KeyRing, Mapped, connect, encrypted, field


class Sealed(Entity, table="Encrypted", partition_key="{city}", row_key="sealed_{id:05d}"):
    """A person whose salary is nobody's business."""

    city: Mapped[str] = field(default="Oslo")
    id: Mapped[int]
    name: Mapped[str] = encrypted(default="Ann")
    salary: Mapped[int] = encrypted(default=0)


class Plain(Entity, table="Encrypted", partition_key="{city}", row_key="plain_{id:05d}"):
    """A person whose salary is known."""

    city: Mapped[str] = field(default="Oslo")
    id: Mapped[int]
    name: Mapped[str] = field(default="Ann")
    salary: Mapped[int] = field(default=0)


async def bench_encryption(folder: Path, count: int = 1000, rounds: int = 5) -> None:
    """Saves one by one, and a query of all, by a key in memory."""
    keys = KeyRing({"k": bytes(32)}, wrap_with="k")
    async with connect(f"local:{folder / 'encryption.tables'}", encryption=Encryption(keys)) as db:
        await db.create_tables(Sealed)
        async with db.bulk() as bulk:
            for number in range(count):
                await bulk.insert(Sealed(id=number))
                await bulk.insert(Plain(id=number))
        sealed = await db.select(Sealed).where(Sealed.city == "Oslo", Sealed.id < count).all()
        plain = await db.select(Plain).where(Plain.city == "Oslo", Plain.id < count).all()

        async def save_sealed() -> None:
            for each in sealed[: count // 4]:
                each.salary += 1
                await db.save(each)

        async def save_plain() -> None:
            for each in plain[: count // 4]:
                each.salary += 1
                await db.save(each)

        async def read_sealed() -> None:
            assert len(await db.select(Sealed).where(Sealed.city == "Oslo", Sealed.id < count).all()) == count

        async def read_plain() -> None:
            assert len(await db.select(Plain).where(Plain.city == "Oslo", Plain.id < count).all()) == count

        a, b, ratio = await compare(save_sealed, save_plain, rounds)
        detail = f"{a / count * 4e6:.0f} µs / {b / count * 4e6:.0f} µs"
        report("save of an entity with encrypted fields / in plain", ratio, "at most 2", detail)
        a, b, ratio = await compare(read_sealed, read_plain, rounds)
        detail = f"{a / count * 1e6:.0f} µs / {b / count * 1e6:.0f} µs an entity"
        report("query of 1,000 entities with encrypted fields / in plain", ratio, "at most 15", detail)
