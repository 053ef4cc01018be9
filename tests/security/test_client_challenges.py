"""
What a server says when it refuses a token of Microsoft Entra ID: it does not choose what the next token is good for.
"""

from pathlib import Path

import pytest

from tableorm import RetryPolicy, TableOrmError, connect
from tests.azure.stub import Answer, Token, secure_stub

CHALLENGE = (
    "Bearer authorization_uri=https://login.example.org/tenant/oauth2/authorize "
    "resource_id=https://management.azure.com"
)


@pytest.mark.parametrize("service", ["tables", "queues", "blobs"])
async def test_a_server_gets_no_token_for_another_resource(certificate: Path, service: str) -> None:
    """A server that asks for a token of Azure's management gets none: it could do there whatever the user may."""
    credential = Token()
    async with secure_stub(certificate) as stub:
        stub.answers = [Answer(401, {"WWW-Authenticate": CHALLENGE})]
        async with connect(
            stub.url,
            credential=credential,
            transport=stub.transport,
            retry=RetryPolicy(attempts=1),
            queues=stub.url,
            blobs=stub.url,
        ) as db:
            with pytest.raises(TableOrmError):
                if service == "tables":
                    await db.tables()
                elif service == "queues":
                    await db.queues.put("queue", b"x")
                else:
                    await db.blobs.delete("container", "name")
    assert set(credential.scopes) == {"https://storage.azure.com/.default"}
