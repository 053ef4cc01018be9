"""
Manifests that name one row in two forms, or nest very deeply: their entity fails with an error of this package, alone,
and an audit goes on.
"""

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from tableorm import Database, TableOrmError
from tests.security.test_manifests import MEMBER, WRITES, Member, db, delete_by_key, plant

__all__ = ["db"]

CONTRADICTIONS: list[dict[str, Any]] = [
    {"gone": "team_other", "counted": {"add": ["team_other", {"size": 1}]}},
    {"gone": "badge_other_1", "Badge.member:badge_other_1": {"to": ["badge_other_1", {"name": "name"}]}},
    {"gone": "x~", "listed": {"list": ["x", "K"]}},
    {"gone": "team_other", "member": {"from": ["team_other", "z"]}},
]
NESTED = '{"gone":' + "[" * 15_000 + "]" * 15_000 + "}"
DAMAGED = [*map(json.dumps, CONTRADICTIONS), NESTED]


async def look_up(db: Database) -> None:
    await db.exists(Member.by_mail, country="SE", mail="other@x")
    await db.select(Member).where(Member.country == "SE").all()


async def join_team(db: Database) -> None:
    entity = await db.get(Member, **MEMBER)
    entity.name, entity.mail, entity.team = "b", "new@x", "other"
    await db.save(entity)


async def delete_in_transaction(db: Database) -> None:
    async with db.transaction() as tx:
        tx.delete(Member.key(**MEMBER), if_match="*")


@pytest.mark.parametrize("manifest", DAMAGED, ids=range(5))
@pytest.mark.parametrize("write", [*WRITES, look_up, join_team, delete_in_transaction], ids=lambda each: each.__name__)
async def test_a_write_is_refused_as_by_any_damage(
    db: Database, manifest: str, write: Callable[[Database], Awaitable[None]]
) -> None:
    """A write of the row fails with an error of this package, or not at all."""
    await plant(db, manifest)
    with suppress(TableOrmError):
        await write(db)


@pytest.mark.parametrize("manifest", DAMAGED, ids=range(5))
async def test_others_are_written(db: Database, manifest: str) -> None:
    """In bulk, and in a query that deletes, no other entity fails for it."""
    await plant(db, manifest)
    async with db.bulk(errors="report") as bulk:
        for number in range(2, 6):
            await bulk.upsert(Member(country="SE", tenant="third", id=number))
        await bulk.upsert(Member(**MEMBER, name="changed", mail="new@x", team="other"))
    assert bulk.report.written >= 4
    assert manifest != NESTED or len(bulk.report.failed) == 1
    await plant(db, manifest)
    await db.select(Member).where(Member.country == "SE").delete()
    left = [each.row_key for each in await db.select_raw("Manifests").allow_scan().all()]
    assert not any("third" in each for each in left)


async def test_an_audit_goes_on(db: Database) -> None:
    """An audit reports the manifest, checks all other rows, and repairs it."""
    await plant(db, NESTED)
    report = await db.audit(Member, repair=True)
    assert report.found
    assert report.entities == 3
    await delete_by_key(db)
