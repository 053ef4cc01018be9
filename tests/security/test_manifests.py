"""
Attacks by manifests: who may write one row puts a manifest into it that names rows of others, and waits for the owner.
"""

import datetime as dt
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from tableorm import (
    Count,
    Database,
    DecodeError,
    Embedded,
    Entity,
    Index,
    Mapped,
    PropertyBag,
    TableOrmError,
    WrongKind,
    connect,
    field,
    upgrade,
)
from tableorm.derived.embed import schema as embeds
from tableorm.stores import Operation, Verb
from tests.rows import merge_row
from tests.security.world import write_row


class Team(Entity, table="Manifests", partition_key="{country}", row_key="team_{tenant}"):
    country: Mapped[str]
    tenant: Mapped[str]
    size: Mapped[int] = field(default=0, maintained=True)


class Member(Entity, table="Manifests", partition_key="{country}", row_key="member_{tenant}_{id}", tracked=True):
    country: Mapped[str]
    tenant: Mapped[str]
    id: Mapped[int]
    name: Mapped[str] = field(default="unknown")
    mail: Mapped[str | None] = field(default=None)
    team: Mapped[str | None] = field(default=None)

    by_mail = Index(row_key="mail_{mail}", unique=True)
    by_name = Index(row_key="name_{name}_{tenant}_{id}", include="keys")
    counted = Count(lambda: Team.size, country="{country}", tenant="{team}")


class Copying(Entity, abstract=True):
    country: Mapped[str]
    id: Mapped[int]
    owner: Mapped[int | None]
    text: Mapped[str | None]
    name: Mapped[str | None] = field(default=None, maintained=True)


class Badge(Copying, table="Manifests", partition_key="{country}", row_key="badge_{tenant}_{id}"):
    tenant: Mapped[str]
    holes: Mapped[int] = field(default=0, maintained=True)

    member = Embedded(lambda: Member, {"name": "name"}, country="{country}", tenant="{tenant}", id="{owner}")


BADGE = Badge.key(country="SE", tenant="other", id=1)


class Medal(Copying, table="Manifests", partition_key="{country}", row_key="medal_{id}", version=2):
    member = Embedded(lambda: Member, {"name": "name"}, country="{country}", tenant="acme", id="{owner}")


@upgrade(Medal, from_version=1)
def _keep_text(row: PropertyBag) -> PropertyBag:
    return row


@pytest.fixture
async def db(db: Database) -> Database:
    await db.create_tables(Member)
    await db.insert(Team(country="SE", tenant="other"))
    await db.insert(Member(country="SE", tenant="other", id=1, name="Ann", mail="other@x", team="other"))
    await db.insert(Badge(country="SE", tenant="other", id=1, owner=1, text="mine"))
    return db


async def plant(db: Database, manifest: dict[str, Any] | str, **members: Any) -> None:
    """Insert a member with a manifest, as any client can that may insert one key."""
    row = {"PartitionKey": "SE", "RowKey": "member_acme_9", "EntityType": "Member", "name": "planted", **members}
    row["_ix"] = manifest if isinstance(manifest, str) else json.dumps(manifest)
    verb = Verb.INSERT_OR_REPLACE if isinstance(manifest, str) else Verb.INSERT
    await db.store.write("Manifests", Operation(verb, row))


async def rows_of_others(db: Database) -> dict[str, dict[str, Any]]:
    """Return the rows of the other tenant, without their write tokens."""
    rows = await db.select_raw("Manifests").allow_scan().all()
    return {row.row_key: {n: v for n, v in row.items() if n != "_w"} for row in rows if "other" in row.row_key}


MEMBER: dict[str, Any] = {"country": "SE", "tenant": "acme", "id": 9}

MANIFESTS = {
    "an entity": {"gone": "member_other_1"},
    "an entity as the entry of an index": {"by_mail": "member_other_1"},
    "an index entry": {"by_mail": "mail_other@x"},
    "an index entry under another name": {"gone": "mail_other@x"},
    "an index entry that holds keys alone": {"by_name": "name_Ann_other_1"},
    "a count": {"counted": {"add": ["team_other", {"size": 500}]}},
    "a count under another name": {"gone": {"add": ["team_other", {"size": 500}]}},
    "a field that is no count": {"counted": {"add": ["badge_other_1", {"text": 5}]}},
    "who holds copies": {"member": {"from": ["member_other_1", "Badge.member:badge_other_1"]}},
    "copies in an entity": {"Badge.member:badge_other_1": {"to": ["badge_other_1", {"name": "name"}]}},
    "copies of another declaration": {"x:team_other": {"to": ["team_other", {"name": "size"}]}},
}


async def delete_by_key(db: Database) -> None:
    await db.delete(Member, **MEMBER, if_match="*")


async def delete_entity(db: Database) -> None:
    await db.delete(await db.get(Member, **MEMBER))


async def delete_found(db: Database) -> None:
    await db.select(Member).where(Member.country == "SE", Member.tenant == "acme").delete()


async def save(db: Database) -> None:
    entity = await db.get(Member, **MEMBER)
    entity.name, entity.mail = "changed", "free@x"
    await db.save(entity)


async def take_the_mail(db: Database) -> None:
    entity = await db.get(Member, **MEMBER)
    entity.mail = "other@x"
    await db.save(entity)


async def upsert(db: Database) -> None:
    await db.upsert(Member(**MEMBER, name="changed", mail="free@x"))


WRITES = [delete_by_key, delete_entity, delete_found, save, take_the_mail, upsert]


@pytest.mark.one_of(5)
@pytest.mark.parametrize("manifest", MANIFESTS.values(), ids=MANIFESTS)
@pytest.mark.parametrize(
    ("scoped", "fields"),
    [(False, {}), (True, {}), (True, {"mail": "other@x", "name": "Ann"})],
    ids=["by the owner", "in a scope", "in a scope, confirmed by fields"],
)
@pytest.mark.parametrize("write", WRITES, ids=lambda each: each.__name__)
async def test_a_manifest_reaches_no_rows_of_others(
    db: Database,
    manifest: dict[str, Any],
    scoped: bool,
    write: Callable[[Database], Awaitable[None]],
    fields: dict[str, str],
) -> None:
    """
    An ordinary write of a row with a false manifest changes no row that the manifest names, or is rejected; in a scope
    even if the fields of the row say the same.
    """
    await plant(db, manifest, **fields)
    before = await rows_of_others(db)
    refused = ""
    try:
        await write(db.scope(tenant="acme") if scoped else db)
    except TableOrmError as error:
        refused = str(error)
    assert not scoped or "the entity 'member_other_1'" not in refused
    assert await rows_of_others(db) == before


@pytest.mark.parametrize("kind", ["Member:x", "Member:0", "Member:99", "Team"])
async def test_a_false_kind_gives_a_manifest_no_reach(db: Database, kind: str) -> None:
    """
    A row of a version that there is not, or of another kind, has nothing taken back from a count of others: it is
    refused, and can be deleted as a bag.
    """
    await plant(db, {"counted": {"add": ["team_other", {"size": 500}]}, "gone": "mail_other@x"}, EntityType=kind)
    before = await rows_of_others(db)
    with suppress(DecodeError, WrongKind):
        await delete_by_key(db)
    key = Member.key(**MEMBER)
    await db.delete(PropertyBag.key(key.table, key.partition_key, key.row_key), if_match="*", missing_ok=True)
    assert await rows_of_others(db) == before and not await db.exists(key)


async def test_a_token_for_one_key_reaches_no_other_row(tmp_path: Any) -> None:
    """The holder of a token that inserts one key alone cannot have rows of others deleted by their owner."""
    url = f"local:{tmp_path / 'data.tables'}"
    async with connect(url) as db:
        await db.create_tables(Member)
        await db.insert(Member(country="SE", tenant="other", id=1, mail="other@x"))
        token = await db.grant(Member, "a", dt.timedelta(hours=1), start=MEMBER, end=MEMBER)
        async with connect(url, sas=token) as mine:
            await plant(mine, {"by_mail": "mail_other@x", "gone": "member_other_1"})
        before = await rows_of_others(db)
        await delete_by_key(db)
        assert await rows_of_others(db) == before


@pytest.mark.parametrize("copy", ["text", "holes", "unknown", "_ix", "EntityType"])
@pytest.mark.parametrize("known", [True, False])
async def test_copies_are_written_into_no_other_field(
    db: Database, copy: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The manifest of an entity that others copy cannot name a field that is no copy of it: one that they write
    themselves, a count, an unknown property, a reserved one. A program that does not know the model of the others
    takes for copies what has the value that the entity had.
    """
    if not known:
        monkeypatch.setattr(embeds, "_EMBEDS", set[object]())
    stored = await db.get(PropertyBag.key("Manifests", "SE", "member_other_1"))
    holder = {"Badge.member:badge_other_1": {"to": ["badge_other_1", {"name": copy}]}}
    row = {"PartitionKey": "SE", "RowKey": "member_other_1"}
    row["_ix"] = json.dumps({**json.loads(stored["_ix"]), **holder})
    await merge_row(db, "Manifests", row)
    before = await db.get(PropertyBag.key("Manifests", "SE", "badge_other_1"))
    member = await db.get(Member, country="SE", tenant="other", id=1)
    member.name = f"Ann, {copy}"
    await db.save(member)
    after = await db.get(PropertyBag.key("Manifests", "SE", "badge_other_1"))
    copied = {"name": member.name} if known else {}  # by its declaration it is a copy, whatever the manifest says
    assert {n: v for n, v in after.items() if n != "_w"} == {**{n: v for n, v in before.items() if n != "_w"}, **copied}


async def test_a_program_without_the_model_of_a_holder_follows_its_copies(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies follow also if the program that changes the entity does not declare the model of who holds them."""
    monkeypatch.setattr(embeds, "_EMBEDS", set[object]())
    member = await db.get(Member, country="SE", tenant="other", id=1)
    member.name = "Anna"
    await db.save(member)
    assert (await db.get(BADGE)).name == "Anna"


@pytest.mark.parametrize("name", ["member", "gone"])
@pytest.mark.parametrize("write", [delete_by_key, delete_entity, delete_found, save], ids=lambda each: each.__name__)
async def test_a_manifest_that_names_a_row_without_one_leaves_it_alone(
    db: Database, name: str, write: Callable[[Database], Awaitable[None]]
) -> None:
    """A row that holds no copies, and says that it does, changes no row that knows nothing of it, not even its ETag."""
    await db.insert(Team(country="SE", tenant="plain"))
    await plant(db, {name: {"from": ["team_plain", "x:member_acme_9"]}})
    before = await db.store.get("Manifests", "SE", "team_plain")
    await write(db)
    assert await db.store.get("Manifests", "SE", "team_plain") == before


async def test_who_holds_no_copies_is_not_upgraded(db: Database) -> None:
    """A manifest that names a row of an older version, which holds no copies of its entity, leaves that row alone."""
    await write_row(db, "Manifests", "SE", "medal_1", EntityType="Medal", text="old")
    await plant(db, {"Medal.member:medal_1": {"to": ["medal_1", {"name": "text"}]}})
    before = await db.store.get("Manifests", "SE", "medal_1")
    await save(db)
    assert await db.store.get("Manifests", "SE", "medal_1") == before


@pytest.mark.parametrize("value", [{"name@odata.type": "Edm.Int64", "name": "5"}, {"name": True}])
@pytest.mark.parametrize("repairs", [True, False], ids=["by an audit", "by a save"])
async def test_a_value_of_another_type_is_not_copied(db: Database, value: dict[str, Any], repairs: bool) -> None:
    """What does not fit the field that would hold the copy is rejected: else nobody could read its entity any more."""
    badge = await db.get(BADGE)
    if not repairs:
        badge.owner = None
        await db.save(badge)
    await write_row(db, "Manifests", "SE", "member_other_1", Verb.MERGE, **value)
    if repairs:
        report = await db.audit(Member, Badge, repair=True)
        assert any("Badge.member would hold a copy" in str(each.refused) for each in report.findings)
    else:
        badge.owner = 1
        with pytest.raises(DecodeError, match=r"'member_other_1'.*Badge.member would hold a copy of its name; correct"):
            await db.save(badge)
    assert (await db.get(BADGE)).text == "mine"


async def test_honest_rows_cost_no_read_of_their_index_entries(db: Database) -> None:
    """What the stored fields say themselves is believed: the entries are replaced and deleted without a read."""
    member = Member(country="SE", tenant="acme", id=2, name="Bo", mail="bo@x")
    await db.insert(member)
    before = db.stats.requests
    member.name, member.mail = "Bob", "bob@x"
    await db.save(member)
    await db.delete(member)
    assert db.stats.requests - before == 2


class Worker(Entity, table="Manifests", partition_key="{country}", row_key="worker_{id}", kind="Worker", version=2):
    country: Mapped[str]
    id: Mapped[int]
    group: Mapped[str]

    counted = Count(lambda: Team.size, country="{country}", tenant="{group}")


@upgrade(Worker, from_version=1)
def name_group(row: PropertyBag) -> PropertyBag:
    row["group"] = row.pop("team")
    return row


@pytest.mark.parametrize("by_query", [False, True], ids=["by key", "by a query"])
async def test_an_entity_of_an_older_version_is_taken_back(db: Database, by_query: bool) -> None:
    """Its fields have other names, and do not say where it was counted: the manifest is believed."""
    manifest = json.dumps({"counted": {"add": ["team_other", {"size": 1}]}})
    await write_row(db, "Manifests", "SE", "worker_1", EntityType="Worker", team="other", _ix=manifest)
    if by_query:
        assert not (await db.select(Worker).where(Worker.country == "SE").delete()).failed
    else:
        await db.delete(Worker, country="SE", id=1, if_match="*")
    assert (await db.get(Team, country="SE", tenant="other")).size == 0
