"""
A benchmark of large blobs: how much the memory of a process grows while it writes and reads one of 100 MiB.

Each is measured in a process of its own, which has written and read such a blob before, so that all caches are full.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from benchmarks.measure import report, watched
from benchmarks.processes import serving
from tableorm import Blob, Database, Encryption, Entity, KeyRing, Mapped, connect, encrypted

_MIB = 1024 * 1024
_SIZE = 100  # MiB
_MOST = 32  # MiB of memory


class Film(Entity, table="Films", partition_key="plain", row_key="{id}"):
    """A film that everybody may see."""

    id: Mapped[int]
    data: Mapped[Blob]


class SealedFilm(Entity, table="Films", partition_key="sealed", row_key="{id}"):
    """A film that nobody may see without a key."""

    id: Mapped[int]
    data: Mapped[Blob] = encrypted()


_MODELS: dict[str, type[Film | SealedFilm]] = {"in plain": Film, "encrypted": SealedFilm}


async def _pieces() -> AsyncGenerator[bytes]:
    for number in range(_SIZE):
        yield bytes([number]) * _MIB


async def bench_blobs(folder: Path) -> None:
    """A blob of an embedded database, and of one that a server has, beside which a file has its blobs."""
    async with serving(folder / "served.tables") as served:
        places = {"embedded": [f"local:{folder}/embedded.tables"], "a server": [served, f"local:{folder}/blobs.tables"]}
        for place, urls in places.items():
            for how in _MODELS:
                command = [sys.executable, "-m", "benchmarks.blobs", how, *urls]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: ASYNC221
                for line in done.stdout.splitlines():
                    what, grown, seconds = line.split()
                    report(
                        f"{what} a blob of {_SIZE} MiB, {place}, {how}: memory / blob",
                        float(grown) / _SIZE,
                        f"at most {_MOST / _SIZE}",
                        f"{float(grown):.1f} MiB, {float(seconds):.2f} s",
                    )


async def _write_and_read(db: Database, model: type[Film | SealedFilm], number: int) -> list[str]:
    """Write a blob and read it. Return of both by how many MiB the memory grew, and the seconds."""
    with watched() as writing:
        begun = time.perf_counter()
        await db.insert(model(id=number, data=Blob(_pieces())))
        written = time.perf_counter() - begun
    film = await db.get(model, id=number)
    with watched() as reading:
        begun = time.perf_counter()
        length = sum([len(chunk) async for chunk in film.data])
        read = time.perf_counter() - begun
    assert length == film.data.length == _SIZE * _MIB
    return [
        f"write {max(0.0, writing.whole - writing.before)} {written}",
        f"read {max(0.0, reading.whole - reading.before)} {read}",
    ]


async def _measure(how: str, url: str, blobs: str | None = None) -> None:
    encryption = Encryption(KeyRing({"k": bytes(32)}, wrap_with="k"))
    options: dict[str, Any] = {} if blobs is None else {"blobs": blobs}
    async with connect(url, encryption=encryption, **options) as db:
        await db.create_tables(_MODELS[how])
        await _write_and_read(db, _MODELS[how], 1)  # fills the caches
        print(*await _write_and_read(db, _MODELS[how], 2), sep="\n")


if __name__ == "__main__":
    asyncio.run(_measure(*sys.argv[1:]))
