"""
The stages of a write, from a verb to the store.

     1  change    a verb and an entity -> Change: keys, condition, and the patch, which `patching` makes; `prepare` has
                  the checks
     2  complete  the stored row is read, where the write needs it
     3  encode    Change -> PlannedWrite: one operation on one row
     5  derive    effects on other rows, and the manifest that notes them; fields that others write stay as they are
        compose   several changes of one row in a transaction become one operation
     8  place     all operations are of one table and partition            } both in `execute`
     9  check     no limit of the service is passed -> WritePlan, frozen   }
    10  execute   send, give entities their new ETags, report errors where they came from; `lost_replies` finds out what
                  became of a request without a reply

Numbers 4, 6 and 7 are free for large values, encryption and entities of several rows. Stages do not call each other,
and only `complete` and `execute` do I/O.
"""
