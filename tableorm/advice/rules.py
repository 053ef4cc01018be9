"""
The rules of `tableorm lint`: which declarations become slow, hot or too large as rows accumulate.
"""

import attrs


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
            finds="a PartitionKey that begins with a time or a date",
            reason="all inserts go to the newest partition, which a single server serves",
            remedy="begin it with a field that has many values at any time, or with {field:spread(16)}",
            section="Prepend/append anti-pattern",
        ),
        LintRule(
            code="one-partition",
            finds="a PartitionKey without a field, for rows that are numbered, dated, or have a UUID",
            reason="all rows are in one partition, which serves about 2,000 requests per second",
            remedy="put a field into it that conditions usually give",
            section="Designing for querying: choosing an appropriate PartitionKey",
        ),
        LintRule(
            code="unpadded-number",
            finds="a number in a key without a width",
            reason="keys sort as strings, 10 before 9, so conditions on it read more rows than they need",
            remedy="give it a width, as in {id:06d}",
            section="Compound key pattern",
        ),
        LintRule(
            code="keys-only-index",
            finds="a non-unique index that holds only keys",
            reason="each entity that a range finds is read too, which takes up to one more request",
            remedy="include the fields that such reads need, as in include=('name', 'age'), or include='all'",
            section="Intra-partition secondary index pattern",
        ),
        LintRule(
            code="index-without-maintained",
            finds="an index of a model with maintained fields, whose entries hold other fields",
            reason="entries never hold maintained fields, so the entities found lack them: NotLoaded",
            remedy="refresh(entity) where you need them, or declare include='keys', which also reads each entity",
            section="Intra-partition secondary index pattern",
        ),
        LintRule(
            code="many-writes",
            finds="an entity whose declarations write 80 rows or more together with it",
            reason="a transaction has at most 100 operations, so few other changes fit into it",
            remedy="remove declarations that no read needs, or make some consistency='eventual'",
            section="Entity group transactions",
        ),
        LintRule(
            code="many-properties",
            finds="a model with 240 properties or more",
            reason="a row holds 252 properties, including those for the kind and for derived rows",
            remedy="split it into several models, declare it wide=True, or store rare fields in one JSON field",
            section="Wide entities pattern",
        ),
        LintRule(
            code="large-entity",
            finds="a model with 16 or more fields of strings or bytes of unlimited length",
            reason="each may hold 64 KiB, but a row only 1 MiB in total",
            remedy="store long values in blobs, and their addresses in the entity",
            section="Large entities pattern",
        ),
        LintRule(
            code="list-of-few-values",
            finds="an index list whose keys consist only of bool and enum fields",
            reason="there are few lists, which grow with the number of entities, and all writers compete for them",
            remedy="declare an Index, which has a row for each entity, or add a field to the key",
            section="Index entities pattern",
        ),
        LintRule(
            code="hot-aggregate",
            finds="a count or sum kept in one row for all entities of a model",
            reason="each write of an entity changes that row, so writers wait for each other",
            remedy="count by a field, as in name='{department}'",
            section="Materialised views and summary entities",
        ),
        LintRule(
            code="mixed-ranges",
            finds="models of one table whose RowKeys do not begin with distinct literals",
            reason="their rows are interleaved, so a range of one model reads rows of the other",
            remedy="begin each RowKey with a different literal, as in 'order_{id}'",
            section="Working with heterogeneous entity types",
        ),
        LintRule(
            code="expiry-without-periods",
            finds="a log whose entities expire: RowKeys begin with a time or a date, or PartitionKeys contain one",
            reason="each entity takes a separate delete operation, but one request could delete a whole period",
            remedy="give each period a table, as in table='Logins{at:%Y%m%d}', and drop periods instead of sweeping",
            section="High volume delete pattern",
        ),
    )
}
"""The rules by their codes."""
