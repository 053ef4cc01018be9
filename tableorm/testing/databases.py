"""
Databases for one test each: in memory, or with a table prefix of their own wherever a URL leads.
"""

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from ..database.connect import connect
from ..database.database import Database
from ..models.entity import Entity

__all__ = ["MEMORY", "temporary_database"]

MEMORY = "local::memory:"


@asynccontextmanager
async def temporary_database(url: str = MEMORY, *models: type[Entity], **options: Any) -> AsyncGenerator[Database]:
    """
    Open an empty database, and leave nothing behind:

        async with temporary_database("local:./tests.tables", Order) as db: ...

    In memory that is a database of its own. Elsewhere its tables get a prefix that nobody else has, `test` and twelve
    digits or letters, and are dropped in the end.

    Args:
        url: What `connect` opens.
        models: Models whose tables are created.
        options: Other arguments of `connect`.
    """
    # What is dropped in the end is no more than this call has made: a prefix that is given is only the beginning.
    if url != MEMORY:
        options["prefix"] = f"{options.get('prefix', '')}test{secrets.token_hex(6)}"
    async with connect(url, **options) as db:
        try:
            await db.create_tables(*models)
            yield db
        finally:
            if url != MEMORY:
                for table in await db.tables():
                    await db.drop_table(table, missing_ok=True)
