"""
What a console, a debugger and a failed assertion show of objects: one line that says what each is, and no secret.
"""

import datetime as dt
import re
from typing import Any

import pytest

from tableorm import (
    Count,
    Database,
    Embedded,
    Encryption,
    Entity,
    Feed,
    Index,
    IndexList,
    KeyRing,
    Mapped,
    Sum,
    Workflow,
    workflow,
)
from tableorm.logs import LogStream
from tableorm_local import serve
from tests.databases import memory_database


class Parcel(Entity, table="ShownParcels", partition_key="{town}", row_key="parcel_{id}"):
    town: Mapped[str]
    id: Mapped[str]
    by_id = Index(row_key="id_{id}")


@workflow("ship", version=1)
class Ship(Workflow[Parcel]):
    async def send(self, db: Database) -> None:
        """Do nothing."""


class Wrapper:
    """A wrapper of keys whose own repr shows its key."""

    async def wrap(self, key: bytes) -> tuple[str, bytes]:
        return "k", key

    async def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
        return wrapped

    def __repr__(self) -> str:
        return "Wrapper(c2VjcmV0)"


def holder() -> Any:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("derivation", "shown"),
    [
        (Index(row_key="id_{id}"), "<Index without a name>"),
        (IndexList(row_key="town_{town}"), "<IndexList without a name>"),
        (Count(holder, town="{town}"), "<Count without a name>"),
        (Sum("weight", holder, town="{town}"), "<Sum without a name>"),
        (Embedded(holder, {"name": "name"}, town="{town}"), "<Embedded without a name>"),
        (Feed(keep=dt.timedelta(days=1)), "<Feed without a name>"),
        (Parcel.__dict__["by_id"], "<Index by_id>"),
        (Parcel.by_id, "Parcel.by_id"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_derivations(derivation: object, shown: str) -> None:
    """A declaration shows its pattern and, in the body of a class, its name."""
    assert repr(derivation) == shown


def test_encryption() -> None:
    """It shows what wraps the keys, and nothing of them."""
    assert repr(Encryption(KeyRing({"k": bytes(32)}, wrap_with="k"))) == "<Encryption by a KeyRing>"
    assert repr(Encryption(Wrapper())) == "<Encryption by a Wrapper>"


def test_a_workflow() -> None:
    """It shows the entity that it is about, and neither the token nor the arguments."""
    step = Ship(Parcel.key(town="Ulm", id="7"), "c2VjcmV0", {"password": "c2VjcmV0"})

    assert repr(step) == "<workflow Ship of Parcel ('Ulm', 'parcel_7') in table ShownParcels>"


async def test_queues_and_streams() -> None:
    """They show what they are; a stream also whether it is open."""
    async with memory_database(Parcel) as db:
        stream = db.select(Parcel).allow_scan().stream()
        before = repr(stream)
        async with stream:
            opened = repr(stream)

        assert repr(db.store) == "<Engine :memory:>"
        assert repr(db.queues) == "<queues of a database>"
        assert repr(db.blobs) == "<blobs of a database>"
        assert (before, opened) == ("<EntityStream: not open>", "<EntityStream: open>")
        assert repr(stream) == "<EntityStream: closed>"
        assert not re.search("0x", before + opened)


async def test_a_log() -> None:
    """It shows its name and how much of it is stored."""
    async with memory_database(Parcel) as db, LogStream(db, "clicks") as log:
        await log.write({"password": "c2VjcmV0"})
        before = repr(log)
        await log.flush()

        assert before == "<log clicks: 0 of 1 records stored>"
        assert repr(log) == "<log clicks: 1 of 1 records stored>"


async def test_a_server() -> None:
    """It shows where it listens, and whether it runs."""
    server = serve(None, port=0)
    assert repr(server) == "<server http://127.0.0.1:0/devstoreaccount1: not running>"

    async with server:
        assert repr(server) == f"<server {server.url}: running>"
