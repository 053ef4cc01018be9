"""
The embedded engine: tables, queues and blobs in one SQLite file. Imports nothing of ours but the protocol and the
stores' contract.
"""

from .access import AccessRecords
from .engine import Engine
from .fairness import CALLER, REQUEST_BYTES, FairSlots, FairTurns

__all__ = ["CALLER", "REQUEST_BYTES", "AccessRecords", "Engine", "FairSlots", "FairTurns"]
