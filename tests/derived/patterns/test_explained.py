"""
What `explain_write` says is what is sent, for each verb, of an entity that concerns many rows.
"""

import asyncio
import datetime as dt
import re
import types
from random import Random
from typing import Any

import msgspec
import pytest

from tableorm import (
    Blob,
    Count,
    Database,
    Embedded,
    Encryption,
    Entity,
    Feed,
    Index,
    IndexList,
    KeyRing,
    Mapped,
    ModelError,
    NotSupported,
    Observation,
    PropertyBag,
    Sum,
    WriteExplanation,
    WriteStep,
    connect,
    encrypted,
    field,
)
from tableorm.connection.connection import connection_of
from tableorm.models.reserved import BLOB_FIELDS, BLOB_LISTS
from tableorm.outbox.bell import OUTBOX, outbox_queues
from tableorm.stores import Operation, Verb
from tableorm.writes.explain import AS_READ, BATCH
from tests.derived.patterns.firm import Badge, Department, Employee
from tests.torture import seeds

METHODS = {
    Verb.INSERT: "POST",
    Verb.MERGE: "PATCH",
    Verb.REPLACE: "PUT",
    Verb.DELETE: "DELETE",
    Verb.INSERT_OR_MERGE: "PATCH",
    Verb.INSERT_OR_REPLACE: "PUT",
}


def shown(table: str, operation: Operation) -> tuple[str, str, str | None, bytes]:
    row = dict(operation.row)
    path = f"/{table}"
    if operation.verb is not Verb.INSERT:
        path += f"(PartitionKey='{row.pop('PartitionKey')}',RowKey='{row.pop('RowKey')}')"
    body = b"" if operation.verb is Verb.DELETE else msgspec.json.encode(row)
    return METHODS[operation.verb], path, operation.if_match, body


@pytest.fixture
async def ann(db: Database) -> Employee:
    await db.insert(Department(name="Sales"))
    await db.insert(Employee(id=1, name="Ann", salary=5))
    await db.insert(Employee(id=2, name="Bob", last_name="Wu", salary=10))
    await db.modify(Department, lambda each: setattr(each, "manager_id", 2), name="Sales")
    return await db.get(Employee, department="Sales", id=1)


async def settled(db: Database) -> None:
    """Wait for what no caller waits for."""
    if later := connection_of(db)._later:  # pyright: ignore[reportPrivateUsage]
        await asyncio.wait(later)


VERBS: list[tuple[str, dict[str, Any]]] = [
    *(("insert", {}), ("save", {}), ("merge", {}), ("merge", {"if_match": "*"})),
    *(("replace", {}), ("replace", {"if_match": "*"}), ("upsert", {}), ("upsert", {"mode": "replace"})),
    *(("delete", {}), ("delete", {"if_match": "*"}), ("move", {"id": 2}), ("move", {"shelf": "b"})),
]

CHANGES: list[dict[str, Any]] = [
    *({}, {"tag": "new"}, {"size": 5}, {"tags": ["y", "z"]}, {"note": "n"}, {"tag": "new", "size": 3}),
]


def random_models(seed: int) -> tuple[type[Any], type[Any], type[Any]]:
    """Return a model with up to five things that are derived from its entities, and those of its shelf and tag."""
    table, rolls = f"Explained{seed}", Random(seed)

    class Shelf(Entity, table=table, partition_key="{shelf}", row_key="shelf"):
        shelf: Mapped[str]
        title: Mapped[str] = field(default="t")
        things: Mapped[int] = field(default=0, maintained=True)
        sizes: Mapped[int] = field(default=0, maintained=True)

    class Tag(Entity, table=f"{table}Tags", partition_key="{tag}", row_key="tag"):
        tag: Mapped[str]
        motto: Mapped[str] = field(default="m")
        things: Mapped[int] = field(default=0, maintained=True)

    declared: dict[str, Any] = {
        "near": Index(row_key="near_{tag}_{id}", include=rolls.choice(["keys", "all", ["size"]])),
        "each": Index(row_key="each_{tags:each}_{id}", include=rolls.choice(["keys", "all"])),
        "some": Index(row_key="some_{size:04d}_{id}", where=lambda thing: thing.size > 1),
        "only": Index(row_key="only_{tag}_{id}", unique=True),
        "far": Index(partition_key="far_{tag}", row_key="far_{shelf}_{id}", consistency="eventual"),
        "far_only": Index(
            table=f"{table}Taken", partition_key="{tag}_{id}", row_key="x", unique=True, consistency="eventual"
        ),
        "listed": IndexList(row_key="of_{tag}"),
        "far_listed": IndexList(partition_key="l_{tag}", row_key="l_{tag}", consistency="eventual"),
        "in_blob": IndexList(partition_key="b_{tag}", row_key="b_{tag}", blob=True, consistency="eventual"),
        "changes": Feed(keep=dt.timedelta(days=1)),
        "counted": Count(lambda: Shelf.things, shelf="{shelf}"),
        "summed": Sum("size", lambda: Shelf.sizes, shelf="{shelf}"),
        "far_counted": Count(lambda: Tag.things, tag="{tag}", create=rolls.random() < 0.5, consistency="eventual"),
        "titled": Embedded(lambda: Shelf, {"title": "title"}, shelf="{shelf}"),
        "with_motto": Embedded(lambda: Tag, {"motto": "motto"}, tag="{tag}", consistency="eventual"),
    }
    names = set(rolls.sample([*declared], rolls.randint(0, 5)))
    if "with_motto" in names:
        declared["of_tag"] = Index(
            partition_key="t_{tag}", row_key="t_{shelf}_{id}", include="keys", consistency="eventual"
        )
        declared["with_motto"] = Embedded(
            lambda: Tag, {"motto": "motto"}, tag="{tag}", consistency="eventual", via=declared["of_tag"]
        )
        # A feed does not note copies; and a count changes the row that is copied, while it is copied.
        names = {*names - {"changes", "far_counted"}, "of_tag"}
    if "titled" in names:
        names -= {"changes"}

    class Thing(Entity, abstract=True):
        shelf: Mapped[str] = field(default="a")
        id: Mapped[int] = field(default=1)
        tag: Mapped[str] = field(default="old")
        size: Mapped[int] = field(default=1)
        tags: Mapped[list[str]] = field(factory=lambda: ["x", "y"])
        note: Mapped[str | None] = field(default=None)
        title: Mapped[str | None] = field(default=None, maintained="titled" in names)
        motto: Mapped[str | None] = field(default=None, maintained="with_motto" in names)

    keys = {"table": table, "partition_key": "{shelf}", "row_key": "thing_{id}"}
    body = {name: declared[name] for name in sorted(names)}
    return Shelf, Tag, types.new_class(f"Thing{seed}", (Thing,), keys, lambda space: space.update(body))


def requests_sent(seen: Observation) -> list[list[WriteStep]]:
    """Return what was sent as it would be said: of a transaction each operation, of other requests one step."""
    found: list[list[WriteStep]] = []
    for request in seen.requests:
        method, _, path = request.line.split("?")[0].partition(" ")
        steps = [WriteStep(*shown(request.table, each)) for each in request.operations]
        found.append(steps or [WriteStep(method, "/" + path, body=b"")])
    drawn = {token for steps in found for each in steps for token in re.findall(TOKENS, (each.body or b"").decode())}
    return [[without_tokens(each, {"".join(token) for token in drawn}) for each in steps] for steps in found]


TOKENS = r'^\{[^{]*"_w":"([\w-]{12})|"RowKey":"~o_([\w-]{12})"'
"""The token that a write has drawn, and that of a decision row."""


def without_tokens(step: WriteStep, tokens: set[str]) -> WriteStep:
    """Return a request with dashes in place of the tokens that were drawn for it."""
    path, body = step.path.replace("messages/ID", "messages/" + 12 * "-"), (step.body or b"").decode()
    for each in tokens:
        path, body = path.replace(each, 12 * "-"), body.replace(each, 12 * "-")
    return WriteStep(step.method, path, step.if_match, body.encode())


def is_said(step: WriteStep, sent: WriteStep) -> bool:
    """Return whether a step says what was sent. A row that is read first is inserted if it is not there."""
    path = re.sub(f"(?<={BLOB_LISTS}/).*", "BLOB", step.path).replace("(...)", "()")
    if step.body is None and step.if_match == AS_READ and sent.method == "POST":
        row = values_of(sent)
        return path == f"{sent.path}(PartitionKey='{row.get('PartitionKey')}',RowKey='{row.get('RowKey')}')"
    if path.startswith((f"/{OUTBOX}/", f"/{BLOB_LISTS}/")):
        return (step.method, path) == (sent.method, sent.path)  # observers see no more of messages and blobs
    said = (step.method, path, step.if_match is None) == (sent.method, sent.path, sent.if_match is None)
    return (
        said and step.if_match in (sent.if_match, AS_READ) and (step.body is None or values_of(step) == values_of(sent))
    )


def values_of(step: WriteStep) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.json.decode(step.body or b"{}")
    row.pop("odata.etag", None)  # which the row gets when it was sent
    return {name: msgspec.json.decode(row[name]) if name in ("_ix", "Work") else row[name] for name in row}


def find_differences(said: WriteExplanation, seen: Observation) -> list[str]:
    """Return what was sent and not said, and what was said and not sent; in which order is left open."""
    one = [step for step in said.steps if step.method != "GET"] if said.transaction else []
    left = [step for step in (*said.before, *said.steps, *said.after) if step not in one]
    left.sort(key=lambda step: step.body is None)
    problems: list[str] = []

    def take(steps: list[WriteStep], sent: WriteStep) -> list[WriteStep] | None:
        found = next((number for number, each in enumerate(steps) if is_said(each, sent)), None)
        return None if found is None else steps[:found] + steps[found + 1 :]

    for steps in requests_sent(seen):
        rest: list[WriteStep] | None = one
        for sent in steps:
            rest = None if rest is None else take(rest, sent)
        if one and rest == []:
            one = []
            continue
        sent = steps[0] if len(steps) == 1 else WriteStep("POST", BATCH)
        after = take(left, sent)
        left = left if after is None else after
        problems += [f"not said: {each}" for each in steps if after is None]
    return problems + [f"not sent: {each}" for each in (*one, *left)]


@seeds(12, 400)
async def test_what_is_said_is_sent(seed: int) -> None:
    """By each verb all requests are as it was said, with their bodies, as long as nobody writes the rows meanwhile."""
    shelf, tag, thing = random_models(seed)
    rolls = Random(seed)
    for verb, given in VERBS:
        async with connect("local::memory:") as db:
            await outbox_queues(connection_of(db)).create_queue(OUTBOX)
            await db.create_tables(shelf, tag, thing)
            rows = [shelf(shelf="a"), shelf(shelf="b"), tag(tag="old"), tag(tag="new"), thing(id=7), thing()]
            for each in rows:
                await db.insert(each)
                await settled(db)
            entity: Any = thing(id=3) if verb == "insert" else await db.get(thing, shelf="a", id=1)
            changes = rolls.choice(CHANGES)
            for name, value in changes.items():
                setattr(entity, name, value)
            explain: Any = db.explain_write
            try:
                said = explain(verb, entity, **given)
            except NotSupported as error:
                assert "shelf" in given, verb
                with pytest.raises(NotSupported, match=re.escape(str(error))):
                    await db.move(entity, **given)
                continue
            with db.observe(show_values=True) as seen:
                await getattr(db, verb)(entity, **given)
                await settled(db)

        assert said.complete
        assert said.cost == seen.cost, f"{verb} {given} {changes}: {said}\n{seen.requests}"
        assert find_differences(said, seen) == [], f"{verb} {given} {changes}"


async def test_what_depends_on_a_row_that_was_not_read(db: Database, ann: Employee) -> None:
    """An explanation says that the stored row decides; of a model without derived rows it is complete."""
    for verb, target in (("upsert", Employee(id=3)), ("delete", ann.key)):
        explain: Any = db.explain_write
        said = explain(verb, target, **({"if_match": "*"} if verb == "delete" else {}))
        assert (said.complete, str(said).splitlines()[-1]) == (False, "(2 requests and those of derived rows, 0 bytes)")
    bag = PropertyBag("Firm", "Sales", "a", {"n": 1})
    assert db.explain_write("delete", bag, if_match="*").complete


@pytest.mark.parametrize("manager", [1, None])
async def test_copies_of_another_entity(db: Database, ann: Employee, manager: int | None) -> None:
    """The body of a row that comes to hold them is not known; that of one that holds none any more is."""
    sales = await db.get(Department, name="Sales")
    sales.manager_id = manager
    said = db.explain_write("save", sales)
    bodies = {step.path: step.body for step in said.steps if "'department'" in step.path}
    with db.observe(show_values=True) as seen:
        await db.save(sales)

    assert [body is None for body in bodies.values()] == [manager is not None]
    assert find_differences(said, seen) == []


async def test_a_move_with_copies(db: Database) -> None:
    """The copy stays under its key and says where the entity is."""
    badge = Badge(number=1, code="x")
    await db.insert(badge)
    said = db.explain_write("move", badge, number=2)
    with db.observe(show_values=True) as seen:
        await db.move(badge, number=2)

    assert [step.method for step in said.steps] == ["DELETE", "POST", "PUT"] and said.cost == 1
    assert find_differences(said, seen) == []


class Note(Entity, table="ExplainedNotes", partition_key="{box}", row_key="note"):
    box: Mapped[str]
    text: Mapped[str] = encrypted()
    picture: Mapped[Blob | None] = field(default=None)


@pytest.mark.parametrize("changed", [{"text": "new"}, {"picture": Blob(b"new")}])
async def test_a_move_of_what_is_saved_before(changed: dict[str, Any]) -> None:
    """What was changed is encrypted, and a blob is sent, once: to the partition that the entity leaves."""
    async with connect("local::memory:", encryption=Encryption(KeyRing({"key": bytes(32)}, wrap_with="key"))) as db:
        await outbox_queues(connection_of(db)).create_queue(OUTBOX)
        await db.blobs.create_container(BLOB_FIELDS)
        await db.create_tables(Note)
        note = Note(box="a", text="old")
        await db.insert(note)
        note = note.evolve(**changed)
        said = db.explain_write("move", note, box="b")
        with db.observe(show_values=True) as seen:
            await db.move(note, box="b")
            await settled(db)

    uploads = [step.path for step in said.before if step.path.startswith(f"/{BLOB_FIELDS}/")]
    assert (said.cost, len(uploads)) == (seen.cost, "picture" in changed)
    assert all(step.method != "PUT" or step.path.startswith("/ExplainedNotes(") for step in said.after)


async def test_a_move_of_what_was_read_by_an_index(db: Database) -> None:
    """Its row is read first: what the transaction holds beside the delete and the insert, that row tells."""
    await db.insert(Badge(number=1, code="x"))
    found = await db.get(Badge.by_code, department="Sales", code="x")
    said = db.explain_write("move", found, number=2)
    with db.observe(show_values=True) as seen:
        await db.move(found, number=2)

    path = "/Firm(PartitionKey='Sales',RowKey='badge_000001')"
    assert said.transaction and said.cost == seen.cost == 2
    assert [(step.method, step.path) for step in said.steps] == [("GET", path), ("DELETE", path), ("POST", "/Firm")]
    read, sent = requests_sent(seen)
    assert [(step.method, step.path) for step in (*read, *sent[:2])] == [
        (step.method, step.path) for step in said.steps
    ]


async def test_verbs_take_their_own_arguments(db: Database, ann: Employee) -> None:
    """What a verb would not take is rejected by name, and a key by all but delete; a bag moves by its row_key."""
    explain: Any = db.explain_write
    for verb, given in (("save", "if_match"), ("merge", "mode"), ("upsert", "if_match"), ("delete", "only")):
        with pytest.raises(ModelError, match=rf"explain_write\('{verb}', {given}=\.\.\.\) is rejected: {verb} takes"):
            explain(verb, ann, **{given: "*"})
    for verb in ("insert", "save", "merge", "replace", "upsert", "move"):
        with pytest.raises(ModelError, match="is a key"):
            explain(verb, ann.key)
    bag = PropertyBag("Firm", "Sales", "a", {"n": 1})
    await db.insert(bag)
    said = db.explain_write("move", bag, row_key="b")

    assert [step.method for step in said.steps] == ["DELETE", "POST"] and bag.row_key == "a"
