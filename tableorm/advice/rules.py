"""
The rules of `tableorm lint`: which declarations become slow, hot or too large as rows accumulate.
"""

import attrs

__all__ = ["RULES", "LintRule"]


@attrs.frozen(kw_only=True)
class LintRule:
    """
    A rule on declarations.

    Args:
        code: Its name.
        finds: What it finds.
        reason: Why that is slow, hot or too large.
        remedy: What to declare instead.
        section: The section of the Azure Storage Table Design Guide that it is about.
    """

    code: str
    finds: str
    reason: str
    remedy: str
    section: str


RULES = {
    rule.code: rule
    for rule in (
        LintRule(
            code="growing-partition-key",
            finds="a PartitionKey that begins with a moment or a date",
            reason="all inserts at one time go to the newest partition, which a single server serves",
            remedy="begin it with a field that has many values at any time, or with {field:spread(16)}",
            section="Prepend/append anti-pattern",
        ),
        LintRule(
            code="one-partition",
            finds="a PartitionKey without a field, for rows that are numbered, dated, or have a UUID",
            reason="all rows are in one partition, which takes some 2,000 requests a second at most",
            remedy="put a field into it that conditions usually give",
            section="Designing for querying: choosing an appropriate PartitionKey",
        ),
        LintRule(
            code="unpadded-number",
            finds="a number in a key without a width",
            reason="keys are in the order of text, 10 before 9, so conditions on it read more rows than they need",
            remedy="give it a width, as in {id:06d}",
            section="Compound key pattern",
        ),
        LintRule(
            code="keys-only-index",
            finds="an index that is not unique, and has keys alone",
            reason="each entity that a range of it finds is read too, which takes up to one more request",
            remedy="give the fields that such reads need, as in include=('name', 'age'), or include='all'",
            section="Intra-partition secondary index pattern",
        ),
        LintRule(
            code="index-without-maintained",
            finds="an index of a model with maintained fields, whose entries hold other fields of it",
            reason="entries never hold maintained fields, so entities that it finds are without them: NotLoaded",
            remedy="refresh(entity) where they are needed, or declare include='keys': then each entity is read, too",
            section="Intra-partition secondary index pattern",
        ),
        LintRule(
            code="many-writes",
            finds="an entity whose declarations make 80 rows or more, which are written with it",
            reason="a transaction has 100 operations at most, so few other changes fit into it",
            remedy="remove declarations that no read needs, or make some consistency='eventual'",
            section="Entity group transactions",
        ),
        LintRule(
            code="many-properties",
            finds="a model with 240 properties or more",
            reason="a row holds 252 properties, some of which are for the kind and for what is derived",
            remedy="divide it into several models, declare it wide=True, or keep rare fields in one field of JSON text",
            section="Wide entities pattern",
        ),
        LintRule(
            code="large-entity",
            finds="a model with 16 fields or more of text or bytes of any length",
            reason="each may hold 64 KiB, and a row 1 MiB together",
            remedy="put what is long into a blob, and its address into the entity",
            section="Large entities pattern",
        ),
        LintRule(
            code="list-of-few-values",
            finds="an index list whose keys are made of bool and enum fields alone",
            reason="there are few lists, which grow with all entities, and all writers meet there",
            remedy="declare an Index, whose rows are of one entity each, or add a field to the key",
            section="Index entities pattern",
        ),
        LintRule(
            code="hot-aggregate",
            finds="a count or sum that is in one row for all entities of a model",
            reason="each write of an entity changes that row, so writers wait for each other",
            remedy="count by a field, as in name='{department}'",
            section="Materialised views and summary entities",
        ),
        LintRule(
            code="mixed-ranges",
            finds="models of one table whose RowKeys do not begin with literal text of their own",
            reason="their rows lie between each other, so a range of one model reads the rows of the other",
            remedy="begin each RowKey with other literal text, as in 'order_{id}'",
            section="Working with heterogeneous entity types",
        ),
        LintRule(
            code="expiry-without-periods",
            finds="a log whose entities expire: RowKeys begin with a moment or a date, or PartitionKeys hold one",
            reason="each entity is deleted by an operation of its own, and all those of a period by one request",
            remedy="give each period a table, as in table='Logins{at:%Y%m%d}', and drop periods instead of sweeping",
            section="High volume delete pattern",
        ),
    )
}
"""The rules by their codes."""
