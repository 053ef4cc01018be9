"""
Marker rows: rows by which a change of several partitions keeps its state, and which are not entities.

A marker row has a kind of its own, so that no filter for a model's kind finds it:

    Employee#_tentative:2   the new place of an entity while it is moved; an index entry is Employee#by_email#_tentative
    Employee#_forward       the place that an entity has left
    #_decision              what became of a change, and what is left to do for it; its RowKey begins with `~o_`

No model and no declaration has a name that begins with an underscore, so no other row has such a kind.
"""

import re

from ..errors import ModelError
from ..keys.overlap import may_meet
from ..keys.parse import parse_template
from ..keys.template import Template
from ..stores import Row
from .placement import declared_models, rows_of
from .reserved import ENTITY_TYPE
from .schema import Schema

__all__ = ["DECISION_HEAD", "DECISION_KIND", "FORWARD", "TENTATIVE", "check_decision_rows", "is_marker"]

TENTATIVE = "#_tentative"
"""What the kind of a tentative row has behind the kind of the entity or index entry."""

FORWARD = "#_forward"
"""What the kind of a forward has behind the kind of the entity."""

DECISION_KIND = "#_decision"
"""The kind of decision rows."""

DECISION_HEAD = "~o_"
"""The text that the RowKey of each decision row begins with; the token of the change follows."""

_DECISION_KEYS = parse_template(DECISION_HEAD + "{token}", "decision row", "row_key", {"token": str})
_find_marker = re.compile(r"#_(?:tentative|forward|decision)(?=:|\Z)").search


def is_marker(row: Row) -> bool:
    """Return whether a row is a marker row."""
    kind = row.get(ENTITY_TYPE)
    return isinstance(kind, str) and _find_marker(kind) is not None


def check_decision_rows(schema: Schema) -> None:
    """
    Refuse a model if decision rows could be taken for its entities, or other models' because of what it declares.

    A table has decision rows if some model of it declares something that is deferred.

    Args:
        schema: The new model.

    Raises:
        ModelError: A model of the table has no kind, or one that a function tells; or its rows, or rows that are
            derived from its entities, could have the key of a decision row.
    """
    models = declared_models(schema)
    deferred = {s.table_name().lower(): each.label for s in models for each in s.derived.values() if each.deferred}
    tables = {rows.table.lower() for rows in rows_of(schema)} & deferred.keys()
    for each in (rows for model in models for rows in rows_of(model)) if tables else ():
        if each.table.lower() not in tables:
            continue
        where = f"in table {each.table}, where {deferred[each.table.lower()]} has decision rows"
        model = each.schema
        if each.name is None and (model.kind is None or callable(model.discriminator)):
            what = "kind=None" if model.kind is None else "a function as its discriminator"
            raise ModelError(
                f"{each.label} is refused {where}: with {what} they could be read as its entities; give it a kind and "
                "discriminator='property', 'row_key' or 'partition_key', or another table"
            )
        if _can_begin_as_decision(each.row):
            label = each.label if each.name else f"{each.label}.row_key"
            raise ModelError(
                f"{label}: a RowKey of {each.row.text!r} can begin with {DECISION_HEAD!r}, which is refused {where}; "
                f"begin it with other literal text, as in 'x_{each.row.text}'"
            )


def _can_begin_as_decision(template: Template) -> bool:
    first = template.parts[0].format if template.parts else None
    alphabet = None if first is None else first.alphabet
    return (alphabet is None or DECISION_HEAD[0] in alphabet) and may_meet(template, _DECISION_KEYS)
