"""
Database files made by somebody else, on a server: what they hold becomes a header of an answer only if it can be one.
"""

import json
import logging
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.security.test_files import craft, path
from tests.security.world import serve_file

__all__ = ["path"]

_LENGTH = 46
_ONE = "/Things(PartitionKey='p',RowKey='a')"


def check_log(caplog: pytest.LogCaptureFixture) -> None:
    """Each error that the server has logged is of the file, and none is its own, with a traceback."""
    errors = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert errors
    assert all("damaged" in each.getMessage() and each.exc_info is None for each in errors)


@pytest.mark.parametrize(
    "etag",
    [
        "W/\"datetime'2020\r\nX-Evil: 1\r\n\r\n".ljust(_LENGTH, "x"),
        "W/\"datetime'2020\0".ljust(_LENGTH, "0"),
        "W/\"datetime'2020\u20ac".ljust(_LENGTH, "0"),
        'W/"a", W/"b", '.ljust(_LENGTH, "x"),
        'W/"' + "x" * 2_000_000 + '"',
    ],
    ids=["line ends", "a zero", "not ASCII", "a list", "long"],
)
async def test_what_is_no_etag_is_no_header(path: Path, etag: str, caplog: pytest.LogCaptureFixture) -> None:
    """A read of one entity tells of the damage, also in a transaction, whose parts get no further lines by it."""
    value = json.dumps(etag).replace("'", "''")
    body = f"""CAST(json_set(CAST(body AS TEXT), '$."odata.etag"', json('{value}')) AS BLOB)"""
    craft(path, f"UPDATE t1 SET body = {body}")
    async with serve_file(path) as (_, api):
        part = f"GET {api.root}/devstoreaccount1{_ONE} HTTP/1.1"
        query = f"--batch_a\r\nContent-Type: application/http\r\n\r\n{part}\r\n\r\n\r\n--batch_a--".encode()
        for reply in (
            await api("GET", _ONE),
            await api("POST", "/$batch", query, Content_Type="multipart/mixed; boundary=batch_a"),
        ):
            assert (reply.status, reply.code) == (500, "InternalError")
            assert "damaged" in reply.said
            assert len(reply.said) < 500
    check_log(caplog)


@pytest.mark.parametrize("name", ["x\r\nX-Evil: 1", "\0", "\u20ac", "", "x" * 257])
@pytest.mark.parametrize("member", ["exposed", "headers", "origins", "methods"])
async def test_names_in_rules_of_cors_that_are_none(
    path: Path, member: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Rules that the server would not store are damage to each request that asks for them, and others are answered."""
    rule: dict[str, Any] = {"origins": ["*"], "methods": ["GET"], "headers": ["*"], "exposed": [], "max_age": 5}
    rule[member] = [*rule[member], name]
    connection: Any = apsw.Connection(str(path))
    value = json.dumps({"sections": {}, "cors": [rule]}).encode()
    connection.execute("INSERT INTO settings VALUES (0, 'service', ?)", (value,))
    connection.close()
    async with serve_file(path) as (_, api):
        asked = {"Origin": "https://a.example", "Access-Control-Request-Method": "GET"}
        for reply in (
            await api("GET", "/Tables", Origin="https://a.example"),
            await api("OPTIONS", "/Tables", headers=asked),
            await api("GET", "/", query="restype=service&comp=properties"),
        ):
            assert (reply.status, reply.code) == (500, "InternalError")
            assert b"damaged" in reply.body
        assert (await api("GET", "/Tables")).status == 200
    check_log(caplog)
