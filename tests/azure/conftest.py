"""
What the Azure backend is tested on: a loopback server that answers as a test says, Azurite, and our own server; a
certificate, to serve https.
"""

import datetime as dt
import ipaddress
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tableorm.stores import RetryPolicy, TableStore
from tableorm_azure import AzureBackend
from tableorm_local import Account, serve
from tests.azure.stub import Stub
from tests.azurite import KEY as AZURITE_KEY
from tests.azurite import Azurite


@pytest.fixture
async def stub() -> AsyncIterator[Stub]:
    """Listens; its `answers` are given in order, the last one for ever."""
    async with Stub() as server:
        yield server


@pytest.fixture
async def emulator(azurite: Azurite) -> AsyncIterator[TableStore]:
    """The tables of Azurite, by a client that repeats nothing."""
    options = {"key": AZURITE_KEY, "retry": RetryPolicy(attempts=1)}
    async with AzureBackend.from_url(azurite.table, timeout=30.0, options=options) as backend:
        yield backend.tables


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[TableStore]:
    """The tables of a file on our own server."""
    accounts = [Account(name="contoso", keys=(AZURITE_KEY,))]
    async with (
        serve(tmp_path / "served.tables", port=0, accounts=accounts) as server,
        AzureBackend.from_url(server.url, timeout=30.0, options={"key": AZURITE_KEY}) as backend,
    ):
        yield backend.tables


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of 127.0.0.1 and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path.write_bytes(
        made.public_bytes(serialization.Encoding.PEM) + key.private_bytes(serialization.Encoding.PEM, *form)
    )
    return path
