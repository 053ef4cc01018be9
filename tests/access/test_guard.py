"""
The guard of a store: around any store, with any source of tokens.
"""

import datetime as dt
from typing import Any

import pytest
from azure.core.credentials import AzureSasCredential

from tableorm import AccessDenied, Database, NotSupported, connect
from tableorm.protocol.rights import Rights
from tableorm.protocol.sas import TableSas, sign_sas
from tableorm.protocol.shared_key import decode_key
from tableorm.stores import Bounds, GuardedStore, RowQuery, TableStore, Tokens, rights_of
from tableorm.testing.contract.memory import MemoryStore
from tests.access.conftest import Employee
from tests.azure.conftest import stub
from tests.azure.stub import KEY, NO_CONTENT, Stub, row_answer
from tests.database.between import Between

__all__ = ["stub"]


def token(**changes: Any) -> str:
    given: dict[str, Any] = {"sv": "2019-02-02", "tn": "Directory", "se": "2099-01-01", "sp": "raud"} | changes
    return sign_sas(TableSas(**given), "acc", decode_key(KEY))


async def read_only(text: str) -> Rights | None:
    return rights_of(text)


class Others(Between):
    """A backend of somebody else, which knows nothing of tokens and guards its store."""

    def __init__(self, sas: str) -> None:
        super().__init__()
        self.store = MemoryStore()
        self._guarded = GuardedStore(self.store, Tokens(sas), read_only)

    @property
    def tables(self) -> TableStore:
        return self._guarded


async def test_it_goes_around_any_store() -> None:
    """The store of another backend, which repeats nothing itself, is guarded alike; it has no account to grant with."""
    backend = Others(token(sp="ra", spk="Sales", epk="Sales"))
    await backend.store.create_table("Directory")
    async with Database(backend) as db:
        await db.insert(Employee(id=1))
        assert [each.id for each in await db.select(Employee).allow_scan().all()] == [1]
        with pytest.raises(AccessDenied, match="is not in the range"):
            await db.insert(Employee(department="HR", id=1))
        await db.ping()
        for call in (db.grant(Employee, "r", dt.timedelta(hours=1)), db.policies(Employee).list()):
            with pytest.raises(NotSupported, match=r"the backend Others has neither shared access signatures nor"):
                await call


async def test_nothing_is_sent_that_is_refused(stub: Stub) -> None:
    """Our client on Azure: the token is read, and what it does not allow makes no request."""
    stub.answers = [NO_CONTENT]
    sas = token(sp="r", spk="Sales", epk="Sales")
    for db in (
        connect(stub.url, sas=sas),
        connect(stub.url, sas=f"?{sas}"),
        connect(f"{stub.url}?{sas}"),
        connect(f"TableEndpoint={stub.url};SharedAccessSignature={sas}"),
        connect(stub.url, credential=AzureSasCredential(sas)),
    ):
        async with db:
            for call in (
                db.insert(Employee(id=1)),
                db.get(Employee, department="HR", id=1),
                db.create_tables(Employee),
                db.drop_table("Directory"),
                db.tables(),
            ):
                with pytest.raises(AccessDenied):
                    await call

    assert stub.requests == []


async def test_a_credential_that_is_updated(stub: Stub) -> None:
    """What `AzureSasCredential.update` brings counts from the next request on, here and on the wire."""
    stub.answers = [row_answer(PartitionKey="Sales", RowKey="empid_000001", EntityType="Employee", name="x")]
    credential = AzureSasCredential(token(spk="HR", epk="HR"))
    async with connect(stub.url, credential=credential) as db:
        with pytest.raises(AccessDenied, match="is not in the range"):
            await db.get(Employee, department="Sales", id=1)
        credential.update(token(spk="Sales", epk="Sales"))
        await db.get(Employee, department="Sales", id=1)

    assert "spk=Sales" in stub.requests[0].target and len(stub.requests) == 1


async def test_what_cannot_be_read_is_left_to_the_service(stub: Stub) -> None:
    """A token of a form that we do not know is sent as it is."""
    stub.answers = [row_answer(PartitionKey="Sales", RowKey="empid_000001", EntityType="Employee", name="x")]
    async with connect(stub.url, sas="sv=2099-01-01&new=1&sig=abc") as db:
        await db.get(Employee, department="Sales", id=1)

    assert "new=1" in stub.requests[0].target


async def test_a_function_opens_tables_only(stub: Stub) -> None:
    """Where queues and blobs are to be opened with it too, it is rejected; beside it there are none."""

    async def supplier() -> str:
        return token()

    with pytest.raises(NotSupported, match="a function that supplies tokens opens tables only"):
        connect(stub.url, sas=supplier, queues=stub.url)
    async with connect("https://acc.table.core.windows.net", sas=supplier) as db:
        with pytest.raises(NotSupported, match="has no queues"):
            _ = db.queues


class Counting(MemoryStore):
    """Tells what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[RowQuery] = []

    async def query(self, table: str, query: RowQuery, limit: int = 1000, continuation: str | None = None) -> Any:
        self.asked.append(query)
        return await super().query(table, query, limit, continuation)


async def test_ping_with_a_token() -> None:
    """It asks for a row where the token allows that; to be rejected for want of `r` is an answer too."""
    store = Counting()
    await store.create_table("Directory")
    for sas in (token(sp="r", spk="Sales", epk="Sales"), token(sp="a"), token(sp=None, si="x", se=None)):
        await GuardedStore(store, Tokens(sas), read_only).ping()

    assert [query.partition for query in store.asked] == [Bounds.only("Sales"), Bounds.only("")]
