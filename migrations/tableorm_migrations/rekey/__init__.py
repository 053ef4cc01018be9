"""
Re-key: the entities of a model get other keys, as another model declares them.

    layouts   the two models, and how one entity becomes others
    hashing   sums of rows, by which the two sides are compared whatever their order
    window    entities that several workers write, in full transactions
    offline   `run_rekey`: copies all entities while nobody writes
    verify    `verify_rekey`: compares both sides
    finalize  `finalize_rekey`: deletes the entities of the older model, after a second verification
    plan      `plan_rekey`: what a re-key will do, and what stands against it
"""
