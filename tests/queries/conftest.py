"""
A database for each test of queries: in memory, and on the emulator of Azure.
"""

from tests.database.conftest import db, network

__all__ = ["db", "network"]
