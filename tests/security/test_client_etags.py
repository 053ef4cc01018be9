"""
ETags that have line ends: in a transaction they would be headers, and the body, of an operation.
"""

from pathlib import Path

import pytest

from tableorm import Entity, Mapped, TableOrmError, connect, field
from tableorm_local import serve
from tableorm_local.server import DEVELOPMENT_KEY
from tests.azure.stub import row_answer
from tests.security.world import client_of

FALSE = [
    "W/\"datetime'2020\r\nIf-Match: *\r\nX-Evil: '\"",
    'W/"datetime\'2020\nIf-Match: *\n\n{"role":"admin"}\n\'"',
    "W/\"datetime'2020\x00'\"",
    "W/\"datetime''\"",
    "W/\"datetime'*'\"",
]


class User(Entity, table="Users", partition_key="{tenant}", row_key="user_{id:06d}"):
    tenant: Mapped[str]
    id: Mapped[int]
    nick: Mapped[str] = field(default="")
    role: Mapped[str] = field(default="user")


@pytest.mark.parametrize("verb", ["merge", "delete"])
@pytest.mark.parametrize("tag", FALSE)
async def test_what_is_no_etag_is_refused_in_a_transaction(tmp_path: Path, tag: str, verb: str) -> None:
    """A line end in `if_match` ended the header, and `If-Match: *` came behind it: the condition was gone."""
    async with serve(tmp_path / "data.tables", port=0) as server, connect(server.url, key=DEVELOPMENT_KEY) as db:
        await db.create_tables(User)
        await db.insert(User(tenant="a", id=1))
        user = await db.get(User, tenant="a", id=1)
        user.nick = "x"
        with pytest.raises(TableOrmError):
            async with db.transaction() as tx:
                if verb == "merge":
                    tx.merge(user, only=[User.nick], if_match=tag)
                else:
                    tx.delete(user, if_match=tag)
                tx.insert(User(tenant="a", id=2))
        assert (await db.get(User, tenant="a", id=1)).nick == ""


async def test_an_etag_of_a_server_does_not_end_its_header() -> None:
    """An entity that a server gave, with such an ETag, puts nothing else into a transaction."""
    row = {"PartitionKey": "a", "RowKey": "user_000001", "EntityType": "User", "odata.etag": FALSE[0]}
    async with client_of(row_answer(**row)) as (db, stub):
        with pytest.raises(TableOrmError):
            user = await db.get(User, tenant="a", id=1)
            user.nick = "x"
            async with db.transaction() as tx:
                tx.save(user)
                tx.insert(User(tenant="a", id=2))
    assert not any(b"\nX-Evil" in request.body for request in stub.requests)
