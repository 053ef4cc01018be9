"""
A manifest that names one row in two forms: its entity fails with an error of this package, and alone.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tableorm import Database, TableOrmError, connect
from tableorm.stores import Operation, Verb
from tests.security.test_manifests import MEMBER, Badge, Member, Team

CONTRADICTIONS: list[dict[str, Any]] = [
    {"gone": "team_other", "counted": {"add": ["team_other", {"size": 1}]}},
    {"gone": "badge_other_1", "Badge.member:badge_other_1": {"to": ["badge_other_1", {"name": "name"}]}},
    {"gone": "x~", "listed": {"list": ["x", "K"]}},
    {"gone": "team_other", "member": {"from": ["team_other", "z"]}},
]


@pytest.fixture
async def db() -> AsyncIterator[Database]:
    async with connect("local::memory:") as db:
        await db.create_tables(Member)
        await db.insert(Team(country="SE", tenant="other"))
        await db.insert(Member(country="SE", tenant="other", id=1, name="Ann", mail="other@x", team="other"))
        await db.insert(Badge(country="SE", tenant="other", id=1, owner=1, text="mine"))
        yield db


async def plant(db: Database, manifest: dict[str, Any]) -> None:
    row = {"PartitionKey": "SE", "RowKey": "member_acme_9", "EntityType": "Member", "name": "planted"}
    await db.store.write("Manifests", Operation(Verb.INSERT_OR_REPLACE, {**row, "_ix": json.dumps(manifest)}))


@pytest.mark.parametrize("manifest", CONTRADICTIONS)
async def test_a_write_is_refused_as_by_any_damage(db: Database, manifest: dict[str, Any]) -> None:
    """A write of the row fails with an error of this package, or not at all."""
    for verb in ("save", "delete", "transaction"):
        await plant(db, manifest)
        try:
            if verb == "save":
                entity = await db.get(Member, **MEMBER)
                entity.name, entity.mail, entity.team = "b", "new@x", "other"
                await db.save(entity)
            elif verb == "delete":
                await db.delete(Member, **MEMBER, if_match="*")
            else:
                async with db.transaction() as tx:
                    tx.delete(Member.key(**MEMBER), if_match="*")
        except TableOrmError:
            pass


@pytest.mark.parametrize("manifest", CONTRADICTIONS)
async def test_others_are_written(db: Database, manifest: dict[str, Any]) -> None:
    """In bulk, and in a query that deletes, no other entity fails for it."""
    await plant(db, manifest)
    async with db.bulk(errors="report") as bulk:
        for number in range(2, 6):
            await bulk.upsert(Member(country="SE", tenant="third", id=number))
        await bulk.upsert(Member(**MEMBER, name="changed", mail="new@x", team="other"))
    assert bulk.report.written >= 4
    await plant(db, manifest)
    await db.select(Member).where(Member.country == "SE").delete()
    left = [each.row_key for each in await db.select_raw("Manifests").allow_scan().all()]
    assert not any("third" in each for each in left)
