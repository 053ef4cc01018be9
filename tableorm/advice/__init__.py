"""
Advice on the design of tables: what the declarations of models say of their keys, sizes and costs, before any row is
stored; and statistics of what is stored.
"""

from .lint import LintFinding, lint
from .rules import RULES, LintRule
from .statistics import TableCost, TableStatistics, measure_table
from .totals import KindStatistics

__all__ = [
    "RULES",
    "KindStatistics",
    "LintFinding",
    "LintRule",
    "TableCost",
    "TableStatistics",
    "lint",
    "measure_table",
]
