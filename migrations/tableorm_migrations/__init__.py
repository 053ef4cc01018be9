"""
Migrations of stored entities: `rewrite` persists the upgrades of rows that have an older version than their model;
`compare_snapshots` judges what has changed between two snapshots of models.
"""

from .evolution import Difference, carry_removed, compare_snapshots
from .report import RewriteFailure, RewriteReport
from .rewrite import rewrite
from .rules import RULES, Rule, Verdict
from .snapshot import Snapshot, describe_models, read_snapshot, write_snapshot

__all__ = [
    "RULES",
    "Difference",
    "RewriteFailure",
    "RewriteReport",
    "Rule",
    "Snapshot",
    "Verdict",
    "carry_removed",
    "compare_snapshots",
    "describe_models",
    "read_snapshot",
    "rewrite",
    "write_snapshot",
]
