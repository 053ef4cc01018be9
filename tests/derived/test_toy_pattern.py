"""
A pattern that the program knows nothing of, written here alone: a row that keeps the latest of a group.

`newest = Latest("written", row_key="newest_{topic}")` keeps one row for each topic, with the RowKey of the post that
was written last. It is declared, written, explained and audited through the interfaces that every pattern has.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from tableorm import Damage, Database, Entity, Mapped, ModelError, PropertyBag, field
from tableorm.audit.check import WRONG, AuditedMaintainer, Check, IsCandidate, Phase
from tableorm.audit.context import AuditContext, EntitySnapshot, Problem
from tableorm.keys.parse import parse_template
from tableorm.keys.template import Template
from tableorm.models.derivation import Derivation
from tableorm.models.manifest import ManifestEntry, manifest_form
from tableorm.models.schema import Schema
from tableorm.stores import Operation, Row, RowAddress, Verb
from tableorm.writes.maintainer import EntryRules, Source, entry_rules, touch_operation, undo_entry
from tableorm.writes.plan import Effect, PlannedWrite
from tests.databases import database_fixture
from tests.rows import delete_row, insert_row, replace_row

# What the row of a group holds: the moments of its members, by RowKey, and which of them is the latest.

MEMBERS, LATEST = "Members", "Latest"


def members_of(row: Row | None) -> dict[str, int]:
    return {} if row is None else msgspec.json.decode(row[MEMBERS], type=dict[str, int])


def group_row(partition_key: str, row_key: str, kind: str, members: Mapping[str, int]) -> Row:
    text = msgspec.json.encode(members, order="sorted").decode()
    latest = max(members, key=lambda each: (members[each], each), default="")
    return {"PartitionKey": partition_key, "RowKey": row_key, "EntityType": kind, MEMBERS: text, LATEST: latest}


# Manifest and writes


@manifest_form("toy_latest")
class LatestEntry(ManifestEntry, frozen=True, gc=False):
    group: str
    kind: str
    moment: int


class GroupEffect(Effect, msgspec.Struct, frozen=True, eq=False, gc=False):
    """Members that come into a group, None for those that leave it."""

    row_key: str
    origin: PlannedWrite
    kind: str
    members: Mapping[str, int | None]
    reads = True
    replaces = True

    def merge_with(self, other: Effect) -> Effect:
        assert isinstance(other, GroupEffect)
        return msgspec.structs.replace(other, members={**self.members, **other.members})

    def operation(self, stored: Row | None, token: str) -> Operation | None:
        before = members_of(stored)
        changed = {**before, **self.members}
        members = {name: moment for name, moment in changed.items() if moment is not None}
        row = group_row(self.origin.operation.row["PartitionKey"], self.row_key, self.kind, members)
        if stored is None:
            return Operation(Verb.INSERT, row) if members else None
        if row[MEMBERS] == stored[MEMBERS] and row[LATEST] == stored.get(LATEST):
            return touch_operation(stored, token)
        return Operation(Verb.REPLACE, row, stored["odata.etag"])

    def apply_to(self, write: PlannedWrite) -> PlannedWrite:
        raise AssertionError(write)


@entry_rules(LatestEntry)
class LatestRules(EntryRules[LatestEntry]):
    def undo(self, name: str, entry: LatestEntry, write: PlannedWrite, *, checked: bool) -> list[Effect]:
        return [GroupEffect(entry.group, write, entry.kind, {write.operation.row["RowKey"]: None})]


# Declaration


class Latest(Derivation):
    _instead = "; its rows are in the table"

    def __init__(self, by: str, *, row_key: str) -> None:
        super().__init__()
        self.by, self.row_key = by, row_key

    def _bind(self, schema: Schema, annotations: Mapping[str, Any]) -> "LatestMaintainer":
        if self.by not in schema.fields:
            raise ModelError(f"{schema.name}.{self.name}: {self.by!r} is not a field of {schema.name}")
        label = f"{schema.name}.{self.name}"
        template = parse_template(self.row_key, label, "row_key", dict(annotations), schema.kind)
        return LatestMaintainer(self.name, schema, self.by, template)


class LatestMaintainer(AuditedMaintainer):
    entry_type = LatestEntry
    shared_rows = 1

    def __init__(self, name: str, schema: Schema, by: str, template: Template) -> None:
        super().__init__(name, schema)
        self.by, self.template, self.kind = by, template, f"{schema.kind}#{name}"

    def row_templates(self) -> Sequence[Template]:
        return (self.template,)

    def entry(self, values: Mapping[str, Any], partition_key: str, row_key: str) -> LatestEntry | None:
        if any(values[name] is None for name in self.template.fields):
            return None
        return LatestEntry(self.template.format(values), self.kind, values[self.by])

    def effects(self, before: ManifestEntry | None, source: Source) -> tuple[ManifestEntry | None, list[Effect]]:
        entry = self.entry(source.values, source.partition_key, source.row_key)
        return (entry, []) if entry == before else self.rebuild(before, source)

    def rebuild(self, before: ManifestEntry | None, source: Source) -> tuple[ManifestEntry | None, list[Effect]]:
        entry = self.entry(source.values, source.partition_key, source.row_key)
        effects: list[Effect] = []
        if before is not None and (entry is None or before.local_key != entry.group):
            effects += undo_entry(self.name, before, source.write, checked=True)
        if entry is not None:
            effects.append(GroupEffect(entry.group, source.write, entry.kind, {source.row_key: entry.moment}))
        return entry, effects

    def describe(self) -> dict[str, Any]:
        return {"pattern": "Latest"}

    def checks(self, context: AuditContext) -> Sequence[Check]:
        return (LatestCheck(context, self),)


# Audit


class LatestCheck(Check):
    row_phases = frozenset({Phase.AFTER})

    def __init__(self, context: AuditContext, latest: LatestMaintainer) -> None:
        super().__init__(context, latest.schema, latest.name)
        self.latest = latest

    def owns(self, kind: str) -> bool:
        return kind == self.latest.kind

    def claims(self, snapshot: EntitySnapshot) -> Iterable[tuple[str, int]]:
        row_key, due = snapshot.row["RowKey"], snapshot.expected.get(self.name)
        if snapshot.manifest.get(self.name) != due:
            yield row_key, WRONG
        if isinstance(due, LatestEntry):
            yield f"{due.group}\n{row_key}", hash((row_key, due.moment))

    def row_claims(self, row: Row) -> Iterable[tuple[str, int]]:
        members = members_of(row)
        if row[LATEST] != group_row("", "", "", members)[LATEST]:
            yield row["RowKey"], WRONG
        for row_key, moment in members.items():
            yield f"{row['RowKey']}\n{row_key}", hash((row_key, moment))

    def addresses(self, snapshot: EntitySnapshot, found: Mapping[str, Row | None]) -> set[str]:
        entries = snapshot.expected.get(self.name), snapshot.manifest.get(self.name)
        return {entry.group for entry in entries if isinstance(entry, LatestEntry)}

    def compare(self, snapshot: EntitySnapshot, found: Mapping[str, Row | None]) -> Iterable[Problem]:
        row_key, due = snapshot.row["RowKey"], snapshot.expected.get(self.name)
        if isinstance(due, LatestEntry) and members_of(found.get(due.group)).get(row_key) != due.moment:
            return [Problem(Damage.MISSING, self.name, due.group, f"it is not in the group {due.group!r}")]
        if snapshot.manifest.get(self.name) != due:
            return [Problem(Damage.MANIFEST, self.name, None, "its manifest names another group")]
        return ()

    async def verify_row(self, address: RowAddress, phase: Phase, is_candidate: IsCandidate) -> None:
        row, row_key = await self.context.read(address), address.row_key
        if row is None:
            return
        members = members_of(row)
        for each in [each for each in members if is_candidate(f"{row_key}\n{each}")]:
            stored = await self.context.read(address.beside(each))
            snapshot = None if stored is None else self.context.snapshot(stored)
            due = None if snapshot is None else snapshot.expected.get(self.name)
            if not isinstance(due, LatestEntry) or due.group != row_key:
                del members[each]
        fresh = group_row(address.partition_key, row_key, self.latest.kind, members)
        if (fresh[MEMBERS], fresh[LATEST]) == (row[MEMBERS], row[LATEST]):
            return
        replace = Operation(Verb.REPLACE, fresh, row["odata.etag"])
        if not await self.context.settle(address, row, [replace]):
            self.context.counts.undecided += 1
            return
        problem = Problem(Damage.STALE, self.name, row_key, "its row is not what its members make it")
        self.context.record(self.schema, address.beside(""), problem)


# Tests


class Post(Entity, table="Toy", partition_key="{forum}", row_key="post_{id:03d}"):
    forum: Mapped[str] = field(default="f")
    id: Mapped[int]
    topic: Mapped[str | None] = field(default="a")
    written: Mapped[int] = field(default=0)
    text: Mapped[str] = field(default="")

    newest = Latest("written", row_key="newest_{topic}")


db = database_fixture(Post)


async def newest(db: Database, topic: str = "a") -> str | None:
    row = await db.get_or_none(PropertyBag.key("Toy", "f", f"newest_{topic}"))
    return None if row is None else row[LATEST]


async def is_right(db: Database) -> bool:
    """Whether every topic names its latest post, and an audit agrees."""
    posts = await db.select(Post).where(Post.forum == "f").all()
    for topic in ("a", "b"):
        latest = max((p for p in posts if p.topic == topic), key=lambda p: (p.written, p.id), default=None)
        if (await newest(db, topic) or None) != (latest and f"post_{latest.id:03d}"):
            return False
    report = await db.audit(Post)
    return report.clean and report.found == 0


async def newest_of_each(db: Database) -> list[str | None]:
    """Return the latest post of each topic, which all is right with."""
    assert await is_right(db)
    return [await newest(db, topic) for topic in "ab"]


async def test_it_is_kept_by_every_verb(db: Database) -> None:
    """Insert, save, upsert, replace, modify and delete."""
    post = Post(id=1, written=1)
    await db.insert(post)
    await db.insert(Post(id=2, written=2))
    assert await newest_of_each(db) == ["post_002", None]
    post.written = 3
    await db.save(post)
    assert await newest_of_each(db) == ["post_001", None]
    await db.upsert(Post(id=2, topic="b", written=9))
    assert await newest_of_each(db) == ["post_001", "post_002"]
    await db.modify(Post, lambda each: each.evolve(topic=None), forum="f", id=1)
    assert await newest_of_each(db) == ["", "post_002"]
    await db.delete(Post, forum="f", id=2, if_match="*")
    assert await newest_of_each(db) == ["", ""]


async def test_a_write_that_does_not_concern_it_sends_nothing_more(db: Database) -> None:
    """The text of a post is none of its business."""
    post = Post(id=1, written=1)
    await db.insert(post)
    post.text = "new"
    assert [step.method for step in db.explain_write("save", post).steps] == ["PATCH"]


async def test_it_is_kept_in_a_transaction(db: Database) -> None:
    """Several posts of one topic write its row once."""
    async with db.transaction() as tx:
        for number in range(5):
            tx.insert(Post(id=number, written=number))
    assert await newest_of_each(db) == ["post_004", None]
    async with db.transaction() as tx:
        tx.delete(await db.get(Post, forum="f", id=4))
        tx.insert(Post(id=7, topic="b"))
    assert await newest_of_each(db) == ["post_003", "post_007"]


async def test_it_is_kept_by_bulk(db: Database) -> None:
    """Many posts at once, then many deletes."""
    posts = [Post(id=number, topic="ab"[number % 2], written=number) for number in range(150)]
    async with db.bulk(errors="report") as bulk:
        for post in posts:
            await bulk.insert(post)
    assert await newest_of_each(db) == ["post_148", "post_149"]
    report = await db.select(Post).where(Post.forum == "f", Post.written > 99).delete()
    assert (report.written, report.failures) == (50, 0)
    assert await newest_of_each(db) == ["post_098", "post_099"]


async def test_it_is_explained(db: Database) -> None:
    """The row of the group is read, then replaced, in one transaction with the post."""
    said = db.explain_write("insert", Post(id=1))
    assert [(step.method, step.path.partition("RowKey=")[2]) for step in said.steps] == [
        ("GET", "'newest_a')"),
        ("POST", ""),
        ("PUT", "'newest_a')"),
    ]
    assert (said.transaction, said.cost) == (True, 2)


async def damage(db: Database, what: str) -> None:
    key = PropertyBag.key("Toy", "f", "post_002" if what in ("manifest", "orphan") else "newest_a")
    if what in ("gone", "orphan"):
        await delete_row(db, "Toy", {"PartitionKey": "f", "RowKey": key.row_key})
        return
    row = dict(await db.store.get("Toy", "f", key.row_key))
    if what == "manifest":
        row["_ix"] = "{}"
    elif what == "latest":
        row[LATEST] = "post_001"
    else:
        row[MEMBERS] = msgspec.json.encode({"post_001": 1}).decode()
    await replace_row(db, "Toy", row)


@pytest.mark.parametrize("what", ["gone", "orphan", "manifest", "latest", "members"])
async def test_an_audit_finds_and_repairs_it(db: Database, what: str) -> None:
    """Whatever is wrong with the row of a group or with a manifest."""
    for number in (1, 2):
        await db.insert(Post(id=number, written=number))
    await damage(db, what)
    found = await db.audit(Post)
    assert found.found >= 1
    repaired = await db.audit(Post, repair=True)
    assert all(finding.repaired for finding in repaired.findings)
    assert await is_right(db)


async def test_it_is_built_for_posts_that_were_there_before(db: Database) -> None:
    """By `build_index`, as every pattern that says so."""
    for number in (1, 2):
        row = {"PartitionKey": "f", "RowKey": f"post_{number:03d}", "EntityType": "Post", "topic": "a", "text": ""}
        await insert_row(db, "Toy", {**row, "written": str(number), "written@odata.type": "Edm.Int64"})
    built: Any = Post.newest
    assert (await db.build_index(built)).complete
    assert await newest_of_each(db) == ["post_002", None]


def test_a_declaration_is_refused_with_its_name() -> None:
    """Declarations of patterns are checked as others are."""
    with pytest.raises(ModelError, match=r"Note\.newest: 'when' is not a field of Note"):

        class Note(Entity, table="Toy", partition_key="{forum}", row_key="note_{id}"):  # pyright: ignore[reportUnusedClass]
            forum: Mapped[str]
            id: Mapped[int]
            newest = Latest("when", row_key="newest_{forum}")

    with pytest.raises(ModelError, match=r"Memo\.other.*Memo\.newest"):

        class Memo(Entity, table="Toy", partition_key="{forum}", row_key="memo_{id}"):  # pyright: ignore[reportUnusedClass]
            forum: Mapped[str]
            id: Mapped[int]
            newest = Latest("id", row_key="newest_{forum}")
            other = Latest("id", row_key="newest_{forum}")
