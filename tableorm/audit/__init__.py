"""
Audit: whether what is derived from entities is as they say, and making it so; also for entities that were there before.

    stretches   which keys, and how far it got: what a cursor holds
    scanning    pages of rows in segments: whole partitions, of bounded size where they are small
    checks      what an entity ought to have, and what a derived row says; here further kinds of derived rows are added
    judging     one suspect after the other: read, confirmed, and repaired
    auditing    the whole: `db.audit`
    building    `db.build_index`: entities that lack their copies get them, many at a time, then an audit of the index
    report      what was found

An audit reads every row once. Copies are not where their entities are in the order of keys, and a partition may be
larger than memory; so the rows are not brought together. Each entity adds to a sum, one of many, by the key of the
copy, a number made of what that copy ought to be; each copy takes away the number of what it is. Where all is right the
sums are zero. Rows of sums that are not zero are suspects: they are read again, and judged one by one.
"""
