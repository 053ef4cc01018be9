"""
Migrations of stored entities: `rewrite` persists the upgrades of rows that have an older version than their model.
"""

from .report import RewriteFailure, RewriteReport
from .rewrite import rewrite

__all__ = ["RewriteFailure", "RewriteReport", "rewrite"]
