"""
Fixtures of the tests of hostile clients and files: a server on a free port, and a client that sends what it is told.
"""

import pytest

from tableorm_local.server.front.limits import Budget
from tests.azure.conftest import certificate
from tests.local.engine.conftest import memory
from tests.local.server.conftest import api, server, session

__all__ = ["api", "budgets", "certificate", "memory", "server", "session"]


@pytest.fixture
def budgets(monkeypatch: pytest.MonkeyPatch) -> dict[str, Budget]:
    """The budgets of the server that is made next, by what they are about."""
    found: dict[str, Budget] = {}
    make = Budget.__init__

    def note(self: Budget, total: int, what: str) -> None:
        make(self, total, what)
        found.setdefault(what, self)

    monkeypatch.setattr(Budget, "__init__", note)
    return found
