"""
Part of stage 1, change: what a verb sets and removes, as the difference to what its subject shows of its row.

| mode            | expects | extent | sets                                  | removes                                 |
|-----------------|---------|--------|---------------------------------------|-----------------------------------------|
| INSERT          | absent  | row    | all fields, all unknown properties    | -                                       |
| UPSERT_REPLACE  | either  | row    | all fields, all unknown properties    | whatever is not set                     |
| UPSERT_MERGE    | either  | some   | all fields, all unknown properties    | what a save would: it is rejected       |
| REPLACE         | present | fields | all fields, changed unknown ones      | fields that are None, what is not there |
| with drop_extra | present | row    | all fields                            | whatever is not set                     |
| SAVE            | present | some   | what was changed                      | what is None now, what was taken out    |
| MERGE           | present | some   | the chosen fields; or all of them and | what a save would, if all are merged:   |
|                 |         |        | changed unknown ones                  | it is rejected                          |
| DELETE          | present | row    | None                                  | all                                     |
| GUARD, REBUILD  | present | some   | nothing                               | -                                       |

A bag knows nothing but properties: its replace decides the whole row, unless that is known in part.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ...errors import EncodeError
from ...models.property_bag import PropertyBag
from ...models.property_types import FieldInfo, Member
from ...models.reserved import ENTITY_TYPE, ENTITY_VERSION, MANIFEST, MOVE, NOT_PROPERTIES
from ...models.schema import Schema
from ...models.upgrades import stored_version
from ...protocol.edm import ANNOTATION, SYSTEM_MEMBERS, Edm
from ...stores import Row, RowAddress, unstamped
from ..patch import Expects, Extent, Known, Patch, Value, without
from ..plan import BLIND, Mode
from ..rows import changes, compare, content, is_absent_value, overlaid
from .prepare import no_removal

UNTOUCHED = Patch(Expects.PRESENT, Extent.SOME, {})
"""The patch of a guard."""

DELETED = Patch(Expects.PRESENT, Extent.ROW, None)
"""The patch of a delete."""

_NOTHING = frozenset[str]()

Patched = tuple[Patch, Row, int | None]
"""A patch, the row as its subject shows it, and the weight of that, see `models/codegen`; None if not counted."""


def new_patch(mode: Mode, schema: Schema, address: RowAddress, values: dict[str, Any]) -> Patched:
    """Return what an insert or upsert sets of an entity that remembers no row, and has no unknown properties."""
    row, weight = schema.encode(values, address.partition_key, address.row_key)
    if schema.cleared and mode is Mode.UPSERT_MERGE:
        row |= _clearing(schema, schema.shaped, values, row, None)
    return _blind_patch(mode, row, _halves(schema, values, row) if schema.shaped else _NOTHING), row, weight


class Shown(Value, frozen=True, kw_only=True):
    """
    What an entity shows when a verb is called.

    Args:
        schema: Its schema.
        address: Where its row is, or is to be.
        values: Its fields, by name, with those that the write fills.
        extra: Its unknown properties.
        before: What it remembers of its row; None if nothing.
        loaded: Names of the fields that were read, if these were not all; None otherwise.
        made: The values that the write itself made, by name.
        dropped: Unknown properties that it still shows, and an earlier write of the same transaction has left out.
    """

    schema: Schema
    address: RowAddress
    values: dict[str, Any]
    extra: Row
    before: Known | None
    loaded: frozenset[str] | None = None
    made: Collection[str] | None = None
    dropped: Row | None = None

    @property
    def read_names(self) -> Collection[str]:
        """The fields that were read: what is not among them was set since."""
        return self.values if self.loaded is None else self.loaded


def entity_patch(mode: Mode, shown: Shown, only: Sequence[str] | None = None, *, drop_extra: bool = False) -> Patched:
    """
    Return what a verb changes, against what its entity remembers of the row.

    Args:
        mode: What the verb does.
        shown: What the entity shows.
        only: Names of the fields to merge, or paths of members; None for all.
        drop_extra: Whether a replace removes unknown properties.

    Raises:
        EncodeError: A value does not fit its field, or a merge would have to remove a property.
    """
    before = shown.before
    if mode is Mode.MERGE:
        return _merge_all(shown) if only is None else _merge_some(shown, only)
    if mode is Mode.SAVE and before is not None and not before.complete:
        return _save_loaded(shown)
    return _whole(mode, shown, drop_extra=drop_extra)


def _whole(mode: Mode, shown: Shown, *, drop_extra: bool) -> Patched:
    """Return the patch of a verb that writes all fields, or those of them that were changed."""
    schema, address, before, extra = shown.schema, shown.address, shown.before, shown.extra
    weight: int | None
    row, weight = schema.encode(shown.values, address.partition_key, address.row_key)
    blind = mode in BLIND
    if schema.cleared and mode is Mode.UPSERT_MERGE:
        row |= _clearing(schema, schema.shaped, shown.values, row, before)
    if before is not None and keep_kind(row, before.row):
        weight = None
    sent = {} if drop_extra else changes(shown.dropped, extra) if blind and shown.dropped else extra
    if sent:
        row |= sent
        weight = None
    changed: Row = {}
    if before is not None:
        changed, respelled = compare(before.row, row, schema)
        weight = None if respelled else weight
    whole = row if len(sent) == len(extra) else {**row, **extra}
    if mode is Mode.SAVE:
        assert before is not None
        patch = _changed(shown, row, changed)
        if schema.cleared and not patch.remove and not before.upgraded:  # then it merges
            whole = {**whole, **_cleared(schema, before.row, whole)}
        return patch, whole, weight
    if mode is Mode.UPSERT_MERGE and before is not None:
        gone = _removed(shown, row)
        return Patch(Expects.EITHER, Extent.SOME, row, gone), overlaid(without(before.row, gone), whole), weight
    if blind:
        return _blind_patch(mode, row, _halves(schema, shown.values, row)), whole, weight
    if drop_extra:
        return Patch(Expects.PRESENT, Extent.ROW, row), whole, weight
    old = {} if before is None else schema.unknown(before.row)
    members = {name: value for name, value in row.items() if name in schema.known} | changes(old, extra)
    gone = frozenset(name for name in (*schema.known, *old) if name not in row and _is_property(name))
    return Patch(Expects.PRESENT, Extent.FIELDS, members, gone), whole, weight


def _blind_patch(mode: Mode, row: Row, gone: frozenset[str] = frozenset()) -> Patch:
    """Return the patch of an insert or upsert, which does not depend on what the subject remembers."""
    if mode is Mode.INSERT:
        return Patch(Expects.ABSENT, Extent.ROW, row)
    if mode is Mode.UPSERT_REPLACE:
        return Patch(Expects.EITHER, Extent.ROW, row)
    return Patch(Expects.EITHER, Extent.SOME, row, gone)


def _halves(schema: Schema, values: Mapping[str, Any], row: Row) -> frozenset[str]:
    """Return the properties of values of several members that these values do not have: a merge must not keep them."""
    return frozenset(
        member.property
        for info in schema.shaped
        if info.shape is not None and not info.shape.apart and values.get(info.name) is not None
        for member in info.members
        if member.property not in row
    )


def _changed(shown: Shown, row: Row, changed: Row) -> Patch:
    """Return the patch of a save of an entity that was read in full."""
    before = shown.before
    assert before is not None
    removed = [name for name in before.row if name not in row and _is_property(name)]
    if removed and shown.schema.cleared:
        removed = [name for name in removed if not shown.schema.is_cleared(before.row, name)]
    if removed:
        return Patch(Expects.PRESENT, Extent.SOME, changed, frozenset(removed))
    if not before.upgraded and _is_only_made(shown, changed):
        changed = {}
    return Patch(Expects.PRESENT, Extent.SOME, changed)


def _cleared(schema: Schema, stored: Row, row: Row) -> Row:
    """Return the properties of a stored row that a merge has emptied, and that are not in another one."""
    names = {name for name in schema.cleared if name not in row and schema.is_cleared(stored, name)}
    return {name: value for name, value in stored.items() if name.removesuffix(ANNOTATION) in names}


def _save_loaded(shown: Shown) -> Patched:
    """Return the patch of a save of what was read in part: of the rest of its row nothing is known."""
    before = shown.before
    assert before is not None
    row = _loaded(shown)
    changed = changes(before.row, row)
    # The row may have what the entity knows nothing of, and has a default for.
    changed = without(changed, frozenset(name for name in changed if _is_default(shown, name, changed)))
    removed = _removed(shown, row)
    if not removed and not before.upgraded and _is_only_made(shown, changed):
        changed = {}
    return _over(Expects.PRESENT, before.row, changed, removed)


def _merge_all(shown: Shown) -> Patched:
    row = _loaded(shown)
    row |= _clearing(shown.schema, shown.schema.shaped, shown.values, row, shown.before)
    gone = _halves(shown.schema, shown.values, row) if shown.before is None else _removed(shown, row)
    return _merged(shown, row, gone)


def _merge_some(shown: Shown, only: Sequence[str]) -> Patched:
    schema, before = shown.schema, shown.before
    infos = [schema.fields[name] for name in dict.fromkeys(map(schema.field_of, only))]
    for info in infos:
        if shown.values[info.name] is None and not _is_surely_absent(before, info.members):
            raise no_removal(schema.name, info.name)
    row = schema.encode_some(shown.values, infos)
    row |= _clearing(schema, infos, shown.values, row, before)
    for member in (member for info in infos if info.shape is not None for member in info.members):
        if member.field not in only and member.path not in only:
            row = without(row, frozenset({member.property, member.property + ANNOTATION}))
        elif member.property not in row and not _is_surely_absent(before, (member,)):
            raise no_removal(schema.name, member.path)
    if before is not None:
        compare(before.row, row, schema)  # what is sent keeps the types of the stored row
    return _merged(shown, row)


def _merged(shown: Shown, row: Row, gone: frozenset[str] = frozenset()) -> Patched:
    known = shown.address.keys if shown.before is None else shown.before.row
    return _over(Expects.PRESENT, known, row, gone)


def _over(expects: Expects, known: Row, row: Row, gone: frozenset[str], extent: Extent = Extent.SOME) -> Patched:
    """Return the patch that sets some properties and removes others, and what that makes of what is known of a row."""
    return Patch(expects, extent, row, gone), overlaid(without(known, gone), row), None


def _is_surely_absent(before: Known | None, members: Sequence[Member]) -> bool:
    """Return whether the row has none of some properties, so that there is nothing to remove."""
    if before is None or not before.complete or before.proof is None:
        return False
    return not any(member.property in before.row for member in members)


def _clearing(
    schema: Schema, infos: Iterable[FieldInfo], values: Mapping[str, Any], row: Row, before: Known | None
) -> Row:
    """Return what a merge stores in members that values of several do not have, so that nothing of older ones stays."""
    found: Row = {}
    for info in infos if schema.cleared else ():
        for member in info.members:
            name = member.property
            if name in schema.cleared and name not in row and values.get(info.name) is not None:
                if _is_surely_absent(before, (member,)):
                    continue
                found[name] = 0 if member.type.edm is Edm.INT32 else ""
                if member.type.edm is Edm.BINARY:
                    found[name + ANNOTATION] = Edm.BINARY.value
    return found


def _is_only_made(shown: Shown, changed: Row) -> bool:
    """
    Return whether nothing differs but what the write itself makes, such as `updated_at`, and what reading made of
    properties that the row does not have.
    """
    made = shown.made or ()
    for name in changed:
        if ANNOTATION in name or _is_default(shown, name, changed):
            continue
        member = shown.schema.by_property.get(name)
        if member is None or member.field not in made:
            return False
    return True


def _is_default(shown: Shown, name: str, row: Row) -> bool:
    """Return whether a row that was read has no such property, and the field the value that was read of that."""
    schema, before = shown.schema, shown.before
    member = schema.by_property.get(name)
    if before is None or member is None or before.row.get(name) is not None:
        return False
    info = schema.fields[member.field]
    if info.name not in shown.read_names or info.is_in(before.row):
        return False  # what was not loaded was set
    names = [each.property + end for each in info.members for end in ("", ANNOTATION)]
    return is_absent_value(schema, info, {each: row[each] for each in names if each in row})


def _loaded(shown: Shown) -> Row:
    """Return the members of the fields that an entity has loaded, with the unknown properties that were changed."""
    schema, before, values = shown.schema, shown.before, shown.values
    row = schema.encode_some(values, (info for info in schema.stored if info.name in values))
    if before is None:
        return row | shown.extra
    compare(before.row, row, schema)
    return row | changes(schema.unknown(before.row), shown.extra)


def _removed(shown: Shown, row: Row) -> frozenset[str]:
    """Return the properties that were set to None since they were read, or taken out of the unknown ones."""
    schema, before = shown.schema, shown.before
    assert before is not None
    gone: list[str] = []
    for name, member in schema.by_property.items():
        if member.field not in shown.values or name in row:
            continue
        # Of what was set without having been read, the row alone tells whether there is something to remove.
        known = before.row.get(name) is not None and not schema.is_cleared(before.row, name)
        if known or member.field not in shown.read_names:
            gone.append(name)
    unknown = schema.unknown(before.row)
    return frozenset(gone).union(name for name in unknown if name not in shown.extra and ANNOTATION not in name)


def keep_kind(row: Row, stored: Row) -> bool:
    """Let a row that a newer program wrote keep its version: what this one does not know must not look older."""
    if stored.get(ENTITY_TYPE) == row.get(ENTITY_TYPE) and stored.get(ENTITY_VERSION) == row.get(ENTITY_VERSION):
        return False
    if stored_version(stored) <= stored_version(row):
        return False
    for name in (ENTITY_TYPE, ENTITY_VERSION):
        for member in (name, name + ANNOTATION):
            if member in stored:
                row[member] = stored[member]
    return True


def bag_patch(
    mode: Mode, bag: PropertyBag, before: Known | None, only: Sequence[str] | None = None, *, drop_extra: bool = False
) -> Patched:
    """
    Return what a verb changes, against what its bag remembers of the row. Takes and raises what `entity_patch` does.
    """
    row = _content(mode, bag, before)
    gone = frozenset[str]() if before is None or only is not None else _taken_out(before, row)
    if mode is Mode.UPSERT_MERGE and before is not None:
        return _over(Expects.EITHER, before.row, row, gone)
    if mode in BLIND:
        return _blind_patch(mode, row), row, None
    if mode is Mode.MERGE:
        known = RowAddress.of(bag).keys if before is None else before.row
        return _over(Expects.PRESENT, known, _chosen(bag, row, only), gone)
    if before is None or (mode is Mode.REPLACE and (before.complete or drop_extra)):
        return Patch(Expects.PRESENT, Extent.ROW, row), row, None
    if mode is Mode.REPLACE:  # a bag that knows its row in part changes the rest of it in nothing
        return _over(Expects.PRESENT, before.row, row, gone, Extent.FIELDS)
    patched = _over(Expects.PRESENT, before.row, changes(before.row, row), gone)
    return (patched[0], row, None) if before.complete else patched


def _content(mode: Mode, bag: PropertyBag, before: Known | None) -> Row:
    """
    Return the row of a bag without what the write makes. A row that was read is changed with what is derived from it;
    one that is inserted, or was never read, may be the copy of one elsewhere, and is written with its manifest and its
    tokens.

    Raises:
        EncodeError: The user has set a property that tableorm keeps.
    """
    row = bag.row
    if mode is Mode.INSERT or before is None:
        return unstamped(row)
    for name in (MANIFEST, MOVE):
        if name in row and row[name] != before.row.get(name):
            problem = "says what is derived from the row, and is written with that alone; use the model of the row"
            raise EncodeError(problem, "PropertyBag", name, row[name], misuse=True)
    return content(row)


def _chosen(bag: PropertyBag, row: Row, only: Sequence[str] | None) -> Row:
    """Return the members of a bag that a merge sends."""
    if only is None:
        return without(row, SYSTEM_MEMBERS)
    for name in only:
        if name not in bag:
            raise no_removal("PropertyBag", name)
    return {name: value for name, value in bag.row.items() if name.removesuffix(ANNOTATION) in only}


def _taken_out(before: Known, row: Row) -> frozenset[str]:
    return frozenset(name for name in before.row if name not in row and _is_property(name))


def _is_property(name: str) -> bool:
    return name not in NOT_PROPERTIES and ANNOTATION not in name
