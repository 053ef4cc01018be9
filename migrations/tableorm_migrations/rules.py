"""
The rules of evolution: what each change of a model does to rows that are stored, and to older programs that still run.
"""

import enum

import msgspec


class Verdict(enum.StrEnum):
    """What a change of a model needs."""

    NOTHING = "nothing to do"
    SAFE = "safe while older programs run"
    BUILD_INDEX = "needs build_index"
    REPAIR = "needs audit --repair"
    REWRITE = "needs rewrite"
    TWO_ROLLOUTS = "needs two roll-outs"
    REKEY = "needs a re-key"
    REFUSED = "refused"


class Rule(msgspec.Struct, frozen=True):
    """
    A rule for one kind of change.

    Args:
        code: The name of the rule.
        verdict: What the change needs.
        change: The kind of change.
        reason: Why it needs that.
        remedy: What to do; empty if there is nothing to do.
    """

    code: str
    verdict: Verdict
    change: str
    reason: str
    remedy: str = ""


_NOTHING, _SAFE, _REFUSED, _REWRITE = Verdict.NOTHING, Verdict.SAFE, Verdict.REFUSED, Verdict.REWRITE
_TWO, _BUILD, _REKEY = Verdict.TWO_ROLLOUTS, Verdict.BUILD_INDEX, Verdict.REKEY


RULES = {
    rule.code: rule
    for rule in (
        # Models
        Rule("model-added", _SAFE, "a model is added", "programs that don't know its kind ignore its rows"),
        Rule(
            "model-removed",
            _SAFE,
            "a model is removed",
            "its rows stay, but are no longer read",
            "delete its rows, or keep them; the snapshot keeps the name of the kind",
        ),
        Rule("class-renamed", _NOTHING, "a class is renamed, and its kind stays", "rows name the kind, not the class"),
        Rule(
            "kind-changed",
            _REFUSED,
            "the kind of a model is changed",
            "rows of the old kind would no longer be found",
            'keep the old kind: class ...(Entity, kind="...")',
        ),
        Rule(
            "table-changed",
            _REKEY,
            "a model is moved to another table",
            "its rows are in the old table",
            "re-key the table, or keep the name of the table",
        ),
        Rule(
            "discriminator-changed",
            _REFUSED,
            "the discriminator is changed",
            "stored rows keep the discriminator that they were written with, so they wouldn't be found",
            "keep the discriminator",
        ),
        Rule(
            "version-raised",
            _REWRITE,
            "the version is raised, with upgrade functions from all earlier versions",
            "rows of older versions are upgraded whenever they are read; but until they are rewritten, conditions on a "
            "new property don't find them",
            "run rewrite when no older program runs",
        ),
        Rule(
            "upgrade-missing",
            _REFUSED,
            "the version is raised, without an upgrade function from an earlier version",
            "rows of that version can't be read",
            "write @upgrade(..., from_version=...)",
        ),
        Rule(
            "upgrade-removed",
            _REWRITE,
            "an upgrade function is removed",
            "rows of that version can no longer be read",
            "first let rewrite finish",
        ),
        Rule(
            "version-lowered",
            _REFUSED,
            "the version is lowered",
            "rows of the higher version would be read as the lower one",
            "raise the version again",
        ),
        Rule(
            "made-wide",
            _TWO,
            "a model is declared wide",
            "older programs can't read entities that are stored in several rows",
            "stop all older programs before new ones start",
        ),
        Rule(
            "wide-removed",
            _REFUSED,
            "a model is no longer declared wide",
            "entities that are stored in several rows can't be read",
            "keep wide=True",
        ),
        # Keys
        Rule(
            "partition-key-changed",
            _REKEY,
            "the template of the PartitionKey is changed",
            "rows have the keys of the old template",
            "re-key the table, or keep the template",
        ),
        Rule(
            "row-key-changed",
            _REKEY,
            "the template of the RowKey is changed",
            "rows have the keys of the old template",
            "re-key the table, or keep the template",
        ),
        Rule("key-field-renamed", _NOTHING, "a field is renamed in the templates", "the keys of rows are the same"),
        Rule(
            "key-type-changed",
            _REFUSED,
            "a field of the keys gets another type",
            "stored keys may not fit the new type",
            "re-key the table, or keep the type",
        ),
        Rule(
            "escapes-changed",
            _REFUSED,
            'a model gets or loses keys="verbatim"',
            "stored keys with an escape, or with a character that needs one, would stand for other values",
            "re-key the table, or keep it",
        ),
        # Fields
        Rule(
            "field-added",
            _SAFE,
            "a field with a default, or `| None`, is added",
            "rows without it are read with the default, and older programs keep fields that they don't know",
        ),
        Rule(
            "field-added-required",
            _REFUSED,
            "a field without a default is added",
            "rows that lack it can't be read",
            "give it a default, declare it `| None`, or raise the version and upgrade",
        ),
        Rule(
            "field-added-upgraded",
            _REWRITE,
            "a field without a default is added, and the version is raised",
            "the upgrade gives the field to rows of older versions",
            "run rewrite when no older program runs",
        ),
        Rule(
            "field-removed",
            _SAFE,
            "a field with a default, or `| None`, is removed",
            "older programs read rows without it, and rows that have it keep it",
            "the snapshot keeps the name of the property",
        ),
        Rule(
            "field-removed-required",
            _TWO,
            "a field without a default is removed",
            "older programs can't read rows that lack it",
            "first give it a default; remove it when all programs have the default",
        ),
        Rule("field-renamed", _NOTHING, "a field is renamed, and its property stays", "rows name the property"),
        Rule(
            "property-renamed",
            _REFUSED,
            "the property of a field is renamed",
            "values under the old name would not be read",
            'keep it: field(name="..."), or raise the version and upgrade',
        ),
        Rule(
            "property-renamed-upgraded",
            _TWO,
            "the property of a field is renamed, and the version is raised",
            "older programs don't find values under the new name",
            "add the new field beside the old one first; remove the old one when all programs have both",
        ),
        Rule(
            "field-replaced",
            _REFUSED,
            "a field is removed, and another is added",
            "if this is a rename, stored rows keep their values under the old name, in `extra`, and the new field "
            "doesn't get them",
            'if it is a rename, keep the property: field(name="..."), or raise the version and upgrade; if the fields '
            "are unrelated, add the new one now, and remove the old one in a later revision",
        ),
        Rule(
            "field-replaced-upgraded",
            _TWO,
            "a field is removed, another one of the same stored type is added, and the version is raised",
            "if this is a rename, the new field gets the stored value only if the upgrade moves it, and older programs "
            "don't find values under the new name",
            "let the upgrade move the value, and add the new field beside the old one first; remove the old one when "
            "all programs have both",
        ),
        Rule(
            "type-changed",
            _REFUSED,
            "a field gets another type",
            "stored values are of the old type",
            "declare another field, and remove this one later",
        ),
        Rule(
            "made-long",
            _TWO,
            "a field gets chunked=True",
            "older programs read the first 64 KiB of a longer value",
            "write longer values only when all programs have the new field",
        ),
        Rule(
            "form-changed",
            _REFUSED,
            "a field loses chunked=True, or compress=True is changed",
            "stored values are in the old form",
            "declare another field, and remove this one later",
        ),
        Rule(
            "int-widened",
            _TWO,
            "Int32 becomes int",
            "older programs can't read values that are stored as Int64",
            "stop all older programs before new ones start",
        ),
        Rule(
            "enum-widened",
            _TWO,
            "an enum becomes the type of its values",
            "older programs can't read values that are not in the enum",
            "write no other values before all programs have the new type",
        ),
        Rule(
            "enum-value-added",
            _TWO,
            "an enum gets a value",
            "older programs can't read the new value",
            "write the new value only when all programs know it",
        ),
        Rule(
            "enum-value-removed",
            _REFUSED,
            "an enum loses a value",
            "rows that have it can't be read",
            "keep the value, or raise the version and upgrade",
        ),
        Rule(
            "made-optional",
            _TWO,
            "a field is declared `| None`",
            "older programs can't read None, or read their default instead",
            "write None only when all programs know it",
        ),
        Rule(
            "made-required",
            _REFUSED,
            "a field is no longer declared `| None`",
            "rows in which the field is None can't be read, or are read with the default",
            "keep `| None`, or raise the version and upgrade",
        ),
        Rule(
            "default-removed",
            _REFUSED,
            "a field loses its default",
            "rows from before the field was declared lack it, and can't be read",
            "keep the default, or raise the version and upgrade",
        ),
        Rule(
            "required-upgraded",
            _REWRITE,
            "a field, an enum or a default is narrowed, and the version is raised",
            "the upgrade gives rows of older versions a value that fits",
            "run rewrite when no older program runs",
        ),
        Rule("default-added", _SAFE, "a field gets a default", "all rows have a value"),
        Rule(
            "maintained-changed",
            _TWO,
            "a field becomes maintained, or is no longer maintained",
            "older programs overwrite a new maintained field, and still update a former one",
            "stop all older programs before new ones start; then audit --repair",
        ),
        Rule(
            "expiry-changed",
            _TWO,
            "expiry of entities is added, changed or removed",
            "programs without the expiry field return entities that are expired for other programs, which delete them",
            "stop all older programs before the first expiry is written, and before a sweep",
        ),
        Rule(
            "made-encrypted",
            _REWRITE,
            "a field becomes encrypted(accept_plain=True)",
            "older programs can't read encrypted values, and values that are already stored aren't encrypted",
            "stop all older programs before new ones start; then run rewrite; leave out accept_plain in a later "
            "revision",
        ),
        Rule(
            "encrypted-at-once",
            _REFUSED,
            "a field becomes encrypted()",
            "stored values aren't encrypted, so they are rejected",
            "first declare encrypted(accept_plain=True), and run rewrite; for a blob declare another field",
        ),
        Rule(
            "plain-refused",
            _REWRITE,
            "an encrypted field loses accept_plain=True",
            "values that aren't encrypted are rejected from now on",
            "first let rewrite finish",
        ),
        Rule(
            "plain-accepted",
            _TWO,
            "an encrypted field gets accept_plain=True",
            "anyone who can write to the table can store unencrypted values there, which older programs reject",
            "omit it, unless unencrypted values are stored",
        ),
        Rule(
            "encryption-removed",
            _REFUSED,
            "a field is no longer encrypted",
            "stored values are encrypted, and can't be read",
            "declare another field, and remove this one later",
        ),
        Rule(
            "class-changed",
            _TWO,
            "members of a class that is stored as JSON are added or removed, or their types change",
            "older programs drop members that they don't know, and can't read values that lack members they need",
            "give new members defaults, and stop all older programs before new ones start",
        ),
        # What is derived
        Rule(
            "index-added",
            _BUILD,
            "an index or a list is added",
            "it isn't read until the store records that it has all entities",
            "run build_index, with no_older_writers when no older program runs",
        ),
        Rule(
            "index-trusted",
            _BUILD,
            "an index or a list is added with building=False",
            "it is read immediately, but lacks entities that are already stored, or that older programs write",
            "leave out building; or run build_index when no older program runs, before it is used",
        ),
        Rule(
            "count-added",
            _BUILD,
            "a count or a sum is added",
            "its field is read immediately, but doesn't count entities that are already stored, or that older programs "
            "write",
            "run build_index when no older program runs; only then use the field",
        ),
        Rule(
            "count-renamed",
            _NOTHING,
            "a count or a sum without where= is renamed",
            "each write gives the row the new name",
        ),
        Rule(
            "index-returned",
            _REFUSED,
            "an index or a list that was removed is declared again",
            "the store may still record that it has all entities, but it lacks those that were written in between",
            "declare it under another name",
        ),
        Rule(
            "index-building",
            _BUILD,
            "an index or a list is added with building=True",
            "it isn't read until it is declared without building=True",
            "run build_index, with no_older_writers when no older program runs, then leave out building",
        ),
        Rule(
            "index-asked",
            _BUILD,
            "an index or a list loses building=True or building=False",
            "it isn't read until the store records that it has all entities",
            "run build_index with no_older_writers when no older program runs, unless that was done",
        ),
        Rule(
            "index-readable",
            _BUILD,
            "an index or a list gets building=False",
            "it is read from now on, whatever the store records",
            "first let build_index finish",
        ),
        Rule(
            "index-hidden",
            _SAFE,
            "an index or a list gets building=True",
            "new programs still write it, but don't read it",
        ),
        Rule(
            "copies-added",
            Verdict.REPAIR,
            "embedded copies are added",
            "entities that are already stored have no copies, and their fields have the defaults",
            "run audit --repair when no older program runs; only then use the fields",
        ),
        Rule(
            "feed-added",
            _TWO,
            "a change feed is added",
            "it lacks changes that older programs make",
            "read it only when all programs declare it",
        ),
        Rule(
            "feed-removed",
            _TWO,
            "a change feed is removed",
            "it lacks changes that new programs make",
            "first stop all readers; its rows, whose RowKeys begin with ~f_, can be deleted as bags when no program "
            "declares it",
        ),
        Rule(
            "derived-changed",
            _REFUSED,
            "an index, list, count, sum or embedding is declared differently",
            "to older and new programs, each other's rows would be wrong",
            "declare it under another name, and remove this one later; if only the field of a count is renamed, keep "
            'its property: field(name="...")',
        ),
        Rule(
            "derived-removed",
            _TWO,
            "an index, list, count, sum or embedding is removed",
            "new programs delete rows that older programs still read",
            "first remove the code that reads it; remove the declaration when no program reads it any longer; "
            "then audit --repair deletes the rest of it",
        ),
    )
}
"""By code."""
