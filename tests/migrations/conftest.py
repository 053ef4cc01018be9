"""
A database for each test of migrations: in memory, and on the emulator of Azure.
"""

import pytest

from tableorm.jobs import plan
from tableorm_migrations.rekey import phases
from tests.database.conftest import db

__all__ = ["db", "in_memory", "known_at_once", "many_ranges"]

in_memory = pytest.mark.parametrize("db", ["memory"], indirect=True)
"""Of tests that are alike on every store."""


@pytest.fixture
def known_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every program of the test is one, and so knows each phase at once."""
    monkeypatch.setattr(phases, "KNOWN_EVERYWHERE", 0.0)


@pytest.fixture
def many_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide each table into as many ranges as a run may have, however small it is."""
    monkeypatch.setattr(plan, "SMALL_PAGES", 0)
