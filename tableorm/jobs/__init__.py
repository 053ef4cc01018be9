"""
Jobs: work on all rows of some tables, by ranges of keys. One process does a job alone, and gives cursors from which
another call resumes; or any number of processes share it, as a run that outlives each of them.

    ranges    ranges of keys, and cursors that say how far they are
    counts    what is counted meanwhile
    scan      reading rows page by page; `walk`, which deals with the pages of a range
    plan      how the rows of tables are divided into ranges that several processes share
    process   `Job`; what one process does for it
    lease     a range that this process works on, and has as long as it tells how far it is
    rows      what is stored of a run: a row that says what it is, and one for each range of keys
    report    what a run has done so far

The protocol of runs is the one of `tests/protocols/test_shared_runs.py`.
"""
