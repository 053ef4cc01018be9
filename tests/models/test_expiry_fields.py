"""
The field that says when an entity expires, as it is declared.
"""

import datetime as dt
from typing import Any

from tableorm import Entity, Index, Mapped, field, utc_now
from tableorm.models.entity import schema_of
from tests.models.test_declaration import refused


def test_a_field_that_is_no_expiry() -> None:
    """A model says by one field, a time that its own writes can change, when an entity expires; or it is rejected."""
    keys: dict[str, Any] = {"table": "Declared", "partition_key": "{id}"}
    with refused("Twice has several fields with expiry=True: ends, expires; an entity expires once: keep one"):

        class Twice(Entity, row_key="twice", **keys):  # pyright: ignore[reportUnusedClass]
            id: Mapped[str]
            ends: Mapped[dt.datetime | None] = field(default=None, expiry=True)
            expires: Mapped[dt.datetime | None] = field(default=None, expiry=True)

    with refused("Daily.expires = field(expiry=True) is rejected: it is declared date; write expires: Mapped"):

        class Daily(Entity, row_key="daily", **keys):  # pyright: ignore[reportUnusedClass]
            id: Mapped[str]
            expires: Mapped[dt.date | None] = field(default=None, expiry=True)

    with refused("Keyed.expires = field(expiry=True) is rejected: it is part of the key"):

        class Keyed(Entity, row_key="keyed_{expires:ticks}", **keys):  # pyright: ignore[reportUnusedClass]
            id: Mapped[str]
            expires: Mapped[dt.datetime] = field(expiry=True)

    with refused("Kept.expires = field(expiry=True) is rejected: writes of other entities maintain it"):

        class Kept(Entity, row_key="kept", **keys):  # pyright: ignore[reportUnusedClass]
            id: Mapped[str]
            expires: Mapped[dt.datetime | None] = field(default=None, expiry=True, maintained=True)


def test_a_base_declares_it() -> None:
    """Classes inherit the field; one that declares it anew may say otherwise."""

    class Base(Entity, table="Declared", abstract=True, partition_key="{id}", row_key="{kind}"):
        id: Mapped[str]
        expires: Mapped[dt.datetime | None] = field(default=None, expiry=True)

    class Ticket(Base): ...

    class Stamp(Base):
        expires: Mapped[dt.datetime | None] = field(default=None)

    expiry = schema_of(Ticket).expiry
    assert expiry is not None and expiry.name == "expires"
    assert schema_of(Stamp).expiry is None


def test_an_index_holds_it() -> None:
    """The entries of an index with some fields hold the expiry too, and its declaration says so."""

    class Visit(Entity, table="Declared", partition_key="{id}", row_key="visit"):
        id: Mapped[str]
        name: Mapped[str] = field(default="")
        count: Mapped[int] = field(default=0)
        ends: Mapped[dt.datetime | None] = field(default=None, expiry=True)

        by_name = Index(row_key="name_{name}_{id}", include=["count"])
        by_count = Index(row_key="count_{count}_{id}", include="keys")

    rows = schema_of(Visit).derived["by_name"].row_schema
    keys = schema_of(Visit).derived["by_count"].row_schema
    assert rows is not None and keys is not None
    assert [*rows.fields] == ["id", "name", "count", "ends"]
    assert [*keys.fields] == ["id", "count"]


def test_a_write_makes_it() -> None:
    """The time can be made by each write, as any other field."""

    class Lease(Entity, table="Declared", partition_key="{id}", row_key="lease"):
        id: Mapped[str]
        expires: Mapped[dt.datetime | None] = field(
            default=None, expiry=True, on_write=lambda: utc_now() + dt.timedelta(hours=1)
        )

    assert [info.name for info in schema_of(Lease).filled] == ["expires"]
