"""
The promises of docs/writing/lost-replies.md, through the mapper and the SDK's transport, on Azurite behind a proxy that
loses.

What is lost here are bytes on sockets; what happens under every order of loss is tested in `tests/writes`.
"""

from collections.abc import AsyncIterator

import pytest

from tableorm import (
    Database,
    Entity,
    Mapped,
    OutcomeUnknown,
    RetryPolicy,
    connect,
    field,
)
from tests.azure.proxy import FaultProxy, Loss
from tests.azurite import KEY, Azurite

PATIENT = RetryPolicy(deadline=60.0, attempts=50, base=0.0)


class Plain(Entity, table="Promises", partition_key="{group}", row_key="plain_{id}"):
    group: Mapped[str] = field(default="p")
    id: Mapped[str] = field(default="a")
    count: Mapped[int] = field(default=0)
    owner: Mapped[str | None] = field(default=None)


class Known(Entity, table="Promises", partition_key="{group}", row_key="known_{id}", write_token=True):
    group: Mapped[str] = field(default="p")
    id: Mapped[str] = field(default="a")
    count: Mapped[int] = field(default=0)
    owner: Mapped[str | None] = field(default=None)


@pytest.fixture
async def proxy(azurite: Azurite) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(azurite.table) as proxy:
        yield proxy


def behind(proxy: FaultProxy) -> Database:
    """A client by way of the proxy."""
    return connect(proxy.url, key=KEY, retry=PATIENT)


@pytest.fixture
async def db(proxy: FaultProxy) -> AsyncIterator[Database]:
    async with behind(proxy) as database:
        yield database


@pytest.fixture
async def truth(azurite: Azurite) -> AsyncIterator[Database]:
    """Another client, whose own network is sound."""
    async with connect(azurite.connection_string) as database:
        await database.create_tables(Plain)
        yield database
        await database.drop_table("Promises")


def add(entity: Plain | Known) -> None:
    entity.count += 1


VERBS = ["insert", "save", "merge", "replace", "remove", "modify", "transaction", "guarded"]


@pytest.mark.one_of(7)
@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.ANSWER, Loss.HALF_AN_ANSWER, Loss.SLOW, Loss.LATE])
@pytest.mark.parametrize("verb", VERBS)
async def test_a_model_with_tokens_decides(
    db: Database, truth: Database, proxy: FaultProxy, verb: str, loss: Loss
) -> None:
    """Whatever is lost, the write happens once, the caller hears so, and goes on with the ETag of what was written."""
    known = Known(owner="x")
    if verb != "insert":
        await db.insert(known)
        known.count = 0 if verb in ("modify", "guarded") else 1
    # A read before the write arrives; the write meets the loss.
    proxy.losses += [Loss.NOTHING] * (verb in ("modify", "guarded")) + [loss]
    match verb:
        case "remove":
            known.owner = None
            await db.save(known)
        case "modify":
            assert (await db.modify(Known, add, id="a", group="p")).count == 1
        case "transaction":
            async with db.transaction() as tx:
                tx.save(known)
                tx.insert(Plain())
        case "guarded":
            async with db.transaction() as tx:
                await tx.get(known.key, guard=True)
                tx.upsert(Plain())
        case _:
            await getattr(db, verb)(known)
    assert proxy.losses == []
    assert await proxy.deliver() == (loss is Loss.LATE)

    stored = await truth.get(Known, id="a", group="p")
    assert (stored.count, stored.owner) == (int(verb not in ("insert", "guarded")), None if verb == "remove" else "x")
    assert (await truth.get_or_none(Plain, id="a", group="p") is not None) == (verb in ("transaction", "guarded"))
    if verb not in ("modify", "guarded"):
        assert known.etag == stored.etag
        known.count += 5
        await db.save(known)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.ANSWER, Loss.HALF_AN_ANSWER])
@pytest.mark.parametrize("verb", ["insert", "save", "merge", "replace", "modify", "delete", "transaction"])
async def test_a_plain_model_is_told_what_is_known(
    db: Database, truth: Database, proxy: FaultProxy, verb: str, loss: Loss
) -> None:
    """
    Nothing on a row of it proves whose write it was: if an answer was lost, that is said, with the row. If the request
    was lost, the second one succeeds, so that the first cannot have.
    """
    plain = Plain(owner="x")
    if verb != "insert":
        await db.insert(plain)
    plain.count = 1
    proxy.losses += [Loss.NOTHING] * (verb == "modify") + [loss]
    told: OutcomeUnknown | None = None
    try:
        match verb:
            case "modify":
                await db.modify(Plain, add, id="a", group="p")
            case "transaction":
                async with db.transaction() as tx:
                    tx.save(plain)
            case _:
                await getattr(db, verb)(plain)
    except OutcomeUnknown as error:
        told = error

    assert (told is None) == (loss is Loss.REQUEST)
    now = await truth.get_or_none(Plain, id="a", group="p")
    assert told is None or ("a reply was lost" in str(told) and told.found == now)
    assert (None if now is None else now.count) == (None if verb == "delete" else 1)
