"""
Revisions: changes of models as small files, each with what it needs done to stored rows; and how they are applied.
"""

from .apply import StepReport, UpgradeReport, apply_revisions
from .line import load_revisions
from .revision import BuildIndex, Repair, Revision, Rewrite
from .status import MigrationStatus, RekeyStatus, RevisionStatus, migration_status
from .write import RevisionDraft, write_revision

__all__ = [
    "BuildIndex",
    "MigrationStatus",
    "RekeyStatus",
    "Repair",
    "Revision",
    "RevisionDraft",
    "RevisionStatus",
    "Rewrite",
    "StepReport",
    "UpgradeReport",
    "apply_revisions",
    "load_revisions",
    "migration_status",
    "write_revision",
]
