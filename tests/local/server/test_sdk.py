"""
The unmodified `azure-data-tables`, sync and async, in both styles of addresses, against the server.
"""
# The client leaves the type of its keyword arguments open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import datetime as dt
import uuid
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import aiohttp.abc
import pytest
from azure.core import MatchConditions
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import HttpResponseError, ResourceModifiedError, ResourceNotFoundError
from azure.core.pipeline.transport import AioHttpTransport
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
    TableTransactionError,
    UpdateMode,
    generate_account_sas,
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
    """A token of the account made by the client is good for what it says."""
    table = await service.create_table("People")
    await table.create_entity({"PartitionKey": "p", "RowKey": "r"})
    expiry = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=5)
    token = generate_account_sas(
        CREDENTIAL, ResourceTypes(service=True, object=True, container=True),
        AccountSasPermissions(read=True, list=True, add=True), expiry,
    )  # fmt: skip
    async with AioTableServiceClient(server.url, credential=AzureSasCredential(token), retry_total=0) as scoped:
        assert [item.name async for item in scoped.list_tables()] == ["People"]
        transaction = [("create", {"PartitionKey": "p", "RowKey": "new"})]
        assert len(await scoped.get_table_client("People").submit_transaction(transaction)) == 1
