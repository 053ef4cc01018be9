"""
The field that says when an entity expires, as it is declared.
"""

import datetime as dt
from collections.abc import Callable

import pytest

from tableorm import Entity, Index, Mapped, ModelError, field, utc_now
from tableorm.models.entity import schema_of


def two_fields() -> type[Entity]:
    class Twice(Entity, table="Declared", partition_key="{id}", row_key="twice"):
        id: Mapped[str]
        ends: Mapped[dt.datetime | None] = field(default=None, expiry=True)
        expires: Mapped[dt.datetime | None] = field(default=None, expiry=True)

    return Twice


def a_date() -> type[Entity]:
    class Daily(Entity, table="Declared", partition_key="{id}", row_key="daily"):
        id: Mapped[str]
        expires: Mapped[dt.date | None] = field(default=None, expiry=True)

    return Daily


def a_key() -> type[Entity]:
    class Keyed(Entity, table="Declared", partition_key="{id}", row_key="keyed_{expires:ticks}"):
        id: Mapped[str]
        expires: Mapped[dt.datetime] = field(expiry=True)

    return Keyed


def kept_by_others() -> type[Entity]:
    class Kept(Entity, table="Declared", partition_key="{id}", row_key="kept"):
        id: Mapped[str]
        expires: Mapped[dt.datetime | None] = field(default=None, expiry=True, maintained=True)

    return Kept


REFUSED: dict[str, tuple[Callable[[], type[Entity]], str]] = {
    "two": (two_fields, "Twice has several fields with expiry=True: ends, expires; an entity expires once: keep one"),
    "a date": (a_date, r"Daily.expires = field\(expiry=True\) is refused: it is declared date; write expires: Mapped"),
    "in the key": (a_key, r"Keyed.expires = field\(expiry=True\) is refused: it is part of the key"),
    "kept by others": (kept_by_others, r"Kept.expires = field\(expiry=True\) is refused: other entities keep it"),
}


@pytest.mark.parametrize(("declare", "message"), REFUSED.values(), ids=REFUSED)
def test_a_field_that_is_no_expiry(declare: Callable[[], type[Entity]], message: str) -> None:
    """A model says by one field, a time that its own writes can change, when an entity expires; or it is refused."""
    with pytest.raises(ModelError, match=message):
        declare()


def test_a_base_declares_it() -> None:
    """Classes inherit the field; one that declares it anew may say otherwise."""

    class Base(Entity, table="Declared", abstract=True, partition_key="{id}", row_key="{kind}"):
        id: Mapped[str]
        expires: Mapped[dt.datetime | None] = field(default=None, expiry=True)

    class Ticket(Base): ...

    class Stamp(Base):
        expires: Mapped[dt.datetime | None] = field(default=None)

    visibility = schema_of(Ticket).visibility
    assert visibility is not None and visibility.needs == ("expires",)
    assert schema_of(Stamp).visibility is None


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
