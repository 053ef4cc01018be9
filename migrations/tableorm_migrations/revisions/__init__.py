"""
Revisions: changes of models as small files, each with what it needs done to stored rows.
"""

from .line import load_revisions
from .revision import BuildIndex, Repair, Revision, Rewrite
from .write import RevisionDraft, write_revision

__all__ = [
    "BuildIndex",
    "Repair",
    "Revision",
    "RevisionDraft",
    "Rewrite",
    "load_revisions",
    "write_revision",
]
