"""
The command `tableorm migrate`: changes of models are checked, written as revisions, and applied to a database.
"""

from .migrate import MIGRATE

__all__ = ["MIGRATE"]
