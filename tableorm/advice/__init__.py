"""
Advice on the design of tables: what the declarations of models say of their keys, sizes and costs, before any row is
stored; statistics of what is stored; and models for what other programs have stored.
"""

from ..inspection import Proposal, ProposedModel
from .inspect import inspect_table
from .lint import LintFinding, lint
from .rules import RULES, LintRule
from .statistics import TableCost, TableStatistics, measure_table
from .totals import KindStatistics

__all__ = [
    "RULES",
    "KindStatistics",
    "LintFinding",
    "LintRule",
    "Proposal",
    "ProposedModel",
    "TableCost",
    "TableStatistics",
    "inspect_table",
    "lint",
    "measure_table",
]
