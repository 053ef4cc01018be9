"""
Fixtures of the tests of hostile clients and files: a server on a free port, and a client that sends what it is told.
"""

from tests.azure.conftest import certificate
from tests.local.engine.conftest import memory
from tests.local.server.conftest import api, server, session

__all__ = ["api", "certificate", "memory", "server", "session"]
