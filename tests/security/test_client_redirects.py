"""
A server cannot send a client elsewhere: its key would sign whatever path the server names, and a token would go along.
"""

from typing import Any

import pytest

from tableorm import TableOrmError
from tests.azure.stub import KEY, Answer, Stub
from tests.security.world import client_of

SAS = "sv=2022-11-02&ss=bqt&srt=sco&sp=rwdlacup&se=2099-01-01T00%3A00%3A00Z&sig=ABC%3D"


@pytest.mark.parametrize("credential", [{"key": KEY}, {"sas": SAS}], ids=["key", "token"])
@pytest.mark.parametrize("status", [302, 307])
@pytest.mark.parametrize("what", ["tables", "blobs", "queues"])
async def test_no_request_follows_a_redirection(what: str, status: int, credential: dict[str, Any]) -> None:
    """Lists that a server answers with another address are errors, and nothing is sent to that address."""
    async with Stub() as other:
        other.handler = lambda _: Answer(404)
        answer = Answer(status, {"Location": f"{other.url}/Secrets()?comp=acl"})
        async with client_of(answer, **{"key": None, **credential}) as (db, _):
            with pytest.raises(TableOrmError, match="another address"):
                if what == "tables":
                    await db.tables()
                elif what == "blobs":
                    await db.blobs.delete("container", "name")
                else:
                    await db.queues.list_queues()
    assert other.requests == []
