"""
Audit: whether what is derived from entities is as they say, and making it so; also for entities that were there before.

    ranges   which keys, and how far it got: what a cursor holds
    scanning    pages of rows in segments: whole partitions, of bounded size where they are small
    checks      what an entity ought to have, and what a derived row says: the copies of indexes
    listed      the same of index lists
    counted     the same of counts and sums
    embedded    the same of copies that entities hold of others
    looking     which row is what, and what is checked of it; reads and single writes
    judging     one suspect after the other: read, confirmed, and repaired
    judging_lists   likewise rows of index lists
    judging_sums    likewise what entities keep of others, by going through their partition
    auditing    the whole: `db.audit`
    building    `db.build_index`: entities that lack what is declared get it, many at a time, then an audit of that
    report      what was found

An audit reads every row once. Copies are not where their entities are in the order of keys, and a partition may be
larger than memory; so the rows are not brought together. Each entity adds to a sum, one of many, by the key of the
copy, a number made of what that copy ought to be; each copy takes away the number of what it is. Where all is right the
sums are zero. Rows of sums that are not zero are suspects: they are read again, and judged one by one. First come rows
of lists, by which entities are judged; then entities; last what entities that are right make it: keys in lists, counts.
"""
