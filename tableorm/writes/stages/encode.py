"""
Stage 3, encode: a Change becomes one operation on one logical row, after stage 2 where it needs the stored row.

| verb           | sends                                        | if its row was read for this write            |
|----------------|----------------------------------------------|-----------------------------------------------|
| insert         | INSERT of the whole row                      |                                               |
| upsert merge   | INSERT_OR_MERGE of all fields, and of all    | MERGE of these; INSERT if there is none       |
|                | unknown properties that it has               |                                               |
| upsert replace | INSERT_OR_REPLACE by the whole row           | REPLACE; INSERT if there is none              |
| replace        | REPLACE by all fields, with the unknown      | likewise, with those of that row              |
|                | properties that the row has                  |                                               |
|                | REPLACE by its fields, with `drop_extra`;    |                                               |
|                | by its properties, of a bag                  |                                               |
| save           | MERGE of what was changed; REPLACE, if a     | MERGE or REPLACE of that row with the changes |
|                | property is removed; or nothing              |                                               |
| merge          | MERGE of the chosen fields, or of all; or    | MERGE of these                                |
|                | nothing                                      |                                               |
| delete         | DELETE                                       | DELETE                                        |
| guard, rebuild | MERGE of the keys alone                      |                                               |

A save or merge of an upgraded row is a REPLACE, so that no row is half of the older version. The condition of an
operation is `if_match` of its change; `complete` puts the ETag there under which it has read a row, and says whether
there is one.

A verb says what it changes as a patch, which `patching` makes: whether there must be a row, how much of it the patch
decides, and what it sets and removes. Here the patch is applied to what is known of the row.
"""

from msgspec import structs

from ...models.reserved import BOUND_TO_KEYS, ENTITY_TYPE, ENTITY_VERSION, OPENED, WRITE_TOKENS
from ...models.write_tokens import new_token, tokens_of, with_token
from ...protocol.edm import ANNOTATION
from ...stores import Operation, Row, Verb
from ..patch import Expects, Extent, Known, apply, is_removed
from ..plan import Change, Mode, PlannedWrite
from ..rows import compare, content
from .patching import keep_kind
from .prepare import refuse_removal

_GUARDS = (Mode.GUARD, Mode.REBUILD)
_MERGES = (Mode.MERGE, Mode.UPSERT_MERGE)


def needs_row(change: Change) -> bool:
    """
    Return whether the stored row must be read before this can be written.

    Asked in this order, of what the subject remembers of the row. That is surely known if all of it was read, and its
    ETag is sent, or if the transaction holds its write.

    | the write                                          | reads first                                           |
    |----------------------------------------------------|-------------------------------------------------------|
    | is an insert or a guard, or sets and removes       | never                                                 |
    | nothing of a row that was not upgraded             |                                                       |
    | is of what was read from an index entry            | always: that has no ETag                              |
    | is of a model with derived rows                    | if it is an upsert, or the row is not surely known    |
    | is a replace that keeps unknown properties         | if the row is not surely known                        |
    | is a save that removes a property                  | if the row is known in part                           |
    | is a merge of a model with versions                | if the row may be another than is remembered          |
    | is a merge of a model with encrypted fields        | likewise                                              |
    """
    patch, known, schema = change.patch, change.before, change.schema
    if patch.expects is Expects.ABSENT or change.is_read or change.mode in _GUARDS:
        return False
    if patch.is_idle and not (known is not None and known.upgraded):
        return False
    if change.is_copied:
        return True
    surely = known is not None and known.complete and known.proof is not None
    if schema is not None and schema.tracked:
        elsewhere = schema.home is not None and known is not None and schema.home.is_elsewhere(known.row)
        return not surely or patch.expects is Expects.EITHER or elsewhere
    if patch.extent is Extent.FIELDS:
        return not surely
    if patch.remove and change.mode is Mode.SAVE:
        return known is not None and not known.complete
    if schema is None or patch.extent is not Extent.SOME or not change.is_unseen:
        return False
    merges = change.mode is Mode.MERGE or (known is not None and known.upgraded)
    return (merges and schema.version > 1) or schema.keyed is not None


def encode(change: Change, index: int, token: str | None = None) -> PlannedWrite | None:
    """
    Return the operation of a change; None for one that has nothing to write.

    Args:
        change: What to write.
        index: Its position among the user's changes.
        token: The write token, if the row carries them; a new one if not given.

    Raises:
        EncodeError: A merge would have to remove a property.
    """
    patch, stored = change.patch, change.stored
    if patch.remove and change.mode in _MERGES:
        there = stored.row if change.is_read and stored is not None else patch.remove
        refuse_removal(change.schema, sorted(name for name in patch.remove if name in there))
    return encode_patch(change, index, token)


def encode_surely(change: Change, token: str | None = None) -> PlannedWrite:
    """Return the operation of a single change that has something to write, as an insert, a delete and a guard have."""
    write = encode(change, 0, token)
    assert write is not None
    return write


def encode_patch(change: Change, index: int, token: str | None = None) -> PlannedWrite | None:
    """Return what `encode` does, whatever verb a removal comes from: that of an earlier change of the row."""
    patch, stored, members = change.patch, change.stored, change.patch.set
    if members is None:
        return _delete(change, index)
    must_exist = patch.expects is Expects.PRESENT
    if patch.extent is Extent.ROW:
        overwrite = Verb.REPLACE if must_exist else Verb.INSERT_OR_REPLACE
        verb = Verb.INSERT if patch.expects is Expects.ABSENT else overwrite
        return _finish(change, index, token, verb, members, members)
    is_guard = change.mode in _GUARDS
    upgrades = not is_guard and stored is not None and stored.upgraded and stored.complete
    removes = stored is not None and is_removed(patch, stored.row)
    whole = removes or upgrades or patch.extent is Extent.FIELDS
    if not (members or whole or is_guard):
        return None
    after = change.shown or {}
    if change.is_read and stored is not None:
        members = _respelled(members, stored, change)
        after = apply(structs.replace(patch, set=members), content(stored.row)) or {}
    if whole:
        if OPENED in after or not after.keys().isdisjoint(BOUND_TO_KEYS):  # each write makes these anew
            after = content(after)
        write = _finish(change, index, token, Verb.REPLACE, after, after)
    else:
        verb = Verb.MERGE if must_exist else Verb.INSERT_OR_MERGE
        is_known = must_exist and stored is not None and stored.complete and stored.proof is not None
        members = {"PartitionKey": change.partition_key, "RowKey": change.row_key, **members}
        write = _finish(change, index, token, verb, members, after, partial=not is_known)
    return structs.replace(write, stale=True) if is_stale(change) else write


def _delete(change: Change, index: int) -> PlannedWrite:
    tokens = () if change.stored is None else tokens_of(change.stored.row)
    base = tokens[0] if tokens else None
    operation = Operation(Verb.DELETE, change.address.keys, change.if_match)
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
    """
    Return whether the subject may show less than the row has after the write: a merge of some fields over a version
    that its subject, which knows another, never saw.
    """
    if change.only is None or change.mode is not Mode.MERGE or change.before is None or change.before.proof is not None:
        return False
    return change.schema is None or not {info.name for info in change.schema.stored} <= {*change.only}


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
    if change.schema is not None and change.schema.opaque:
        weight = None  # a stage may make the row larger
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
