"""
Databases for one test each: in memory, or with a table prefix of their own wherever a URL leads.
"""

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from ..connection.connection import connection_of
from ..database.connect import connect
from ..database.database import Database
from ..models.entity import Entity

MEMORY = "local::memory:"


@asynccontextmanager
async def temporary_database(url: str = MEMORY, *models: type[Entity], **options: Any) -> AsyncGenerator[Database]:
    """
    Open an empty database, and remove everything at the end.

        async with temporary_database("local:./tests.tables", Order) as db: ...

    In memory, this is a separate database. Anywhere else, its tables, queues and containers get a unique prefix, `test`
    with twelve digits or letters, and are dropped at the end.

    Args:
        url: The URL that `connect` opens.
        models: The models whose tables are created.
        options: Other arguments of `connect`.
    """
    # What is dropped in the end is no more than this call has made: a prefix that is given is only the beginning.
    elsewhere = url != MEMORY or not {"queues", "blobs"}.isdisjoint(options)
    if elsewhere:
        options["prefix"] = f"{options.get('prefix', '')}test{secrets.token_hex(6)}"
    async with connect(url, **options) as db:
        try:
            await db.create_tables(*models)
            yield db
        finally:
            if elsewhere:
                await _drop_all(db)


async def _drop_all(db: Database) -> None:
    for table in await db.tables():
        await db.drop_table(table, missing_ok=True)
    asked_for = connection_of(db).asked_for  # what nobody has asked for may not even answer
    if "queues" in asked_for:
        for queue in await db.queues.list_queues():
            await db.queues.delete_queue(queue)
    if "blobs" in asked_for:
        for container in await db.blobs.list_containers():
            await db.blobs.delete_container(container)
