"""
Stored access policies: listed, set and revoked, on the embedded engine, on our server and on Azurite.
"""

import datetime as dt
from typing import Any

import pytest

from tableorm import (
    AccessDenied,
    Database,
    EntityNotFound,
    LimitExceeded,
    ModelError,
    NotSupported,
    StoredPolicy,
    TableNotFound,
    TableOrmError,
)
from tests.access.conftest import Employee, World, rows

LONG_AGO, LATER = dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(2099, 1, 1, 12, 30, tzinfo=dt.UTC)
TIMES: dict[str, Any] = {"starts_at": LONG_AGO, "expires_at": LATER}


async def test_they_are_stored_with_the_table(world: World) -> None:
    """What was set is listed; setting again replaces it; what is revoked is gone; the table takes them along."""
    policies = world.owner.policies(Employee)
    assert await policies.list() == {}
    first = await policies.set("readers", "r", **TIMES)
    second = await policies.set("writers", "dau", **TIMES)
    assert (first, second.permissions) == (StoredPolicy("readers", "r", LONG_AGO, LATER), "aud")
    assert await world.owner.policies("directory").list() == {"readers": first, "writers": second}

    third = await policies.set("readers", "ra", **TIMES)
    await policies.revoke("writers")
    assert await policies.list() == {"readers": third}
    with pytest.raises(EntityNotFound, match=r"revoke\('writers'\): .* there are 'readers'"):
        await policies.revoke("writers")
    await policies.revoke("writers", missing_ok=True)
    await world.owner.drop_table("Directory")
    with pytest.raises(TableNotFound):
        await policies.set("readers", "r", **TIMES)


async def test_a_policy_says_what_its_tokens_may(world: World) -> None:
    """Tokens that refer to it have its rights from then on, and none once it is revoked."""
    policies = world.owner.policies(Employee)
    await policies.set("staff", "r", **TIMES)
    token = await world.owner.grant(Employee, policy="staff")
    assert "&si=staff&" in token and "sp=" not in token and token.expires_at is None
    async with world.open(token) as mine:
        assert len(await rows(mine)) == 12
        with pytest.raises(AccessDenied):
            await mine.insert(Employee(id=1))
        await policies.set("staff", "ra", **TIMES)
        await mine.insert(Employee(id=1))
        await policies.revoke("staff")
        with pytest.raises(AccessDenied):
            await rows(mine)


async def test_policies_that_lack_something(db: Database) -> None:
    """What a policy does not say, its tokens say; only one of both does."""
    await db.create_tables(Employee)
    policies = db.policies(Employee)
    assert await policies.set("empty") == StoredPolicy("empty")
    assert await policies.list() == {"empty": StoredPolicy("empty")}
    token = await db.grant(Employee, "r", dt.timedelta(hours=1), policy="empty")
    assert "sp=r" in token and "si=empty" in token


async def test_five_at_most(world: World) -> None:
    """A sixth is rejected before anything is sent, naming those that there are."""
    policies = world.owner.policies(Employee)
    for number in range(5):
        await policies.set(f"p{number}", "r", **TIMES)
    with pytest.raises(LimitExceeded, match="5 stored access policies at most, here p0, p1, p2, p3, p4; revoke one"):
        await policies.set("p5", "r", **TIMES)

    assert len(await policies.list()) == 5


async def test_what_cannot_be(world: World) -> None:
    """Names, permissions and times that are none are rejected by name."""
    policies = world.owner.policies(Employee)
    for name in ("", "x" * 65, " x", "x\n", "a\tb", "\0", "\ud800"):
        with pytest.raises(ModelError, match="a name has 1 to 64 printable characters"):
            await policies.set(name)
    with pytest.raises(ModelError, match="permissions='rw' is rejected"):
        await policies.set("x", "rw")
    with pytest.raises(ModelError, match="is naive; give it a time zone"):
        await policies.set("x", "r", expires_at=dt.datetime(2099, 1, 1))  # noqa: DTZ001 - that is what is rejected
    with pytest.raises(ModelError, match="resource name length"):
        world.owner.policies("x")
    if world.name == "azurite":
        with pytest.raises(TableOrmError, match=r"only with a start, an expiry and permissions; these lack one: x"):
            await policies.set("x", "r")


async def test_tokens_have_no_policies(world: World) -> None:
    """Who was given a token neither sees nor changes them."""
    token = await world.owner.grant(Employee, "raud", dt.timedelta(hours=1))
    async with world.open(token) as mine:
        for call in (mine.policies(Employee).list(), mine.policies(Employee).set("x", "r")):
            with pytest.raises((AccessDenied, NotSupported)):
                await call
