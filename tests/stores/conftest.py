"""
No test of the contract waits for ever, whatever a store does wrong.
"""

from pathlib import Path

import pytest

from tests.waiting import limit_all

_FOLDER = Path(__file__).parent


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let a test of this folder fail when it waits for what never comes."""
    limit_all(item for item in items if item.path.is_relative_to(_FOLDER))
