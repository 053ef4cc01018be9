"""
Database files made by somebody else: settings that are larger than any that this version writes.

They are read whole on the event loop of a server, before anybody is authenticated: rules of CORS for each request with
an `Origin`, the key of the file for each that has a `sig`.
"""

import json
from pathlib import Path
from typing import Any

import apsw
import pytest

from tableorm.protocol.codes import Fault
from tableorm_local.engine import Engine

RULE = {"origins": ["https://a.example"], "methods": ["GET"], "headers": [], "exposed": [], "max_age": 1}
RULES = json.dumps({"sections": {}, "cors": [RULE] * 500}).encode()


@pytest.mark.parametrize(("name", "value"), [("service", RULES), ("signing-key", bytes(20_000))])
async def test_a_setting_that_is_too_large_is_damage(tmp_path: Path, name: str, value: bytes) -> None:
    """A setting of more than a server writes is reported as damage, and not read: it would hold up each request."""
    path = tmp_path / "data.tables"
    engine = Engine(path)
    await engine.open()
    await engine.close()
    connection: Any = apsw.Connection(str(path))
    connection.execute("INSERT INTO settings VALUES (0, ?, ?)", (name, value))
    connection.close()
    await engine.open()
    try:
        with pytest.raises(Fault, match="damaged"):
            await engine.settings.get(name)
    finally:
        await engine.close()
