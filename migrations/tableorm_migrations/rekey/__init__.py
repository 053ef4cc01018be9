"""
Re-key: the entities of a model get other keys, as another model declares them.

    layouts     the two models, and how one entity becomes others
    hashing     sums of rows, by which the two sides are compared whatever their order
    sides       the jobs: rows of each table by pages, or those of several workers in full transactions
    offline     `run_rekey`: copies all entities while nobody writes; `roll_back_rekey`: deletes the copies
    verify      `verify_rekey`: compares both sides; `finalize_rekey`: deletes the entities of the older model
    plan        `plan_rekey`: what a re-key will do, and what prevents it
    phases      a re-key while programs go on, and its phase in the store
    comparison  compares both sides of that
    online      its steps: `run_move`, `verify_move`, `seal_move`, `finalize_move`, `roll_back_move`
"""
