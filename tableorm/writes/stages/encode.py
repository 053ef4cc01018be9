"""
Stage 3, encode: a Change becomes one operation on one logical row, after stage 2 where it needs the stored row.

What each verb changes is its patch, see `patching`. What is sent for that:

| patch                                       | sent                                                                   |
|---------------------------------------------|------------------------------------------------------------------------|
| deletes the row                             | DELETE                                                                 |
| expects no row                              | INSERT of what it sets                                                 |
| decides the whole row                       | INSERT_OR_REPLACE; REPLACE if there must be a row                      |
| decides the fields, or removes a property   | REPLACE by the known row with the patch applied: no merge removes      |
| the known row was upgraded                  | likewise, so that no row is half of the older version                  |
| anything else                               | INSERT_OR_MERGE of what it sets; MERGE if there must be a row          |
| changes nothing, and is no guard            | nothing                                                                |

An upsert of which the stored row was read expects what was found.
"""

from msgspec import structs

from ...models.rekeyed_rows import old_place_of
from ...models.reserved import ENTITY_TYPE, ENTITY_VERSION, WRITE_TOKENS
from ...models.write_tokens import new_token, tokens_of, with_token
from ...protocol.edm import ANNOTATION
from ...stores import Operation, Row, Verb
from ..patch import Expects, Extent, Known, apply, is_removed
from ..plan import Change, Mode, PlannedWrite
from ..rows import compare, content
from .patching import keep_kind

__all__ = ["encode", "is_partial", "is_stale", "needs_row"]

_GUARDS = (Mode.GUARD, Mode.REBUILD)


def needs_row(change: Change) -> bool:
    """
    Return whether the stored row must be read before this can be written.

    | the subject                         | reads first                                                              |
    |-------------------------------------|--------------------------------------------------------------------------|
    | changes nothing                     | never                                                                    |
    | was read from an index entry        | always: it has no ETag                                                   |
    | has rows derived from it            | unless its whole row is known, under an ETag: it says where they are     |
    | is replaced, but unknown properties | likewise: which there are                                                |
    | removes a property                  | if its row is known in part                                              |
    | was upgraded, and is merged         | if its row may be another version than was read                          |
    """
    patch, known, schema = change.patch, change.before, change.schema
    if change.is_read or patch.expects is Expects.ABSENT or change.mode in _GUARDS:
        return False
    tracked = schema is not None and schema.tracked
    if known is None:
        return tracked or patch.extent is Extent.FIELDS
    if patch.is_idle and not known.upgraded:
        return False
    if isinstance(known.proof, frozenset):
        return True
    surely = known.complete and known.proof is not None
    if tracked:
        if not surely or patch.expects is Expects.EITHER:
            return True
        return schema is not None and schema.moved_from is not None and old_place_of(known.row) is not None
    if patch.extent is Extent.FIELDS:
        return not surely
    if patch.remove:
        return not known.complete
    return known.upgraded and known.proof is None and patch.extent is Extent.SOME


def encode(change: Change, index: int, token: str | None = None) -> PlannedWrite | None:
    """
    Return the operation of a change; None for one that has nothing to write.

    Args:
        change: What to write.
        index: Its position among the user's changes.
        token: The write token, if the row carries them; a new one if not given.
    """
    patch, known, members = change.patch, change.stored, change.patch.set
    if members is None:
        return _delete(change, index)
    must_exist = patch.expects is Expects.PRESENT
    if patch.extent is Extent.ROW:
        replace = Verb.REPLACE if must_exist else Verb.INSERT_OR_REPLACE
        verb = Verb.INSERT if patch.expects is Expects.ABSENT else replace
        return _finish(change, index, token, verb, members, members)
    upgrades = known is not None and known.upgraded and known.complete
    touches = upgrades or change.mode in _GUARDS
    if patch.is_idle and not touches:
        return None
    after = change.shown or {}
    if change.is_read and known is not None:
        members = _respelled(members, known, change)
        after = apply(structs.replace(patch, set=members), content(known.row)) or {}
    removes = known is not None and is_removed(patch, known.row)
    if removes or upgrades or patch.extent is Extent.FIELDS:
        return _finish(change, index, token, Verb.REPLACE, after, after)
    if not members and not touches:
        return None  # what was to be removed is not there
    verb = Verb.MERGE if must_exist else Verb.INSERT_OR_MERGE
    exact = must_exist and known is not None and known.complete and known.proof is not None
    members = {"PartitionKey": change.partition_key, "RowKey": change.row_key, **members}
    write = _finish(change, index, token, verb, members, after, partial=not exact)
    return structs.replace(write, stale=True) if is_stale(change) else write


def _delete(change: Change, index: int) -> PlannedWrite:
    keys: Row = {"PartitionKey": change.partition_key, "RowKey": change.row_key}
    tokens = () if change.stored is None else tokens_of(change.stored.row)
    base = tokens[0] if tokens else None
    operation = Operation(Verb.DELETE, keys, change.if_match)
    return PlannedWrite(operation=operation, change=change, index=index, after=None, weight=0, base=base)


def _respelled(members: Row, known: Known, change: Change) -> Row:
    """Return members with the types and spellings of the row that was read: only what is changed takes others."""
    members = members.copy()
    if change.schema is not None:
        if ENTITY_TYPE in members or ENTITY_VERSION in members:
            keep_kind(members, known.row)
        compare(known.row, members, change.schema)
    return members


def is_stale(change: Change) -> bool:
    """Return whether a merge of some fields overwrites a version that its subject, which knows another, never saw."""
    if change.only is None or change.mode is not Mode.MERGE or change.before is None or change.before.proof is not None:
        return False
    return change.schema is None or len(change.only) < len(change.schema.stored)


def is_partial(change: Change) -> bool:
    """Return whether the row may have more than the subject remembers."""
    return change.before is not None and not change.before.complete


def _finish(
    change: Change, index: int, token: str | None, verb: Verb, row: Row, after: Row, *, partial: bool = False
) -> PlannedWrite:
    """Return the planned write, with its token on the row if its rows carry tokens."""
    stored = change.stored
    read = () if stored is None or WRITE_TOKENS not in stored.row else tokens_of(stored.row)
    base = read[0] if read else None
    carries = change.schema is not None and change.schema.write_token
    weight = change.weight if after is change.shown else None
    # Not for rows of which nothing is known: a plain table stays as other programs expect it. Nor for a copy of a row:
    # derived rows name its tokens.
    if (base is None and not carries) or WRITE_TOKENS in row:
        token, blind = None, True
    else:
        token = token or new_token()
        # What overwrites without looking must not claim to follow what it may never have seen; nor what overwrites the
        # version of an ETag that it was given, and has itself read another one.
        blind = stored is None or change.if_match in (None, "*") or change.if_match != stored.row.get("odata.etag")
        tokens = with_token(() if blind else read, token)
        row, after = _with_tokens(row, tokens), _with_tokens(after, tokens)
        if weight is not None:
            weight += len(tokens)
    # A model whose rows do not carry tokens may have no room for one more property.
    canonical = weight is not None and (token is None or carries)
    return PlannedWrite(
        operation=Operation(verb, row, change.if_match, canonical),
        change=change,
        index=index,
        after=after,
        weight=weight,
        partial=partial,
        token=token,
        base=None if blind else base,
    )


def _with_tokens(row: Row, tokens: str) -> Row:
    members = row.copy()
    members[WRITE_TOKENS] = tokens
    members.pop(WRITE_TOKENS + ANNOTATION, None)  # the name is reserved, whoever has used it
    return members
