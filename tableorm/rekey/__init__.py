"""
Re-keys: entities of an older model become entities of a newer one, under other keys, while both are in use.

An entity moves as in `tableorm.writes.relocation`, by the rows of moves, with these differences:

- The forward keeps what the row had, and stays until everything is moved. Before the confirmed row is written or
  deleted, the forward is settled: it names no move any more, so that no late tentative row comes true by it.
- No row says before that it is about to be moved: the mover is the only one who acts. Who meets a tentative row that is
  no entity touches the older row under the ETag on which it builds, and only then deletes it.
- The older row is where the newer key says that it may be, never where a mark alone says that it is.
"""
