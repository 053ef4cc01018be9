"""
The embedded engine: tables, queues and blobs in one SQLite file. Imports nothing of ours but the protocol and the
stores' contract.
"""

from .access import AccessRecords
from .engine import Engine

__all__ = ["AccessRecords", "Engine"]
