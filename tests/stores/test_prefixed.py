"""
A prefix before every name: the stores keep their contract, and a program never sees it.
"""

import datetime as dt
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tableorm import (
    AccessDenied,
    Blob,
    Count,
    Database,
    Entity,
    EntityExists,
    Index,
    LimitExceeded,
    Mapped,
    ModelError,
    NotSupported,
    TableNotFound,
    TableOrmError,
    connect,
    field,
)
from tableorm.connection.connection import connection_of
from tableorm.protocol.codes import Code
from tableorm.stores import BlobStore, PrefixedBackend, QueueStore, TableStore
from tableorm.testing import BlobStoreContract, QueueStoreContract, TableLifecycleContract
from tableorm.testing.contract.base import refusal
from tableorm_local import LocalBackend, serve
from tableorm_local.server import DEVELOPMENT_KEY
from tests.database.test_stores import TablesAlone
from tests.stores.passing_time import PassingTime

HOUR = dt.timedelta(hours=1)


class Team(Entity, table="Staff", partition_key="{team}", row_key="team"):
    team: Mapped[str]
    size: Mapped[int] = field(default=0, maintained=True)


class Person(Entity, table="Staff", partition_key="{team}", row_key="person_{id:03d}"):
    team: Mapped[str]
    id: Mapped[int]
    email: Mapped[str | None] = field(default=None)

    by_email = Index(row_key="email_{email}", unique=True)
    counted = Count(lambda: Team.size, team="{team}")


class Picture(Entity, table="Pictures", partition_key="p", row_key="{id}"):
    id: Mapped[int]
    content: Mapped[Blob]


@pytest.fixture
async def backend() -> AsyncIterator[PrefixedBackend]:
    async with LocalBackend(None) as local:
        yield PrefixedBackend(local, "T1")


class TestTables(TableLifecycleContract):
    @pytest.fixture
    def store(self, backend: PrefixedBackend) -> TableStore:
        return backend.tables

    async def test_tables_are_listed_in_order_without_case(self, store: TableStore) -> None:
        """The prefix takes two of the 63 characters that a name may have."""
        for name in ("B" * 61, "aaa"):
            await store.create_table(name)

        assert await store.list_tables() == ["aaa", "B" * 61]
        assert (await refusal(store.create_table("a" * 62))).code == Code.KEY_OUT_OF_RANGE


@pytest.mark.one_of(3, group="with a prefix")
class TestQueues(PassingTime, QueueStoreContract):
    @pytest.fixture
    def store(self, backend: PrefixedBackend) -> QueueStore:
        assert backend.queues is not None
        return backend.queues

    @pytest.mark.one_of(1)
    async def test_lengths_of_names(self, store: QueueStore) -> None:
        """The prefix takes two of the 63 characters that a name may have."""
        await store.create_queue("q" * 61)

        assert await store.list_queues("q") == ["q" * 61]
        assert (await refusal(store.create_queue("q" * 62))).code == Code.KEY_OUT_OF_RANGE


@pytest.mark.one_of(3, group="with a prefix")
class TestBlobs(BlobStoreContract):
    @pytest.fixture
    def store(self, backend: PrefixedBackend) -> BlobStore:
        assert backend.blobs is not None
        return backend.blobs

    @pytest.mark.one_of(1)
    async def test_lengths_of_container_names(self, store: BlobStore) -> None:
        """The prefix takes two of the 63 characters that a name may have."""
        await store.create_container("c" * 61)

        assert await store.list_containers("c") == ["c" * 61]
        assert (await refusal(store.create_container("c" * 62))).code == Code.KEY_OUT_OF_RANGE


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"local:{tmp_path / 'staff.tables'}"


@pytest.fixture
async def db(url: str) -> AsyncIterator[Database]:
    async with connect(url, prefix="t1") as database:
        await database.create_tables(Team, Person)
        yield database


async def test_environments_share_an_account(db: Database, url: str) -> None:
    """Each environment has tables, queues and containers of its own under the same names."""
    await db.insert(Team(team="red"))
    await db.queues.create_queue("mail")
    await db.blobs.create_container("files")
    async with connect(url, prefix="t2") as other, connect(url) as whole:
        assert (await other.tables(), await other.queues.list_queues()) == ([], [])
        await other.create_tables(Team)
        await other.queues.create_queue(queue="mail")
        assert await other.get_or_none(Team, team="red") is None

        assert (await other.tables(), await db.tables()) == (["Staff"], ["Staff", "TableormUpkeep"])
        assert await db.queues.list_queues("m") == ["mail"] and await db.queues.list_queues("x") == []
        assert await db.blobs.list_containers() == ["files"] and await other.blobs.list_containers() == []
        assert await whole.tables() == ["t1Staff", "t1TableormUpkeep", "t2Staff"]
        assert await whole.queues.list_queues() == ["t1mail", "t2mail"]
        assert await whole.blobs.list_containers() == ["t1files"]
        await other.drop_table("Staff")
        assert await whole.tables() == ["t1Staff", "t1TableormUpkeep"]


async def test_a_longer_prefix_is_another_one(url: str) -> None:
    """What follows the prefix must be a name by itself, so "dev" does not see the tables of "dev2"; case is ignored."""
    async with connect(url, prefix="dev2") as longer:
        await longer.create_tables(Team)
    async with connect(url, prefix="DEV2") as same, connect(url, prefix="dev") as shorter:
        assert (await same.tables(), await shorter.tables()) == (["Staff"], [])


async def test_errors_name_the_table_of_the_model(db: Database) -> None:
    """A message has the name that the program knows."""
    await db.insert(Team(team="red"))
    with pytest.raises(EntityExists, match="table Staff has"):
        await db.insert(Team(team="red"))
    await db.drop_table("Staff")
    with pytest.raises(TableNotFound, match="no table 'Staff'"):
        await db.insert(Team(team="red"))


async def test_names_that_get_too_long(url: str) -> None:
    """A name that is too long together with the prefix is rejected before anything is sent, and both are named."""

    class Long(Entity, table="N" * 60, partition_key="{id}", row_key="x"):
        id: Mapped[str]

    async with connect(url, prefix="test") as db:
        with pytest.raises(LimitExceeded, match=r"'N{60}' has 64 characters together with the prefix 'test'; 63 are"):
            await db.create_tables(Long)
        with pytest.raises(LimitExceeded, match="for a queue") as caught:
            await db.queues.create_queue("q" * 60)
        assert caught.value.code == Code.KEY_OUT_OF_RANGE
        with pytest.raises(TableOrmError, match="'no_name'; a container name is"):
            await db.blobs.create_container("no_name")


@pytest.mark.parametrize("prefix", ["1a", "a-b", "ü", "a" * 61, "a\n"])
def test_prefixes_that_cannot_be(prefix: str) -> None:
    """A prefix with which no name can begin is rejected by `connect`."""
    with pytest.raises(ModelError, match="1 to 60 letters and digits, of which the first is a letter"):
        connect("local::memory:", prefix=prefix)


async def test_explanations_show_what_is_sent(db: Database) -> None:
    """Queries and writes are explained with the names that the store gets."""
    query = db.select(Person).where(Person.team == "red")
    assert [request.path for request in query.explain().requests] == ["t1Staff()"]
    point = db.select(Team).where(Team.team == "red")
    assert point.explain().requests[0].path.startswith("t1Staff(PartitionKey='red',")
    steps = db.explain_write("insert", Team(team="red")).steps
    assert [step.path for step in steps] == ["/t1Staff"]
    steps = db.explain_write("delete", Team(team="red").key, if_match="*").steps
    assert all(step.path.startswith("/t1Staff(") for step in steps)


async def test_an_explanation_of_several_stores() -> None:
    """Names of queues and containers have the prefix in small letters, as the service wants them."""
    async with connect("local::memory:", prefix="Dev") as db:
        said = db.explain_write("insert", Picture(id=1, content=Blob(b"x")))

    places = [step.path.split("/")[1] for step in (*said.before, *said.steps, *said.after)]
    assert places[:3] == ["devtableorm-outbox", "devtableorm-blobs", "DevPictures"]


@pytest.mark.parametrize("place", ["local", "server"])
async def test_grants_are_for_the_real_table(tmp_path: Path, place: str) -> None:
    """A token is of the table in the account, opens it with the prefix or by its whole name, and no other."""
    path = tmp_path / "staff.tables"
    async with serve(path, port=0) as server:
        owner: dict[str, Any] = {"key": DEVELOPMENT_KEY} if place == "server" else {}
        url = server.url if place == "server" else f"local:{path}"
        async with connect(url, prefix="t1", **owner) as db:
            await db.create_tables(Team)
            await db.insert(Team(team="red"))
            token = await db.grant(Team, "r", HOUR)
            assert token.explanation.table == "t1Staff"
            await db.policies(Team).set("readers", "r", expires_at=dt.datetime.now(dt.UTC) + HOUR)
            by_policy = await db.grant(Team, policy="readers")
        async with connect(url, sas=token, prefix="t1") as mine:
            await mine.ping()
            assert connection_of(mine).guarded
            assert (await mine.get(Team, team="red")).team == "red"
            with pytest.raises(AccessDenied):
                await mine.insert(Team(team="blue"))
        async with connect(url, sas=by_policy, prefix="t1") as mine:
            assert (await mine.get(Team, team="red")).team == "red"
        async with connect(url, sas=token, prefix="t2") as other:
            with pytest.raises(AccessDenied, match="'t1Staff'"):
                await other.get(Team, team="red")


async def test_queues_and_blobs_elsewhere(tmp_path: Path) -> None:
    """Queues and blobs of other URLs have the prefix too."""
    urls = {name: f"local:{tmp_path / name}" for name in ("tables", "queues", "blobs")}
    async with connect(urls["tables"], queues=urls["queues"], blobs=urls["blobs"], prefix="t1") as db:
        await db.queues.create_queue("mail")
        await db.blobs.create_container("files")
    async with connect(urls["queues"]) as queues, connect(urls["blobs"]) as blobs:
        assert await queues.queues.list_queues() == ["t1mail"]
        assert await blobs.blobs.list_containers() == ["t1files"]


async def test_a_backend_without_queues_or_access() -> None:
    """What a backend does not have, it does not have with a prefix either."""
    backend = PrefixedBackend(TablesAlone(), "t1")

    assert (backend.queues, backend.blobs, hasattr(backend, "access")) == (None, None, False)


async def test_a_database_without_a_prefix_is_not_wrapped() -> None:
    """Without a prefix nothing stands between the mapper and the backend."""
    async with connect("local::memory:") as db:
        assert isinstance(connection_of(db).backend, LocalBackend) and db.prefix == ""
        with pytest.raises(NotSupported):
            await connect("local::memory:", prefix="t1").ping()
