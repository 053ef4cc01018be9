"""
The application on the database of each test: in memory, or wherever `--tableorm-url` says.
"""

from collections.abc import AsyncIterator, Sequence

import httpx
import pytest
import pytest_asyncio

from examples.shop.models import MODELS
from examples.shop.service import database, make_app
from tableorm import Database, Entity

TOKENS = {"acme": "tulip", "contoso": "maple"}


@pytest.fixture(scope="session")
def tableorm_models() -> Sequence[type[Entity]]:
    return MODELS


@pytest_asyncio.fixture
async def acme(tableorm_db: Database) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the shop acme."""
    app = make_app("", TOKENS)
    app.dependency_overrides[database] = lambda: tableorm_db
    headers = {"Authorization": f"Bearer {TOKENS['acme']}"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop", headers=headers) as client:
        yield client
