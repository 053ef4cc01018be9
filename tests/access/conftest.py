"""
One account in three worlds: the embedded engine in process, our server, and Azurite. Only the URL differs.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import attrs
import pytest

from tableorm import Database, Entity, Mapped, PropertyBag, connect, field
from tableorm.stores import Supplier
from tableorm_local import serve
from tableorm_local.server import DEVELOPMENT_KEY
from tests.azurite import Azurite
from tests.databases import database_fixture


class Department(Entity, table="Directory", partition_key="{name}", row_key="department"):
    name: Mapped[str]
    employee_count: Mapped[int] = field(default=0)


class Employee(Entity, table="Directory", partition_key="{department}", row_key="empid_{id:06d}"):
    department: Mapped[str] = field(default="Sales")
    id: Mapped[int]
    name: Mapped[str] = field(default="Jun")
    age: Mapped[int | None] = field(default=None)


@attrs.frozen
class World:
    """
    An account.

    Args:
        name: "local", "server" or "azurite".
        url: What a token is used with.
        owner: The database, opened with all rights.
    """

    name: str
    url: str
    owner: Database

    def open(self, sas: str | Supplier) -> Database:
        """The database, opened with a token."""
        return connect(self.url, sas=sas)


async def _emptied(owner: Database) -> None:
    for table in await owner.tables():
        await owner.drop_table(table)


async def _world(name: str, folder: Path, stack: AsyncExitStack, azurite: Azurite | None) -> World:
    if name == "local":
        url = f"local:{folder / 'hr.tables'}"
        return World(name, url, await stack.enter_async_context(connect(url)))
    if azurite is not None:
        owner = await stack.enter_async_context(connect(azurite.connection_string))
        stack.push_async_callback(_emptied, owner)  # it outlives the test
        return World(name, azurite.table, owner)
    server = await stack.enter_async_context(serve(folder / "hr.tables", port=0))
    return World(name, server.url, await stack.enter_async_context(connect(server.url, key=DEVELOPMENT_KEY)))


@pytest.fixture(params=["local", "server", "azurite"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """Two departments of five employees each."""
    name: str = request.param
    azurite: Azurite | None = request.getfixturevalue("azurite") if name == "azurite" else None
    async with AsyncExitStack() as stack:
        world = await _world(name, tmp_path, stack, azurite)
        owner = world.owner
        await owner.create_tables(Department, Employee)
        for department in ("HR", "Sales"):
            async with owner.transaction() as tx:
                tx.insert(Department(name=department))
                for number in (99, 100, 150, 199, 200):
                    tx.insert(Employee(department=department, id=number))
        yield world


async def rows(db: Database) -> list[tuple[str, str]]:
    """The keys of every row of the directory that a database shows."""
    found: list[PropertyBag] = await db.select_raw("Directory").allow_scan().all()
    return [(bag.partition_key, bag.row_key) for bag in found]


db = database_fixture()
"""A new database in memory."""
