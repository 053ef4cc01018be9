"""
A database for each test of writes: in memory, and on the emulator of Azure.
"""

from tests.database.conftest import db

__all__ = ["db"]
