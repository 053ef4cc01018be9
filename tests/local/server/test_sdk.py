"""
The unmodified `azure-data-tables`, sync and async, in both styles of addresses, against the server.
"""
# The client leaves the type of its keyword arguments open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import asyncio
import datetime as dt
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import aiohttp.abc
import pytest
from azure.core import MatchConditions
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.core.pipeline.transport import AioHttpTransport, RequestsTransport
from azure.data.tables import (
    AccountSasPermissions,
    EdmType,
    EntityProperty,
    RequestTooLargeError,
    ResourceTypes,
    TableAccessPolicy,
    TableAnalyticsLogging,
    TableCorsRule,
    TableErrorCode,
    TableMetrics,
    TableRetentionPolicy,
    TableSasPermissions,
    TableServiceClient,
    TableTransactionError,
    UpdateMode,
    generate_account_sas,
    generate_table_sas,
)
from azure.data.tables.aio import TableServiceClient as AioTableServiceClient

from tableorm_local.server import DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Server

CREDENTIAL = AzureNamedKeyCredential(DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY)
HOST = f"{DEVELOPMENT_ACCOUNT}.table.core.localhost"


class _Resolver(aiohttp.abc.AbstractResolver):
    """Every name is this machine: whether names under `localhost` are differs from one to another."""

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[aiohttp.abc.ResolveResult]:
        return [{"hostname": host, "host": "127.0.0.1", "port": port, "family": 2, "proto": 0, "flags": 0}]

    async def close(self) -> None:
        pass


@pytest.fixture(params=["path", "host"])
async def service(server: Server, request: pytest.FixtureRequest) -> AsyncIterator[AioTableServiceClient]:
    """The async client."""
    if request.param == "path":
        client = AioTableServiceClient(server.url, credential=CREDENTIAL, retry_total=0)
    else:
        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(resolver=_Resolver()))
        transport = AioHttpTransport(session=session, session_owner=True)
        url = f"http://{HOST}:{server.port}"
        client = AioTableServiceClient(url, credential=CREDENTIAL, transport=transport, retry_total=0)
    async with client:
        yield client


EVERYTHING: dict[str, Any] = {
    "PartitionKey": "O'Neil é",
    "RowKey": "a b+c,d",
    "Text": "x",
    "Flag": True,
    "Int": 7,
    "Big": EntityProperty(2**40, EdmType.INT64),
    "Real": 3.0,
    "Nan": float("inf"),
    "When": dt.datetime(2024, 2, 29, 12, 34, 56, 789123, tzinfo=dt.UTC),
    "Id": uuid.UUID("c9da6455-213d-42c9-9a79-3e9149a57833"),
    "Data": b"\x00\xff",
}


async def test_entities(service: AioTableServiceClient) -> None:
    """Every type comes back as it went; every way of writing works, under conditions too."""
    table = await service.create_table("People")
    metadata = await table.create_entity(EVERYTHING)
    assert set(metadata) == {"date", "etag", "version"}

    found = await table.get_entity(EVERYTHING["PartitionKey"], EVERYTHING["RowKey"])
    assert dict(found) == EVERYTHING
    assert found.metadata["etag"] == metadata["etag"]
    keys = {name: EVERYTHING[name] for name in ("PartitionKey", "RowKey")}
    merged = await table.update_entity(keys | {"Int": 8}, mode=UpdateMode.MERGE)
    with pytest.raises(ResourceModifiedError) as stale:
        await table.update_entity(
            keys, mode=UpdateMode.REPLACE, etag=metadata["etag"], match_condition=MatchConditions.IfNotModified
        )
    assert code_of(stale.value) == TableErrorCode.UPDATE_CONDITION_NOT_SATISFIED
    await table.update_entity(
        keys | {"New": 1}, mode=UpdateMode.REPLACE, etag=merged["etag"], match_condition=MatchConditions.IfNotModified
    )
    await table.upsert_entity(keys | {"More": 2}, mode=UpdateMode.MERGE)
    assert dict(await table.get_entity(**_lower(keys))) == keys | {"New": 1, "More": 2}
    assert dict(await table.get_entity(**_lower(keys), select=["New", "None"])) == {"New": 1, "None": None}
    await table.upsert_entity(keys, mode=UpdateMode.REPLACE)
    await table.delete_entity(keys)
    await table.delete_entity(keys)  # swallowed by the client
    with pytest.raises(ResourceNotFoundError):
        await table.get_entity(**_lower(keys))


def code_of(error: HttpResponseError) -> object:
    """The service's code, which the client adds to the errors of azure-core."""
    return vars(error).get("error_code")


def _lower(keys: dict[str, Any]) -> dict[str, Any]:
    return {"partition_key": keys["PartitionKey"], "row_key": keys["RowKey"]}


async def test_errors(service: AioTableServiceClient) -> None:
    """The client's own errors are raised: it reads code and text as it expects them."""
    table = await service.create_table("People")
    row = {"PartitionKey": "p", "RowKey": "r"}
    await table.create_entity(row)
    with pytest.raises(ResourceExistsError) as exists:
        await table.create_entity(row)
    assert "EntityAlreadyExists" in str(exists.value)
    with pytest.raises(ResourceExistsError):
        await service.create_table("PEOPLE")
    await service.create_table_if_not_exists("People")
    await service.delete_table("Nothing")  # swallowed by the client
    with pytest.raises(ResourceNotFoundError) as missing:
        await service.get_table_client("Nothing").create_entity(row)
    assert "TableNotFound" in str(missing.value)
    for name in ("1ab", "a-b"):
        with pytest.raises(ValueError, match="Storage table names must be alphanumeric"):
            await service.create_table(name)
    with pytest.raises(ValueError, match="Storage table names must be alphanumeric"):
        await service.create_table("ab")
    with pytest.raises(HttpResponseError) as unsupported:
        await anext(aiter(table.query_entities("startswith(RowKey,'a')")))
    assert unsupported.value.status_code == 501


async def test_wrong_key(server: Server) -> None:
    """A wrong key is the client's authentication error."""
    wrong = AzureNamedKeyCredential(DEVELOPMENT_ACCOUNT, "AAAA")
    async with AioTableServiceClient(server.url, credential=wrong, retry_total=0) as service:
        with pytest.raises(ClientAuthenticationError):
            await service.create_table("People")


async def test_queries_and_paging(service: AioTableServiceClient) -> None:
    """Filters with parameters, projection, pages, and going on from a stored continuation."""
    table = await service.create_table("People")
    for number in range(7):
        await table.create_entity(
            {"PartitionKey": "O'Neil", "RowKey": str(number), "N": number, "Day": EVERYTHING["When"]}
        )

    parameters = {"key": "O'Neil", "least": 2, "day": EVERYTHING["When"]}
    where = "PartitionKey eq @key and N ge @least and Day eq @day"
    found = [row["N"] async for row in table.query_entities(where, parameters=parameters, select=["N"])]
    assert found == [2, 3, 4, 5, 6]
    pages = table.list_entities(results_per_page=3).by_page()
    first = [row["N"] async for row in await anext(pages)]
    rest = table.list_entities(results_per_page=3).by_page(continuation_token=pages.continuation_token)  # type: ignore[attr-defined]
    assert first == [0, 1, 2]
    assert [[row["N"] async for row in page] async for page in rest] == [[3, 4, 5], [6]]
    for name in ("Alpha", "Beta", "Gamma"):
        await service.create_table(name)
    names = [table.name async for table in service.query_tables("TableName ge 'B'", results_per_page=1)]
    assert names == ["Beta", "Gamma", "People"]


# The client gives its transport a large body in one piece.
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_transactions(service: AioTableServiceClient) -> None:
    """All operations in a transaction; the error tells which one failed."""
    table = await service.create_table("People")
    row = {"PartitionKey": "p", "RowKey": "r", "A": 1}
    await table.create_entity(row)
    done = await table.submit_transaction(
        [
            ("create", row | {"RowKey": "new"}),
            ("upsert", row | {"RowKey": "upserted"}),
            ("update", row | {"B": 2}, {"mode": "merge"}),
        ]
    )
    assert [set(part) for part in done] == [{"etag"}] * 3
    assert (await table.get_entity("p", "r"))["B"] == 2
    assert await table.submit_transaction([]) == []
    with pytest.raises(TableTransactionError) as failed:
        await table.submit_transaction([("delete", row), ("create", row | {"RowKey": "new"})])
    assert (failed.value.index, code_of(failed.value)) == (1, TableErrorCode.ENTITY_ALREADY_EXISTS)
    assert (await table.get_entity("p", "r"))["B"] == 2
    with pytest.raises(TableTransactionError) as twice:
        await table.submit_transaction([("upsert", row), ("upsert", row)])
    assert code_of(twice.value) == TableErrorCode.INVALID_DUPLICATE_ROW
    many = [("upsert", row | {"RowKey": str(n)}) for n in range(101)]
    with pytest.raises(TableTransactionError) as count:
        await table.submit_transaction(many)
    assert code_of(count.value) == TableErrorCode.INVALID_INPUT
    big = [("upsert", row | {"RowKey": str(n)} | {f"A{i}": "x" * 10_000 for i in range(9)}) for n in range(50)]
    with pytest.raises(RequestTooLargeError):
        await table.submit_transaction(big)


async def test_a_table_with_the_name_of_the_account(service: AioTableServiceClient) -> None:
    """In a transaction too, where URLs of parts name the account in one style and not in the other."""
    table = await service.create_table(DEVELOPMENT_ACCOUNT)
    row = {"PartitionKey": "p", "RowKey": "r"}
    assert len(await table.submit_transaction([("create", row), ("upsert", row | {"RowKey": "s"})])) == 2
    await table.submit_transaction([("delete", row)])
    assert [found["RowKey"] async for found in table.list_entities()] == ["s"]


async def test_properties_and_policies(service: AioTableServiceClient) -> None:
    """What the client sets is what it gets, with its own models."""
    rules = [
        TableCorsRule(["https://a.example"], ["GET"], max_age_in_seconds=5, allowed_headers=[], exposed_headers=["x"])
    ]
    await service.set_service_properties(
        analytics_logging=TableAnalyticsLogging(read=True, retention_policy=TableRetentionPolicy(enabled=True, days=3)),
        hour_metrics=TableMetrics(enabled=True, include_apis=True),
        cors=rules,
    )
    found: dict[str, Any] = await service.get_service_properties()
    assert (found["analytics_logging"].read, found["analytics_logging"].retention_policy.days) == (True, 3)
    assert found["hour_metrics"].include_apis is True
    assert [(rule.allowed_origins, rule.max_age_in_seconds) for rule in found["cors"]] == [(["https://a.example"], 5)]
    with pytest.raises(HttpResponseError):
        await service.set_service_properties(cors=rules * 6)
    stats: dict[str, Any] = await service.get_service_stats()
    assert stats["geo_replication"]["status"] == "live"

    table = await service.create_table("People")
    assert await table.get_table_access_policy() == {}
    expiry = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    await table.set_table_access_policy({"all": TableAccessPolicy(permission="raud", expiry=expiry), "bare": None})
    policies = await table.get_table_access_policy()
    assert policies["bare"] is None
    assert policies["all"] is not None
    assert (policies["all"].permission, policies["all"].expiry) == ("raud", expiry)
    with pytest.raises(ValueError, match="5"):
        await table.set_table_access_policy({str(n): None for n in range(6)})


async def test_tokens_that_the_client_makes(server: Server, service: AioTableServiceClient) -> None:
    """Tokens of tables and accounts made by the client are good for what they say."""
    table = await service.create_table("People")
    await table.create_entity({"PartitionKey": "p", "RowKey": "r"})
    expiry = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=5)
    token = generate_table_sas(
        CREDENTIAL, "People", permission=TableSasPermissions(read=True), expiry=expiry,
        start_pk="p", start_rk="a", end_pk="p", end_rk="s",
    )  # fmt: skip
    async with AioTableServiceClient(server.url, credential=AzureSasCredential(token), retry_total=0) as scoped:
        mine = scoped.get_table_client("People")
        assert (await mine.get_entity("p", "r"))["RowKey"] == "r"
        with pytest.raises(HttpResponseError) as refused:
            await mine.create_entity({"PartitionKey": "p", "RowKey": "q"})
        assert refused.value.status_code == 403
    token = generate_account_sas(
        CREDENTIAL, ResourceTypes(service=True, object=True, container=True),
        AccountSasPermissions(read=True, list=True, add=True), expiry,
    )  # fmt: skip
    async with AioTableServiceClient(server.url, credential=AzureSasCredential(token), retry_total=0) as scoped:
        assert [item.name async for item in scoped.list_tables()] == ["People"]
        transaction = [("create", {"PartitionKey": "p", "RowKey": "new"})]
        assert len(await scoped.get_table_client("People").submit_transaction(transaction)) == 1


@pytest.mark.parametrize("style", ["path", "host"])
async def test_the_sync_client(server: Server, style: str) -> None:
    """The sync client works too, from another thread, in both styles."""

    def use() -> None:
        if style == "path":
            service = TableServiceClient(server.url, credential=CREDENTIAL, retry_total=0)
        else:
            policy: Callable[[Any], None] = _to_this_machine(server.port)
            service = TableServiceClient(
                f"http://{HOST}:{server.port}", credential=CREDENTIAL, retry_total=0, transport=_Local(policy)
            )
        with service:
            table = service.create_table("People")
            table.create_entity(EVERYTHING)
            assert [dict(row) for row in table.list_entities()] == [EVERYTHING]
            assert dict(table.get_entity(EVERYTHING["PartitionKey"], EVERYTHING["RowKey"])) == EVERYTHING
            rows = [("upsert", {"PartitionKey": "p", "RowKey": f"{n}", "N": n}) for n in range(100)]
            assert len(table.submit_transaction(rows)) == 100
            assert [row["N"] for row in table.query_entities("PartitionKey eq 'p' and N lt 3")] == [0, 1, 2]
            with pytest.raises(ResourceExistsError):
                table.create_entity(EVERYTHING)
            table.delete_entity(EVERYTHING)
            service.delete_table("People")
            assert list(service.list_tables()) == []

    await asyncio.to_thread(use)


def _to_this_machine(port: int) -> Callable[[Any], None]:
    def turn(request: Any) -> None:
        request.headers["Host"] = f"{HOST}:{port}"
        request.url = request.url.replace(HOST, "127.0.0.1", 1)

    return turn


class _Local(RequestsTransport):  # type: ignore[misc]
    """Sends to this machine what is for a name under `localhost`, with that name as Host."""

    def __init__(self, turn: Callable[[Any], None]) -> None:
        super().__init__()
        self._turn = turn

    def send(self, request: Any, **kwargs: Any) -> Any:
        self._turn(request)
        return super().send(request, **kwargs)
