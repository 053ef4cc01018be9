"""
A database for each test of what is derived: in memory, and on the emulator of Azure.
"""

from tests.database.conftest import db

__all__ = ["db"]
