"""
Fixtures of the tests of hostile clients and files: a server on a free port, and a client that sends what it is told.
"""

import pytest

from tableorm import RetryPolicy
from tableorm.connection import races
from tests.azure.conftest import certificate
from tests.database.conftest import network
from tests.databases import database_fixture
from tests.local.engine.conftest import memory
from tests.local.server.conftest import api, server, session

__all__ = ["api", "certificate", "memory", "network", "server", "session"]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return after how many failures each pause of a lost race came, of which none takes any time."""
    found: list[int] = []

    def pause_after(failures: int, policy: RetryPolicy) -> float:
        found.append(failures)
        return 0.0

    monkeypatch.setattr(races, "pause_after", pause_after)
    return found


db = database_fixture()
"""A new database in memory."""
