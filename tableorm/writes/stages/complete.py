"""
Stage 2, complete: what later stages need of the stored row, and nobody has read yet.

Which writes need it, `encode.needs_row` says. The write is then conditional on the ETag that the row was read with.
"""

from collections.abc import Iterator
from typing import NoReturn, cast

from msgspec import structs

from ...errors import EntityExists, EntityNotFound, PreconditionFailed, WrongKind
from ...models.entity import Entity
from ...models.kinds import KindSet, describe_kind
from ...models.manifest import PlacedEntry
from ...models.marker_rows import is_marker
from ...models.reserved import COPY_OF, ENTITY_TYPE
from ...models.schema import Schema
from ...models.state import state_of
from ...models.upgrades import stored_version
from ...protocol.codes import Code
from ...protocol.edm import ANNOTATION
from ...stores import Row, row_keys
from ..move import refuse_marker
from ..patch import Expects, Extent, Known, Patch
from ..plan import UPSERTS, Change, Mode
from ..rows import changes, content
from .encode import is_partial


def complete(change: Change, row: Row | None) -> Change:
    """
    The change with the stored row, under its ETag.

    Args:
        change: What needs the row.
        row: The row as it is stored; None for an upsert that finds none, which then inserts. A marker row is no entity.

    Raises:
        EntityNotFound: There is no row, or a marker row.
        EntityExists: An upsert meets a copy of another entity, an index list, or a marker row.
        PreconditionFailed: It is no longer the row that the entity was read as.
        WrongKind: The row is of another kind or of none, or it is a copy or a list.
    """
    schema = change.schema
    if row is not None and schema is not None and is_marker(row):
        refuse_marker(change, row)
    if row is None:
        if change.mode not in UPSERTS:
            raise EntityNotFound(f"{change}: table {change.table} has no such row", Code.RESOURCE_NOT_FOUND)
        patch = Patch(Expects.ABSENT, Extent.ROW, cast("Row", change.patch.set).copy())
        return structs.replace(change, mode=Mode.INSERT, patch=patch, before=None, stored=None)
    etag: str = row["odata.etag"]
    known = change.before
    upgraded = known is not None and known.upgraded and change.mode is not Mode.DELETE
    if schema is not None:
        if COPY_OF in row or "#" in str(row.get(ENTITY_TYPE, "")):
            _refuse_derived(change, row)
        if not change.is_copied:
            _refuse_other_kind(change, schema, row)
        if upgraded or _is_older(change, schema, row):
            entity = KindSet.of([schema.model]).load(row.copy())
            if isinstance(entity, Entity):
                row = {**(state_of(entity).row or {}), "odata.etag": etag}
                upgraded = True
        if not upgraded:
            row = schema.unseal(row)
        if known is not None and schema.home is not None:
            etag_now = schema.home.etag_now(change.if_match, known.row, row)
            change = structs.replace(change, if_match=etag_now)
    if change.if_match not in (None, "*", etag):
        raise PreconditionFailed(
            f"{change}: the row has changed since it was read; read it again and repeat the change",
            Code.CONDITION_NOT_SATISFIED,
            change.subject,
        )
    if known is not None and isinstance(known.proof, frozenset):
        _refuse_other(change, row, known, known.proof)
    mode = Mode.REPLACE if change.mode is Mode.UPSERT_REPLACE else change.mode
    patch = change.patch
    if patch.expects is Expects.EITHER:
        patch = structs.replace(patch, expects=Expects.PRESENT)
    stored = Known(row, proof=etag, upgraded=upgraded)
    return structs.replace(change, mode=mode, patch=patch, stored=stored, if_match=etag)


def _is_older(change: Change, schema: Schema, row: Row) -> bool:
    """Whether some fields are to be written into a row of an older version, which would upgrade over them."""
    # What others keep in an entity says whether it can be deleted, by the names that it has now.
    looks = change.mode in (Mode.MERGE, Mode.UPSERT_MERGE, Mode.REPLACE) or (
        change.mode is Mode.DELETE and schema.maintained
    )
    return bool(looks) and 0 < stored_version(row) < schema.version


def _refuse_other_kind(change: Change, schema: Schema, row: Row) -> None:
    """Refuse to make a row of another kind, or of none, one of the kind that is written."""
    kind = schema.kind_properties.get(ENTITY_TYPE)
    if (kind is not None and row.get(ENTITY_TYPE) == kind) or KindSet.of([schema.model]).resolve(row) is not None:
        return
    raise WrongKind(
        f"{change}: the row with its key is not of this model: it has {describe_kind(row)}; write or delete it as a "
        "PropertyBag" + ", or declare the model with kind=None if its rows have no kind" * (ENTITY_TYPE not in row),
        (change.partition_key, change.row_key),
        row.get(ENTITY_TYPE),
    )


def _refuse_derived(change: Change, row: Row) -> NoReturn:
    """A copy changes with its primary, a list with the entities that are in it, and neither with anything else."""
    keys = change.partition_key, change.row_key
    if COPY_OF in row:
        what, whom = f"is a copy of the entity {row[COPY_OF]!r} of its partition", "that entity"
    else:
        what, whom = "is of an index list", "the entities that are in it"
    problem = f"{change}: that row {what} ({describe_kind(row)})"
    if change.mode in UPSERTS:
        remedy = "begin the row_key of one of the two with a distinct literal"
        raise EntityExists(f"{problem}; {remedy}", Code.ENTITY_EXISTS, change.subject)
    raise WrongKind(f"{problem}; write or delete {whom}", keys, row.get("EntityType"))


def _refuse_other(change: Change, row: Row, known: Known, properties: frozenset[str]) -> None:
    """What was read from a copy is written only over the row that it is a copy of."""
    before, schema = known.row, change.schema
    assert schema is not None
    if KindSet.of([schema.model]).resolve(row) is None:
        raise WrongKind(
            f"{change}: it was read from an index entry, and the row with its key has {describe_kind(row)}; delete the "
            "entry, and run `tableorm audit --repair`",
            (change.partition_key, change.row_key),
            row.get("EntityType"),
        )
    found_at = state_of(change.subject).found_at if isinstance(change.subject, Entity) else None
    if found_at is not None and found_at not in _places_of_entries(schema, row):
        raise PreconditionFailed(
            f"{change}: it was read from an index entry, and its row has no entry there; it has changed since, or the "
            "entry is damaged, which `tableorm audit --repair` finds out",
            Code.CONDITION_NOT_SATISFIED,
            change.subject,
        )
    ignored = {*schema.kind_properties, *_unchanged_extra(change, schema, before, row)}
    whole = not is_partial(change)
    mine, now = (
        {n: v for n, v in content(each).items() if n not in ignored and (whole or n.partition("@")[0] in properties)}
        for each in (before, row)
    )
    if changes(mine, now) or changes(now, mine):
        raise PreconditionFailed(
            f"{change}: the row has changed since a copy of it was read; read it again and repeat the change",
            Code.CONDITION_NOT_SATISFIED,
            change.subject,
        )


def _places_of_entries(schema: Schema, row: Row) -> Iterator[tuple[str, str]]:
    """Yield PartitionKey and RowKey of each index entry that an entity has, by what its row says."""
    partition_key, row_key = row_keys(row)
    values = schema.decode(row.copy()).__dict__
    for each in schema.derived.values():
        entry = each.entry(values, partition_key, row_key)
        if isinstance(entry, PlacedEntry):
            yield entry.partition_key, entry.row_key
        elif entry is not None:
            yield from ((partition_key, row_key) for row_key in entry.entry_keys)


def _unchanged_extra(change: Change, schema: Schema, known: Row, row: Row) -> Iterator[str]:
    """
    Yield the members of unknown properties in which an index entry may differ from its row.

    Newer programs may write properties of the row that this program does not know, and not the entry: fields that they
    let other entities keep. So those of the row count; unless the user has changed one, who then changes what was never
    seen. What has the name of a key field that the model does not store, no entry can hold: there the user's counts.
    """
    before = schema.unknown(known)
    changed = {*changes(before, schema.unknown(change.patch.set or {})), *change.patch.remove}
    in_keys = {info.member.property for info in schema.fields.values() if not info.stored}
    for member in (*before, *schema.unknown(row)):
        name = member.removesuffix(ANNOTATION)
        if name in in_keys or not {name, name + ANNOTATION} & changed:
            yield member
