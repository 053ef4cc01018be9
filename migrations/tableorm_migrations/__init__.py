"""
Migrations of stored entities: `rewrite` persists the upgrades of rows that have an older version than their model;
`compare_snapshots` judges what has changed between two snapshots of models; `write_revision` writes that as a revision,
and `apply_revisions` applies revisions to a database.
"""

from .evolution import Difference, carry_removed, compare_snapshots
from .rekey.offline import roll_back_rekey, run_rekey
from .rekey.online import finalize_move, rekey_phase, roll_back_move, run_move, seal_move, verify_move
from .rekey.plan import RekeyPlan, RekeyStep, plan_rekey
from .rekey.verify import finalize_rekey, verify_rekey
from .revisions import (
    BuildIndex,
    MigrationStatus,
    RekeyStatus,
    Repair,
    Revision,
    RevisionDraft,
    RevisionStatus,
    Rewrite,
    StepReport,
    UpgradeReport,
    apply_revisions,
    load_revisions,
    migration_status,
    write_revision,
)
from .rewrite import rewrite
from .rules import RULES, Rule, Verdict
from .snapshot import Snapshot, describe_models, read_snapshot, write_snapshot

__all__ = [
    "RULES",
    "BuildIndex",
    "Difference",
    "MigrationStatus",
    "RekeyPlan",
    "RekeyStatus",
    "RekeyStep",
    "Repair",
    "Revision",
    "RevisionDraft",
    "RevisionStatus",
    "Rewrite",
    "Rule",
    "Snapshot",
    "StepReport",
    "UpgradeReport",
    "Verdict",
    "apply_revisions",
    "carry_removed",
    "compare_snapshots",
    "describe_models",
    "finalize_move",
    "finalize_rekey",
    "load_revisions",
    "migration_status",
    "plan_rekey",
    "read_snapshot",
    "rekey_phase",
    "rewrite",
    "roll_back_move",
    "roll_back_rekey",
    "run_move",
    "run_rekey",
    "seal_move",
    "verify_move",
    "verify_rekey",
    "write_revision",
    "write_snapshot",
]
