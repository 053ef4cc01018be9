"""
A database for each test of audits: in memory, and on the emulator of Azure.
"""

from tests.database.conftest import db

__all__ = ["db"]
