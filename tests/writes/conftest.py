"""
A database for each test of writes: in memory, and on the emulator of Azure.
"""

from tests.database.conftest import db, pytest_collection_modifyitems

__all__ = ["db", "pytest_collection_modifyitems"]
