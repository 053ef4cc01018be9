"""
Audit: whether what is derived from entities is as they say, and making it so; also for entities that were there before.

    audit        the whole: `db.audit`
    build        `db.build_index`: many entities at a time get what is declared, then an audit of that
    check        `Check`: what a pattern tells the audit
    context      what checks work with: the rows of a table, which entities they are, and what was found
    entries      checks of derived rows that name their entity; what no declaration accounts for
    decisions    checks of decision rows and of rows in a move, and what is under way
    first_look   candidates that many reads at once show to be right
    table_audit  the checks of a table; one candidate after the other, read, confirmed, and repaired
    segment      sums of claims, which find candidates
    report       what was found

An audit reads every row once. Derived rows are not where their entities are in the order of keys, and a partition may
be larger than memory; so the rows are not brought together. Each entity makes claims: at the address of each derived
row it adds a number made of what that row ought to be, to one of many sums; each derived row takes away the number of
what it is. Where all is right the sums are zero. Rows that claim where a sum is not zero are candidates: they are read
again, and verified one by one, in the phases of `check.Phase`.

What is derived, and what it looks like, only the checks know. Each pattern in `tableorm.derived` has its own.
"""
