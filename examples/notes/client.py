"""
What a user runs: it asks the service for tokens, and opens the tables with them.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp
import attrs

from tableorm import Database, Scope, connect


@attrs.frozen
class Opened:
    """
    What a user has.

    Args:
        db: The tables, as far as the token goes.
        mine: The user's rows in them.
    """

    db: Database
    mine: Scope


@asynccontextmanager
async def open_notes(service: str, password: str) -> AsyncGenerator[Opened]:
    """
    Open the user's notes. Tokens are fetched when they are needed, and anew before they expire.

    Args:
        service: URL of the service.
        password: The user's.
    """
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {password}"}, raise_for_status=True) as session:

        async def fetch() -> dict[str, str]:
            async with session.post(f"{service}/token") as response:
                answer: dict[str, str] = await response.json()
                return answer

        async def token() -> str:
            return (await fetch())["token"]

        me = await fetch()
        async with connect(me["tables"], sas=token) as db:
            yield Opened(db, db.scope(user=me["user"]))
