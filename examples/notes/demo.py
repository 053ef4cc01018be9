"""
Two users and their notes, a service that hands out tokens, and a table server: `python examples/notes/demo.py`.
"""

import asyncio
import secrets
import sys
import tempfile
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import attrs
from aiohttp import web

if not __package__:  # run as a script: only this folder is on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.notes.client import open_notes
from examples.notes.models import Note, Profile
from examples.notes.service import make_app
from tableorm import AccessDenied, Database, connect
from tableorm_local import Account, serve

PASSWORDS = {"ann": "tulip", "ken": "maple"}


@attrs.frozen
class Running:
    """
    What runs.

    Args:
        service: URL of the service.
        tables: URL of the tables.
        owner: The database, with all rights.
    """

    service: str
    tables: str
    owner: Database


@asynccontextmanager
async def running(folder: Path, passwords: Mapping[str, str]) -> AsyncGenerator[Running]:
    """The tables, as an account of their own, and the service."""
    key = b64encode(secrets.token_bytes(64)).decode()
    async with AsyncExitStack() as stack:
        accounts = [Account(name="notes", keys=[key])]
        server = await stack.enter_async_context(serve(folder / "notes.tables", port=0, accounts=accounts))
        owner = await stack.enter_async_context(connect(server.url, key=key))
        await owner.create_tables(Note, Profile)
        runner = web.AppRunner(make_app(owner, server.url, passwords))
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port: int = runner.addresses[0][1]
        yield Running(f"http://127.0.0.1:{port}", server.url, owner)


async def run(folder: Path) -> None:
    """Each writes and reads; one tries to read what is the other's."""
    async with running(folder, PASSWORDS) as place:
        for user, password in PASSWORDS.items():
            async with open_notes(place.service, password) as opened:
                mine = opened.mine
                await mine.insert(mine.new(Profile, full_name=user.title()))
                for text in ("buy milk", f"call {user}'s mother"):
                    await mine.insert(mine.new(Note, text=text))
        async with open_notes(place.service, PASSWORDS["ann"]) as ann:
            print("ann sees:", [note.text async for note in ann.mine.select(Note)])
            print("profiles that her token opens:", [each.user async for each in ann.db.select(Profile).allow_scan()])
            try:
                await ann.db.get(Profile, user="ken")
            except AccessDenied as error:
                print("ken's is not among them:", error.code)
        print("the owner counts:", await place.owner.select(Note).allow_scan().count())


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="notes-") as folder:
        asyncio.run(run(Path(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
