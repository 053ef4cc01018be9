"""
The same databases as for the patterns' own tests.
"""

from tests.derived.patterns.conftest import db

__all__ = ["db"]
