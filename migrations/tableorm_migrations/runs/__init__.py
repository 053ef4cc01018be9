"""
Shared runs: work on all rows of some models, which several processes do together, and which outlives each of them.

    rows      what is stored of a run: a row that says what it is, and one for each range of keys
    report    what a run has done so far; `list_runs`, `drop_run`
    lease     a range that this process works on, and has as long as it tells how far it is
    process   what one process does for a run: it takes ranges, works on them, and ends the run
    rewrite   `run_rewrite`
    build     `run_build_index`

The protocol is the one of `tests/protocols/test_shared_runs.py`.
"""
