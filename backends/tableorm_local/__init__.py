"""
The embedded backend of tableorm: `connect("local:./hr.tables")` and `connect("local::memory:")`.
"""

from .backend import LocalBackend

__all__ = ["LocalBackend"]
