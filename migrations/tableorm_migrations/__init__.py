"""
Migrations of stored entities: `rewrite` persists the upgrades of rows that have an older version than their model;
`compare_snapshots` judges what has changed between two snapshots of models.
"""

from .evolution import Difference, carry_removed, compare_snapshots
from .report import RewriteFailure, RewriteReport
from .rewrite import rewrite
from .rules import RULES, Rule, Verdict
from .runs.build import run_build_index
from .runs.report import RunReport, list_runs
from .runs.rewrite import run_rewrite
from .snapshot import Snapshot, describe_models, read_snapshot, write_snapshot

__all__ = [
    "RULES",
    "Difference",
    "RewriteFailure",
    "RewriteReport",
    "Rule",
    "RunReport",
    "Snapshot",
    "Verdict",
    "carry_removed",
    "compare_snapshots",
    "describe_models",
    "list_runs",
    "read_snapshot",
    "rewrite",
    "run_build_index",
    "run_rewrite",
    "write_snapshot",
]
