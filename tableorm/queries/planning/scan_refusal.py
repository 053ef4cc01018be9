"""
The message that refuses a scan, and names what would serve the query.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from ...expressions import Comparison, Expression, Membership
from ...models.kinds import KindSet
from ...models.schema import Schema
from ...protocol.filters import Op
from .alternatives import MOST_REQUESTS

__all__ = ["scan_message"]


def _index_that_serves(schema: Schema, given: AbstractSet[str]) -> str:
    """Which index the conditions are for, once the partition is given."""
    for derived in schema.derived.values():
        row = None if derived.row_schema is None else derived.row_schema.row
        if row is not None and row.fields and row.fields[0] in given and not derived.building:
            return f", which {derived.label} would serve then"
    return ""


def scan_message(kinds: KindSet, terms: Sequence[Expression]) -> str:
    """Return the message that refuses a scan, and names what would serve the query."""
    names = " and ".join(schema.name for schema in kinds.schemas) or "PropertyBag"
    given = {
        term.field.name
        for term in terms
        if (isinstance(term, Comparison) and term.op is Op.EQ) or (isinstance(term, Membership) and not term.negated)
    }
    many = next((t for t in terms if isinstance(t, Membership) and len(t.values) > MOST_REQUESTS), None)
    if many is not None:
        return (
            f"{names}: the query visits every partition of table {kinds.table}, because {many} has more than "
            f"{MOST_REQUESTS} values, too many for a request each; ask for fewer at a time, or .allow_scan() if a scan "
            "is meant"
        )
    for schema in kinds.schemas:
        template = schema.partition
        missing = [field for field in template.fields if field not in given] if template is not None else []
        if template is not None and missing:
            wanted = ", ".join(f"{schema.name}.{field} == ..." for field in missing)
            return (
                f"{names}: the query visits every partition of table {kinds.table}, because it has no equality on "
                f"{' and '.join(missing)}, of which partition_key {template.text!r} is made; add .where({wanted})"
                f"{_index_that_serves(schema, given)}, or .allow_scan() if a scan is meant"
            )
    return (
        f"{names}: the query visits every partition of table {kinds.table}; add conditions that give one PartitionKey, "
        "or .allow_scan() if a scan is meant"
    )
