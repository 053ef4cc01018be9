"""
Advice on the design of tables: what the declarations of models say of their keys, sizes and costs, before any row is
stored.
"""

from .lint import LintFinding, lint
from .rules import RULES, LintRule

__all__ = ["RULES", "LintFinding", "LintRule", "lint"]
