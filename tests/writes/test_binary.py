"""
How often the base64 of a Binary is decoded on its way into a row and back.
"""

import binascii
import contextlib
from collections.abc import Awaitable
from typing import Any

import pytest

from tableorm import Entity, Mapped, PropertyBag, connect, field
from tableorm_local import Account, serve
from tests.azurite import KEY


class Parcel(Entity, table="Parcels", partition_key="{p}", row_key="{r:03d}"):
    p: Mapped[str]
    r: Mapped[int]
    a: Mapped[bytes]
    b: Mapped[bytes]
    size: Mapped[int] = field(default=0)


@pytest.mark.parametrize("length", [300, 30_000])  # the rows of the latter are measured
@pytest.mark.parametrize(("where", "written"), [("embedded", 0), ("server", 2)])
async def test_a_binary_is_decoded_once(monkeypatch: pytest.MonkeyPatch, where: str, written: int, length: int) -> None:
    """
    A write decodes the base64 of no field that it has encoded itself, and a server looks once at each that it gets; a
    read decodes each field once. What was read and is written back is not looked at again.
    """
    decoded = 0
    decode = binascii.a2b_base64

    def count(data: Any, /, **options: Any) -> bytes:
        nonlocal decoded
        decoded += len(data) >= length
        return decode(data, **options)

    async def taken(call: Awaitable[object]) -> int:
        nonlocal decoded
        decoded = 0
        await call
        return decoded

    monkeypatch.setattr(binascii, "a2b_base64", count)
    async with contextlib.AsyncExitStack() as stack:
        if where == "server":
            server = await stack.enter_async_context(serve(None, port=0, accounts=[Account(name="own", keys=(KEY,))]))
            db = await stack.enter_async_context(connect(server.url, key=KEY))
        else:
            db = await stack.enter_async_context(connect("local::memory:"))
        await db.create_tables(Parcel)
        entity = Parcel(p="p", r=1, a=b"a" * length, b=b"b" * length)
        assert await taken(db.insert(entity)) == written
        assert await taken(db.upsert(entity, mode="replace")) == written
        assert await taken(db.get(Parcel, p="p", r=1)) == 2
        entity = await db.get(Parcel, p="p", r=1)
        entity.a = b"c" * length
        assert await taken(db.save(entity)) == written // 2
        bag = await db.get(PropertyBag.key("Parcels", "p", "001"))
        bag["size"] = 5
        assert await taken(db.save(bag)) == 0
        assert await taken(db.replace(bag)) == written
        bag["a"] = b"d" * length
        assert await taken(db.save(bag)) == 1 + written // 2
