"""
Evolution: what has changed between two snapshots of models, and what each change needs.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import msgspec
from msgspec import structs

from tableorm.protocol.edm import Edm

from .rules import RULES, Rule, Verdict
from .snapshot import HAVE_STATES, FieldLayout, ModelLayout, Snapshot

_NAME = re.compile(r"\{([^{}:]+)")
_Tell = Callable[[str, str], "Difference"]


class Difference(msgspec.Struct, frozen=True):
    """
    One change of a model.

    Args:
        rule: The rule that judges it.
        model: The model that has changed.
        member: The field or declaration that has changed; "" for the model itself.
        detail: The old and the new state.
    """

    rule: Rule
    model: ModelLayout
    member: str
    detail: str

    @property
    def subject(self) -> str:
        """The name of what has changed."""
        return f"{self.model.name}.{self.member}" if self.member else self.model.name

    def __str__(self) -> str:
        rule = self.rule
        if rule.verdict is Verdict.REFUSED:
            needs = "is rejected"
        elif rule.verdict in (Verdict.SAFE, Verdict.NOTHING):
            needs = f"is {rule.verdict}" if rule.verdict is Verdict.SAFE else "needs nothing"
        else:
            needs = str(rule.verdict)
        remedy = f"; {rule.remedy}" if rule.remedy else ""
        return f"{self.subject}: {self.detail} ({rule.code}): {needs}: {rule.reason}{remedy}"


def compare_snapshots(old: Snapshot, new: Snapshot) -> list[Difference]:
    """
    Return the changes from one snapshot to another, and what each of them needs.

        for change in compare_snapshots(read_snapshot(path), describe_models(models)):
            print(change)

    Args:
        old: The stored snapshot.
        new: The snapshot of the models as they are declared.
    """
    found: list[Difference] = []
    before = {model.identity: model for model in old.models}
    gone = {model.identity: model for model in old.removed}
    added = [model for model in new.models if model.identity not in before]
    for model in new.models:
        if model.identity in before:
            found += _compare_models(before.pop(model.identity), model)
    for model in added:
        former = next((each for each in before.values() if _is_heir(each, model)), None)
        if former is not None:
            del before[former.identity]
            found += _compare_models(former, model)
            continue
        found.append(_difference(model, "model-added", f"kind {model.kind!r} of table {model.table} is new"))
        if model.identity in gone:  # its rows may be there still
            found += _compare_models(gone[model.identity], model)
    for model in before.values():
        found.append(_difference(model, "model-removed", f"kind {model.kind!r} of table {model.table} is gone"))
    return found


def carry_removed(old: Snapshot, new: Snapshot) -> Snapshot:
    """Return the new snapshot, in which names that only the old one has are recorded as removed."""
    before = {model.identity: model for model in (*old.removed, *old.models)}
    models = tuple(_carry(before.pop(model.identity, None), model) for model in new.models)
    removed = tuple(before[identity] for identity in sorted(before))
    return Snapshot(models=models, removed=removed, revision=old.revision)


def _carry(old: ModelLayout | None, new: ModelLayout) -> ModelLayout:
    if old is None:
        return new
    properties = {field.property for field in new.fields.values()}
    fields = old.removed_fields | {each.property: each for each in old.fields.values() if each.property is not None}
    derived = old.removed_derived | old.derived
    return structs.replace(
        new,
        removed_fields={name: field for name, field in fields.items() if name not in properties},
        removed_derived={name: each for name, each in derived.items() if name not in new.derived},
    )


def _difference(model: ModelLayout, code: str, detail: str, member: str = "") -> Difference:
    return Difference(RULES[code], model, member, detail)


def _is_heir(old: ModelLayout, new: ModelLayout) -> bool:
    """Return whether a model is one that had another kind or another table."""
    same_table, same_kind = old.table == new.table, old.kind is not None and old.kind == new.kind
    return same_kind or (same_table and old.name == new.name)


def _compare_models(old: ModelLayout, new: ModelLayout) -> Iterator[Difference]:
    if old.table != new.table:
        yield _difference(new, "table-changed", f"table {old.table} becomes {new.table}")
    if old.kind != new.kind:
        yield _difference(new, "kind-changed", f"kind {old.kind!r} becomes {new.kind!r}")
    elif old.name != new.name:
        yield _difference(new, "class-renamed", f"{old.name} becomes {new.name}")
    if old.discriminator != new.discriminator:
        yield _difference(new, "discriminator-changed", f"{old.discriminator!r} becomes {new.discriminator!r}")
    if old.wide != new.wide:
        code = "made-wide" if new.wide else "wide-removed"
        yield _difference(new, code, f"an entity is stored in {'several rows' if new.wide else 'one row'}")
    yield from _compare_versions(old, new)
    if old.verbatim != new.verbatim:
        yield _difference(new, "escapes-changed", f"keys are {'verbatim' if new.verbatim else 'escaped'}")
    yield from _compare_keys(old, new)
    yield from _compare_fields(old, new)
    yield from _compare_derived(old, new)


def _compare_versions(old: ModelLayout, new: ModelLayout) -> Iterator[Difference]:
    if new.version < old.version:
        yield _difference(new, "version-lowered", f"version {old.version} becomes {new.version}")
        return
    missing = [number for number in range(old.version, new.version) if number not in new.upgrades]
    if missing:
        yield _difference(new, "upgrade-missing", f"nothing upgrades from version {missing[0]} to {new.version}")
    elif new.version > old.version:
        yield _difference(new, "version-raised", f"version {old.version} becomes {new.version}")
    for number in sorted({*old.upgrades} - {*new.upgrades}):
        yield _difference(new, "upgrade-removed", f"nothing upgrades from version {number} any more")


def _compare_keys(old: ModelLayout, new: ModelLayout) -> Iterator[Difference]:
    for code, mine, theirs in (
        ("partition-key-changed", old.partition_key, new.partition_key),
        ("row-key-changed", old.row_key, new.row_key),
    ):
        if _NAME.sub("{", mine) != _NAME.sub("{", theirs):
            yield _difference(new, code, f"{mine!r} becomes {theirs!r}")
            continue
        for before, after in dict(zip(_NAME.findall(mine), _NAME.findall(theirs), strict=True)).items():
            if before != after:
                yield _difference(new, "key-field-renamed", f"{before} becomes {after}", after)
            types = old.fields[before].type, new.fields[after].type
            if types[0] != types[1]:
                yield _difference(new, "key-type-changed", f"{types[0]} becomes {types[1]}", after)


def _stored(fields: Mapping[str, FieldLayout]) -> dict[str, tuple[str, FieldLayout]]:
    return {
        field.property: (name, structs.replace(field, type="Blob") if _is_blob(fields, name) else field)
        for name, field in fields.items()
        if field.property is not None
    }


def _is_blob(fields: Mapping[str, FieldLayout], name: str) -> bool:
    """Return whether a property is the address of a blob, which no value of another type is."""
    return name.endswith(".address") and f"{name.removesuffix('address')}sha256" in fields


def _compare_fields(old: ModelLayout, new: ModelLayout) -> Iterator[Difference]:
    """Compare fields by their properties, which rows name."""
    upgraded = new.version > old.version
    before, after = _stored(old.fields), _stored(new.fields)
    renamed = _renamed_properties(old, after)
    gone = {name: field for name, (_, field) in before.items() if name not in after and name not in renamed.values()}
    replaced: set[str] = set()
    for name, (field_name, field) in after.items():
        tell = partial(_difference, new, member=field_name)
        if name in before:
            known_as, known = before[name]
            if known_as != field_name:
                yield tell("field-renamed", f"{known_as} becomes {field_name}")
            yield from _compare_field(tell, known, field, upgraded=upgraded)
            continue
        if name in renamed:
            code = "property-renamed-upgraded" if upgraded else "property-renamed"
            former = before[renamed[name]][1].type
            types = "" if former == field.type else f", and {former} becomes {field.type}"
            yield tell(code, f"property {renamed[name]!r} becomes {name!r}{types}")
            continue
        rivals = [each for each, known in gone.items() if _may_be_renamed(known, field, upgraded=upgraded)]
        replaced.update(rivals)
        if rivals:
            code = "field-replaced-upgraded" if upgraded else "field-replaced"
            are = "is" if len(rivals) == 1 else "are"
            yield tell(code, f"property {name!r} is new, and {', '.join(map(repr, rivals))} {are} gone")
        elif field.default or field.optional:
            yield tell("field-added", f"property {name!r} is new")
        else:
            code = "field-added-upgraded" if upgraded else "field-added-required"
            yield tell(code, f"property {name!r} is new")
        if field.expiry:
            yield tell("expiry-changed", "entities expire")
        if name in old.removed_fields:  # rows may have it still
            yield from _compare_field(tell, old.removed_fields[name], field, upgraded=upgraded)
    for name, field in gone.items():
        if name not in replaced:
            code = "field-removed" if field.default or field.optional else "field-removed-required"
            yield _difference(new, code, f"property {name!r} is gone", before[name][0])


def _renamed_properties(old: ModelLayout, after: Mapping[str, tuple[str, FieldLayout]]) -> dict[str, str]:
    """Return the former property by the new one, for fields that keep their names and change their properties."""
    renamed: dict[str, str] = {}
    for name, (field_name, _) in after.items():
        former = old.fields.get(field_name)
        if former is not None and former.property is not None and former.property not in after:
            renamed[name] = former.property
    return renamed


def _may_be_renamed(old: FieldLayout, new: FieldLayout, *, upgraded: bool) -> bool:
    """
    Return whether a new field may be a removed one under another name. The snapshots do not tell whether it is. It may
    have another type as well; but if there is an upgrade, that makes the values of the new type.
    """
    return not old.maintained and not new.maintained and (old.edm == new.edm or not upgraded)


def _compare_field(tell: _Tell, old: FieldLayout, new: FieldLayout, *, upgraded: bool) -> Iterator[Difference]:
    if old.type == new.type and old.form != new.form:
        code = "made-long" if new.form == "chunked" and not old.form else "form-changed"
        yield tell(code, f"{old.form or 'one property'} becomes {new.form or 'one property'}")
    elif old.type != new.type and old.values != new.values and old.edm == new.edm and not new.values:
        yield tell("enum-widened", f"{old.type} becomes {new.type}")
    elif (old.edm, new.edm) == (Edm.INT32.value, Edm.INT64.value) and bool(old.values) >= bool(new.values):
        yield tell("int-widened", f"{old.type} becomes {new.type}")
        if new.values:
            yield from _compare_values(tell, old, new, upgraded=upgraded)
    elif old.edm != new.edm or (old.type != new.type and not (old.values and new.values)):
        yield tell("type-changed", f"{old.type} becomes {new.type}")
    else:
        yield from _compare_values(tell, old, new, upgraded=upgraded)
    if new.optional and not old.optional:
        yield tell("made-optional", f"{new.type} becomes {new.type} | None")
    if old.optional and not new.optional:
        code = "required-upgraded" if upgraded else "made-required"
        yield tell(code, f"{old.type} | None becomes {new.type}")
    if old.default and not new.default and not new.optional:
        yield tell("required-upgraded" if upgraded else "default-removed", "it has no default any more")
    if new.default and not old.default and not old.optional:
        yield tell("default-added", "it has a default")
    if old.maintained != new.maintained:
        yield tell("maintained-changed", "maintained" if new.maintained else "not maintained any more")
    if old.expiry != new.expiry:
        yield tell("expiry-changed", "entities expire" if new.expiry else "entities do not expire any more")
    if old.encrypted != new.encrypted:
        added = "made-encrypted" if new.accept_plain else "encrypted-at-once"
        code = added if new.encrypted else "encryption-removed"
        yield tell(code, "it is encrypted" if new.encrypted else "it is not encrypted any more")
    elif old.accept_plain != new.accept_plain:
        code = "plain-accepted" if new.accept_plain else "plain-refused"
        yield tell(code, f"accept_plain={new.accept_plain}")


def _compare_values(tell: _Tell, old: FieldLayout, new: FieldLayout, *, upgraded: bool) -> Iterator[Difference]:
    lost = [value for value in old.values if value not in new.values]
    more = [value for value in new.values if value not in old.values]
    if lost:
        code = "required-upgraded" if upgraded else "enum-value-removed"
        yield tell(code, f"the value {lost[0]!r} is gone")
    if more:
        yield tell("enum-value-added", f"the value {more[0]!r} is new")
    if old.classes != new.classes:
        changed = [name for name in {**old.classes, **new.classes} if old.classes.get(name) != new.classes.get(name)]
        yield tell("class-changed", f"{', '.join(changed)} is not as it was")


def _building(model: ModelLayout, name: str) -> bool | None:
    """Return what the declaration says of whether it is read; None if the store says it, or it has no state."""
    return True if name in model.building else False if name in model.unasked else None


def _compare_derived(old: ModelLayout, new: ModelLayout) -> Iterator[Difference]:
    gone = {name: each for name, each in old.derived.items() if name not in new.derived}
    for name, each in new.derived.items():
        tell, former, pattern = partial(_difference, new, member=name), old.derived.get(name), each["pattern"]
        known = former or old.removed_derived.get(name)
        if known is not None and known != each:
            was = {key: value for key, value in known.items() if each.get(key) != value}
            yield tell("derived-changed", f"it was declared with {was}")
        elif former is None and pattern == "Embedded":
            yield tell("copies-added", "it is new")
        elif former is None and pattern == "Feed":
            yield tell("feed-added", "it is new")
        elif former is None and pattern not in HAVE_STATES:
            # Whether two conditions are the same, a layout does not tell.
            before = next((other for other, layout in gone.items() if layout == each and not each["where"]), None)
            if before is None:
                yield tell("count-added", f"{pattern} is new")
            else:
                del gone[before]
                yield tell("count-renamed", f"{before} becomes {name}")
        elif former is None and known is not None:
            yield tell("index-returned", "it was removed before")
        elif former is None:
            code = {None: "index-added", True: "index-building", False: "index-trusted"}[_building(new, name)]
            yield tell(code, f"{pattern} is new")
        elif _building(old, name) != (building := _building(new, name)):
            code = {None: "index-asked", True: "index-hidden", False: "index-readable"}[building]
            yield tell(code, f"building={building}")
    for name, each in gone.items():
        removed = "feed-removed" if each["pattern"] == "Feed" else "derived-removed"
        yield _difference(new, removed, "it is gone", name)
