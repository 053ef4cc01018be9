"""
The operations of the service: by which request each is asked for, and what it is called in the log and the metrics.
"""

import io
import json

import attrs
import pytest

from tableorm.protocol.sas import TableSas, sign_sas
from tableorm.protocol.shared_key import decode_key
from tableorm_local.server import DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY
from tests.local.server.client import Api, served

ONE = "/Tab(PartitionKey='p',RowKey='r')"
SERVICE = "restype=service&comp=properties"
PROPERTIES = b"<StorageServiceProperties/>"
BATCH = (
    b"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\nContent-Type: application/http\r\n\r\n"
    b"PUT /Tab(PartitionKey='p',RowKey='r') HTTP/1.1\r\n\r\n{}\r\n--c--\r\n--b--\r\n"
)
MULTIPART = {"Content-Type": "multipart/mixed; boundary=b"}
ANY = {"If-Match": "*"}
MERGE = {"X-HTTP-Method": "MERGE"}


@attrs.frozen
class Asked:
    """A request, and what it is called."""

    operation: str
    status: int
    verb: str
    path: str
    body: object = None
    query: str = attrs.field(default="", kw_only=True)
    headers: dict[str, str] = attrs.field(factory=dict[str, str], kw_only=True)


WRITES = [
    Asked("SetServiceProperties", 202, "PUT", "/", PROPERTIES, query=SERVICE),
    Asked("CreateTable", 201, "POST", "/Tables", {"TableName": "Tab"}),
    Asked("SetTableACL", 204, "PUT", "/Tab", b"", query="comp=acl"),
    Asked("InsertEntity", 201, "POST", "/Tab", {"PartitionKey": "p", "RowKey": "r"}),
    Asked("UpdateEntity", 204, "PUT", ONE, {}, headers=ANY),
    Asked("InsertOrReplaceEntity", 204, "PUT", ONE, {}),
    Asked("MergeEntity", 204, "PATCH", ONE, {}, headers=ANY),
    Asked("MergeEntity", 204, "MERGE", ONE, {}, headers=ANY),
    Asked("MergeEntity", 204, "POST", ONE, {}, headers=ANY | MERGE),
    Asked("InsertOrMergeEntity", 204, "PATCH", ONE, {}),
    Asked("InsertOrMergeEntity", 204, "MERGE", ONE, {}),
    Asked("InsertOrMergeEntity", 204, "POST", ONE, {}, headers=MERGE),
    Asked("EntityGroupTransaction", 202, "POST", "/$batch", BATCH, headers=MULTIPART),
    Asked("DeleteEntity", 204, "DELETE", ONE, headers=ANY),
    Asked("DeleteTable", 204, "DELETE", "/Tables('Tab')"),
]
READS = [
    Asked("GetServiceProperties", 200, "GET", "/", query=SERVICE),
    Asked("QueryTables", 200, "GET", "/Tables"),
    Asked("QueryTables", 200, "HEAD", "/Tables()"),
    Asked("GetTable", 200, "GET", "/Tables('Tab')"),
    Asked("GetTableACL", 200, "GET", "/Tab", query="comp=acl"),
    Asked("QueryEntities", 200, "GET", "/Tab()"),
    Asked("QueryEntities", 200, "HEAD", "/Tab"),
    Asked("QueryEntity", 200, "GET", ONE),
    Asked("QueryEntity", 200, "HEAD", ONE),
]
REFUSED = [
    Asked("Unknown", 400, "GET", "/Tab/more"),
    Asked("Unknown", 400, "GET", "/Tab", query="comp=what"),
    Asked("Unknown", 405, "PATCH", "/Tables", {}),
    Asked("Unknown", 400, "GET", "/"),
    Asked("Unknown", 400, "GET", "/Tab", query="restype=service"),
    Asked("Unknown", 404, "POST", "/None/Tables", {}),
    Asked("QueryEntities", 404, "GET", "/None"),
    Asked("Preflight", 400, "OPTIONS", "/Tab"),
    Asked("GetServiceStats", 400, "GET", "/", query="restype=service&comp=stats"),
]


async def ask(api: Api, asked: Asked) -> int:
    """Send a request. Return the status of its answer, whose type is that of the operation, also if it is rejected."""
    reply = await api(asked.verb, asked.path, asked.body, query=asked.query, headers=asked.headers)
    kind = "application/xml" if "comp=" in asked.query else "application/json;odata=minimalmetadata;streaming=true"
    kind = "multipart/mixed; boundary=" if reply.status == 202 and asked.path == "/$batch" else kind
    assert not reply.body or reply.headers["Content-Type"].startswith(kind), asked
    return reply.status


async def test_what_each_operation_is_called() -> None:
    """The log has the service's own names of the operations, also of those that are rejected."""
    log, order = io.BytesIO(), [*WRITES[:-2], *READS, *REFUSED, *WRITES[-2:]]
    async with served(access_log=log) as api:
        found = [(await ask(api, asked), asked.verb, asked.path) for asked in order]
        secondary = attrs.evolve(api, location=f"{DEVELOPMENT_ACCOUNT}-secondary")
        statistics = await secondary("GET", "/", query="restype=service&comp=stats")
    names = [json.loads(line)["operation"] for line in log.getvalue().splitlines()]

    assert found == [(asked.status, asked.verb, asked.path) for asked in order]
    assert names == [*(asked.operation for asked in order), "GetServiceStats"]
    assert statistics.status == 200
    assert b"<GeoReplication><Status>live</Status><LastSyncTime>" in statistics.body
    assert b" GMT</LastSyncTime></GeoReplication></StorageServiceStats>" in statistics.body


async def test_the_log_has_what_failed_in_a_transaction() -> None:
    """Its answer is 202 in any case; the entry has the code of the operation that failed, or none."""
    log = io.BytesIO()
    empty = b"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c--\r\n--b--\r\n"
    async with served(access_log=log) as api:
        assert (await api("POST", "/$batch", BATCH, headers=MULTIPART)).status == 202
        assert (await api("POST", "/$batch", empty, headers=MULTIPART)).status == 202
    entries = [json.loads(line) for line in log.getvalue().splitlines()]

    assert [(entry["status"], entry.get("code", "")) for entry in entries] == [(202, "TableNotFound"), (202, "")]


@pytest.mark.parametrize("query", ["timeout=x", "$orderby=A"])
async def test_options_are_checked_by_every_operation(query: str) -> None:
    """An option that the service does not have is rejected before anything is done."""
    async with served() as api:
        assert (await ask(api, WRITES[1])) == 201
        for asked in (*WRITES, *READS):
            more = attrs.evolve(asked, query=f"{asked.query}&{query}".removeprefix("&"))
            assert await ask(api, more) == (400 if query == "timeout=x" else 501), asked
        assert len((await api("GET", "/Tab()")).rows) == 0


async def test_the_operation_that_a_token_does_not_allow() -> None:
    """Of a transaction whose sender may insert alone, the operation that is rejected is told by its number and name."""
    token = sign_sas(
        TableSas(sv="2019-02-02", tn="Tab", sp="a", se="2099-01-01T00:00:00Z"),
        DEVELOPMENT_ACCOUNT,
        decode_key(DEVELOPMENT_KEY),
    )
    part = "--c\r\nContent-Type: application/http\r\nContent-ID: {0}\r\n\r\n{1} HTTP/1.1\r\nIf-Match: *\r\n\r\n{2}\r\n"
    parts = [("first", "POST /Tab", '{"PartitionKey":"p","RowKey":"r"}'), ("second", f"DELETE {ONE[:-4]}'s')", "")]
    text = "".join(part.format(*each) for each in parts)
    body = f"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n{text}--c--\r\n--b--\r\n".encode()
    async with served() as api:
        assert await ask(api, WRITES[1]) == 201
        reply = await api("POST", "/$batch", body, query=token, scheme=None, headers=MULTIPART)
        assert (await api("GET", "/Tab()")).rows == []

    answer = reply.body.decode()
    assert reply.status == 202
    assert "HTTP/1.1 403 Forbidden\r\nContent-ID: second\r\n" in answer
    assert '"value":"1:' in answer
