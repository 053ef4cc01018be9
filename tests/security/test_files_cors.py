"""
Database files made by somebody else, on a server: the rules of CORS in them let pages of their maker in.
"""

import base64
import logging
from pathlib import Path
from typing import Any

import aiohttp
import apsw
import pytest

from tableorm_local.server import Account, serve
from tests.local.server.client import Api, root_of
from tests.security.test_hosts import RULES

KEY = base64.b64encode(bytes(64)).decode()


@pytest.fixture
async def path(tmp_path: Path, session: aiohttp.ClientSession) -> Path:
    """A file with a rule of CORS for one origin."""
    async with serve(tmp_path / "data.tables", port=0) as server:
        api = Api(session, root_of(server))
        assert (await api("PUT", "/", RULES.encode(), query="restype=service&comp=properties")).status == 202
    return tmp_path / "data.tables"


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


async def test_rules_of_cors_in_a_given_file(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A server with the published key, with which any page can sign, warns of pages that the file lets in."""
    async with serve(path, port=0):
        (told,) = warnings_of(caplog)

    assert "'https://app.example'" in told
    assert "CORS" in told
    assert "devstoreaccount1" in told


async def test_no_warning_without_need(path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """There is none for an account whose key no page knows, nor for a file without rules."""
    async with (
        serve(path, port=0, accounts=[Account(name="staff", keys=[KEY])]),
        serve(tmp_path / "other.tables", port=0),
    ):
        assert warnings_of(caplog) == []


@pytest.mark.parametrize("value", ["[]", '{"sections":{},"cors":5}', "\ud800"])
async def test_properties_of_another_form(path: Path, session: aiohttp.ClientSession, value: str) -> None:
    """Properties that the server has not written are reported as damage, and do not keep it from starting."""
    connection: Any = apsw.Connection(str(path))
    stored = value.encode("utf-8", "surrogatepass")
    connection.execute("UPDATE settings SET value = ? WHERE name = 'service'", (stored,))
    connection.close()
    async with serve(path, port=0) as server:
        api = Api(session, root_of(server))
        reply = await api("GET", "/", query="restype=service&comp=properties")
        assert (reply.status, reply.code) == (500, "InternalError")
        assert b"damaged" in reply.body
        assert (await api("GET", "/Tables")).status == 200
