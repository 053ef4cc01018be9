"""
The key of a database file: `tableorm keys rotate`, and servers that take no tokens that it signs.
"""

import asyncio
import datetime as dt
from pathlib import Path

import aiohttp
import pytest

from tableorm import AccessDenied, Entity, Mapped, connect
from tableorm_local.server import serve
from tests.commandline import run_command
from tests.local.server.client import Api, root_of


class Item(Entity, table="Items", partition_key="{group}", row_key="{id}"):
    group: Mapped[str]
    id: Mapped[str]


HOUR = dt.timedelta(hours=1)


async def rotate(path: Path) -> str:
    """Rotate the key of a file that others have open, and return what was printed."""
    done = await asyncio.to_thread(run_command, "keys", "rotate", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


async def test_rotation_reaches_everyone(tmp_path: Path, session: aiohttp.ClientSession) -> None:
    """After it, a token of before is rejected by servers and programs that run, and `grant` makes one that is good."""
    path = tmp_path / "x.tables"
    url = f"local:{path}"
    async with serve(path, port=0) as server, serve(path, port=0) as other, connect(url) as db:
        await db.create_tables(Item)
        await db.insert(Item(group="a", id="1"))
        apis = [Api(session, root_of(each)) for each in (server, other)]
        old = await db.grant(Item, "r", HOUR)
        async with connect(url, sas=old) as opened:
            assert (await opened.get(Item, group="a", id="1")).id == "1"
            assert [(await api("GET", "/Items()", query=old, scheme=None)).status for api in apis] == [200, 200]

            assert "has a new key; tokens signed with the old one are rejected from now on" in await rotate(path)
            refused = [await api("GET", "/Items()", query=old, scheme=None) for api in apis]
            assert [(reply.status, reply.code) for reply in refused] == [(403, "AuthenticationFailed")] * 2
            with pytest.raises(AccessDenied):
                await opened.get(Item, group="a", id="1")
        new = await db.grant(Item, "r", HOUR)
        assert new != old
        assert [(await api("GET", "/Items()", query=new, scheme=None)).status for api in apis] == [200, 200]
        assert (await apis[0]("GET", "/Items()")).status == 200


async def test_a_file_that_has_signed_nothing(tmp_path: Path) -> None:
    """A file without a key gets none, and says so."""
    path = tmp_path / "x.tables"
    async with connect(f"local:{path}"):
        pass

    assert "has no key, as it has never signed a token; nothing is changed" in await rotate(path)
    assert "has no key" in await rotate(path)


async def test_a_server_without_tokens_of_the_file(tmp_path: Path, session: aiohttp.ClientSession) -> None:
    """With `file_tokens=False` only keys of the account sign tokens."""
    path = tmp_path / "x.tables"
    async with serve(path, port=0, file_tokens=False) as server, connect(f"local:{path}") as db:
        await db.create_tables(Item)
        api = Api(session, root_of(server))
        token = await db.grant(Item, "r", HOUR)
        assert (await api("GET", "/Items()", query=token, scheme=None)).code == "AuthenticationFailed"
        async with connect(server.url, key=api.key) as client:
            good = await client.grant(Item, "r", HOUR)
        assert (await api("GET", "/Items()", query=good, scheme=None)).status == 200
