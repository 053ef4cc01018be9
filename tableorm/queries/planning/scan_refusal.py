"""
The errors that refuse a query for its cost, and name what would serve it.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from ...errors import ScanRefused
from ...expressions import Comparison, Expression, Membership
from ...keys.template import MAX_BUCKETS
from ...models.schema import Schema
from ...protocol.filters import Op
from .alternatives import MAX_ALTERNATIVES
from .target import QueryTarget


def too_many_error(target: QueryTarget, count: int | None) -> ScanRefused:
    """
    Return the error that refuses a query of more than `MAX_ALTERNATIVES` alternatives.

    Args:
        target: What is asked for.
        count: How many alternatives there are; None if not all were counted.
    """
    if count is None:
        found = f"more than {MAX_ALTERNATIVES:,}"
    else:
        found = f"{count:,}" if count <= 10 * MAX_ALTERNATIVES else f"more than {10 * MAX_ALTERNATIVES:,}"
    return ScanRefused(
        f"{_names_of(target)}: the conditions have {found} alternatives, each a request; a query has at most "
        f"{MAX_ALTERNATIVES:,}. Read entities whose keys you know with db.get_many(keys), query fewer at a time, or "
        f"add .allow_scan() to read table {target.table} and filter its rows in Python"
    )


def too_many_buckets_error(target: QueryTarget, count: int) -> ScanRefused:
    """Return the error that refuses a query of more than `MAX_BUCKETS` partitions of which some are hash buckets."""
    return ScanRefused(
        f"{_names_of(target)}: the conditions do not determine the hash buckets, so the query reads {count:,} "
        f"partitions; at most {MAX_BUCKETS} can be merged. Query fewer at a time, or add .allow_scan() to "
        f"read table {target.table}"
    )


def scan_error(target: QueryTarget, terms: Sequence[Expression], *, in_range: bool) -> ScanRefused:
    """
    Return the error that refuses a scan, and says which condition is missing.

    Args:
        target: What is asked for.
        terms: The conditions, in normal form.
        in_range: Whether it visits no other partitions than those of a range.
    """
    visits = f"{_names_of(target)}: the query visits every partition of table {target.table}"
    allow = ".allow_scan() to scan anyway"
    if in_range:
        visits = f"{_names_of(target)}: the query visits a range of the partitions of table {target.table}"
        allow = '.allow_scan(partitions="range") to read them anyway'
    given = {
        term.field.name
        for term in terms
        if (isinstance(term, Comparison) and term.op is Op.EQ) or (isinstance(term, Membership) and not term.negated)
    }
    for schema in target.schemas:
        template = schema.partition
        missing = [field for field in template.fields if field not in given] if template is not None else []
        if template is not None and template.constrain_by_bucket(tuple((each, Op.EQ) for each in given)):
            continue  # it is another kind that would scan
        if template is not None and missing and template.spread_fields.issuperset(missing):
            return ScanRefused(
                f"{visits}, because partition_key {template.text!r} has more than {MAX_BUCKETS} hash buckets of "
                f"{' and '.join(missing)}; give {' and '.join(missing)}, or add {allow}"
            )
        if template is not None and missing:
            missing = [field for field in missing if field not in template.spread_fields]
            wanted = ", ".join(f"{(schema.primary or schema).name}.{field} == ..." for field in missing)
            return ScanRefused(
                f"{visits}, because it has no equality on {' and '.join(missing)}, from which partition_key "
                f"{template.text!r} is built; add .where({wanted}){_name_index_that_serves(schema, given)}, or {allow}"
            )
    return ScanRefused(f"{visits}; add conditions that determine one PartitionKey, or {allow}")


def _names_of(target: QueryTarget) -> str:
    return " and ".join(schema.name for schema in target.schemas) or "PropertyBag"


def _name_index_that_serves(schema: Schema, given: AbstractSet[str]) -> str:
    """Return words that name an index which the conditions are for, perhaps with the partition; "" without one."""
    for derived in schema.derived.values():
        rows = derived.row_schema
        if rows is None or derived.building:
            continue
        partition, row = rows.templates()
        if derived.deferred:
            if given >= frozenset(partition.fields):
                return f", query the index instead, db.select({derived.label})"
        elif row.fields and row.fields[0] in given and derived.holds_all({*given, *partition.fields}):
            return f", which then uses {derived.label}"
    return ""
