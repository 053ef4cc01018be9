"""
The models of the stored files. The files were written with these declarations, so these never change: a new sort of
declaration gets a new model, and a new file.
"""

import datetime as dt
import enum
from typing import Any
from uuid import UUID

import attrs

from tableorm import (
    Blob,
    BlobArchive,
    Count,
    Database,
    DatabaseArchive,
    Embedded,
    Entity,
    Feed,
    Index,
    IndexList,
    Int32,
    Key,
    KeyRing,
    Mapped,
    MovedFrom,
    PropertyBag,
    Series,
    Sum,
    Workflow,
    connect,
    encrypted,
    field,
    many,
    series,
    upgrade,
    workflow,
)


class Status(enum.StrEnum):
    NEW = "new"
    SENT = "sent"


@attrs.frozen
class Line:
    """A line of an order."""

    article: str
    count: int


class Customer(Entity, table="StoredShop", partition_key="{shop}", row_key="customer_{name}"):
    shop: Mapped[str]
    name: Mapped[str]
    city: Mapped[str] = field(default="")
    orders: Mapped[int] = field(default=0, maintained=True)
    spent: Mapped[int] = field(default=0, maintained=True)


class Order(Entity, table="StoredShop", version=2, partition_key="{shop}", row_key="order_{id:06d}"):
    shop: Mapped[str]
    id: Mapped[int]
    customer: Mapped[str]
    code: Mapped[str]
    cents: Mapped[int]
    status: Mapped[Status] = field(default=Status.NEW)
    boxes: Mapped[Int32] = field(default=1)
    weight: Mapped[float | None] = field(default=None)
    paid: Mapped[bool] = field(default=False)
    at: Mapped[dt.datetime | None] = field(default=None)
    due: Mapped[dt.date | None] = field(default=None)
    ticket: Mapped[UUID | None] = field(default=None)
    seal: Mapped[bytes | None] = field(default=None)
    lines: Mapped[list[Line]] = field(factory=list[Line])
    customer_city: Mapped[str | None] = field(default=None, maintained=True)

    by_code = Index(row_key="code_{code}", unique=True)
    by_status = Index(row_key="status_{status}_{id:06d}", include="keys")
    of_status = IndexList(row_key="orders_{status}")
    ordered = Count(lambda: Customer.orders, shop="{shop}", name="{customer}")
    paid_for = Sum("cents", lambda: Customer.spent, shop="{shop}", name="{customer}")
    copies = Embedded(lambda: Customer, {"customer_city": "city"}, shop="{shop}", name="{customer}")


@upgrade(Order, from_version=1)
def in_cents(bag: PropertyBag) -> PropertyBag:
    bag["cents"] = round(float(bag.pop("total")) * 100)
    return bag


class Item(Entity, table="StoredShop", partition_key="{shop}", row_key="item_{name}"):
    shop: Mapped[str]
    name: Mapped[str]
    shelf: Mapped[str]

    on_shelf = IndexList(row_key="shelf_{shelf}", divide_at=2048)


class Person(Entity, table="StoredStaff", partition_key="{team}", row_key="person_{id:03d}"):
    team: Mapped[str]
    id: Mapped[int]
    email: Mapped[str]
    city: Mapped[str]
    role: Mapped[str]

    by_email = Index(partition_key="email_{email}", row_key="taken", unique=True, consistency="eventual")
    by_city = Index(partition_key="city_{city}", row_key="in_{team}_{id:03d}", consistency="eventual")
    in_role = IndexList(partition_key="role_{role}", row_key="people", consistency="eventual")
    in_city = IndexList(partition_key="cities", row_key="{city}", blob=True, consistency="eventual")


class Note(Entity, table="StoredNotes", partition_key="{box}", row_key="note_{id:03d}"):
    box: Mapped[str]
    id: Mapped[int]
    text: Mapped[str]

    by_text = Index(row_key="text_{text}_{id:03d}")


class Mate(Entity, table="StoredTeams", partition_key="{team}", row_key="mate_{id:03d}"):
    team: Mapped[str]
    id: Mapped[int]
    name: Mapped[str] = field(default="")

    changes = Feed(keep=dt.timedelta(days=7))


class Parcel(Entity, table="StoredParcels", partition_key="{depot}", row_key="parcel_{id:03d}", write_token=True):
    depot: Mapped[str]
    id: Mapped[int]
    state: Mapped[str] = field(default="new")


OLD_PARCELS = BlobArchive("stored-old-parcels", Parcel)


def cold_parcels(url: str) -> DatabaseArchive[Parcel]:
    """Return the archive of parcels in the tables of a database whose names begin with "Cold"."""
    return DatabaseArchive("cold", Parcel, lambda: connect(url, prefix="Cold"))


@workflow("stored-ship", version=1)
class Ship(Workflow[Parcel]):
    async def pack(self, db: Database) -> dict[str, Any]:
        def pack(parcel: Parcel) -> None:
            parcel.state = "packed"

        await db.modify(self.key, pack)
        return {**self.arguments, "packed": True}

    async def send(self, db: Database) -> None:
        via = self.arguments["via"]

        def send(parcel: Parcel) -> None:
            parcel.state = f"sent by {via}"

        await db.modify(self.key, send)


class Trip(Entity, table="StoredTrips", partition_key="{day}", row_key="trip_{id}", tracked=True):
    day: Mapped[str]
    id: Mapped[int]
    text: Mapped[str] = field(default="")


class NewTrip(Entity, table="StoredTrips", partition_key="trip_{id}", row_key="day_{day}", moved_from=MovedFrom(Trip)):
    day: Mapped[str]
    id: Mapped[int]
    text: Mapped[str] = field(default="")


class Visit(Entity, table="StoredVisits", partition_key="{day}", row_key="visit_{id}", tracked=True):
    day: Mapped[str]
    id: Mapped[int]


class NewVisit(
    Entity, table="StoredNewVisits", partition_key="visit_{id}", row_key="day_{day}", moved_from=MovedFrom(Visit)
):
    day: Mapped[str]
    id: Mapped[int]


class Pin(Entity, table="StoredPins", partition_key="{board}", row_key="pin_{id:03d}"):
    board: Mapped[str]
    id: Mapped[int]
    colour: Mapped[str]

    by_colour = Index(row_key="colour_{colour}_{id:03d}")


class Session(Entity, table="StoredSessions", partition_key="{user}", row_key="session_{device}"):
    user: Mapped[str]
    device: Mapped[str]
    expires: Mapped[dt.datetime | None] = field(default=None, expiry=True)


class Setting(
    Entity, table="StoredSettings", version=2, partition_key="{user}", row_key="setting_{name}", discriminator="row_key"
):
    user: Mapped[str]
    name: Mapped[str]
    value: Mapped[str]


class Foreign(Entity, table="StoredForeign", kind=None, partition_key="{part}", row_key="{row}"):
    part: Mapped[str]
    row: Mapped[str]
    size: Mapped[int]


class DayOfParts(Entity, table="StoredDays", partition_key="{user}", row_key="p_{day:03d}", kind="Parts", wide=6):
    """It was declared otherwise when the file was written: with `wide=10`, and the series first."""

    user: Mapped[str]
    day: Mapped[int]
    text: Mapped[str] = field(default="")
    sent: Series[int] = series(24, name="H{i:02d}", default=0)


class Day(Entity, table="StoredDays", partition_key="{user}", row_key="day_{day}"):
    user: Mapped[str]
    day: Mapped[int]
    sent: Series[int] = series(24, name="H{i:02d}", default=0)
    text: Mapped[str] = field(default="", chunked=True)
    lines: Mapped[list[str] | None] = field(default=None, chunked=True, compress=True)


class Poster(Entity, table="StoredPosters", partition_key="{wall}", row_key="poster_{id}"):
    wall: Mapped[str]
    id: Mapped[int]
    picture: Mapped[Blob | None] = field(default=None)


class Reader(Entity, table="StoredReaders", partition_key="{town}", row_key="reader_{id}"):
    town: Mapped[str]
    id: Mapped[int]
    tags: Mapped[list[str]] = field(factory=list)
    notes: Mapped[list[Key[Note]]] = field(factory=list)

    by_tag = Index(row_key="tag_{tags:each}_{id}", include="keys")
    by_note = Index(row_key="of_{notes:each}_{id}", include="keys")


KEYS = KeyRing({"2025": bytes(range(32)), "2026": bytes(range(32, 64))}, wrap_with="2026")


class Firm(Entity, table="StoredFirms", partition_key="firms", row_key="firm_{name}"):
    name: Mapped[str]
    title: Mapped[str] = field(default="")
    hands: Mapped[int] = field(default=0, maintained=True)
    wages: Mapped[int] = field(default=0, maintained=True)


class Hand(Entity, table="StoredHands", partition_key="{town}", row_key="hand_{id:03d}"):
    town: Mapped[str]
    id: Mapped[int]
    firm: Mapped[str | None] = field(default=None)
    wage: Mapped[int] = field(default=0)
    title: Mapped[str | None] = field(default=None, maintained=True)

    counted = Count(lambda: Firm.hands, name="{firm}", consistency="eventual")
    paid = Sum("wage", lambda: Firm.wages, name="{firm}", consistency="eventual")
    by_firm = Index(partition_key="{firm}", row_key="of_{town}_{id:03d}", include="keys", consistency="eventual")
    works = Embedded(lambda: Firm, {"title": "title"}, name="{firm}", consistency="eventual", via=by_firm)


class Chest(Entity, table="StoredChests", partition_key="chests", row_key="chest_{name}", tracked=True):
    name: Mapped[str]

    coins = many(lambda: Coin, chest="{name}", on_delete="cascade")


class Coin(Entity, table="StoredCoins", partition_key="{chest}", row_key="coin_{id}"):
    chest: Mapped[str]
    id: Mapped[int]


class Secret(Entity, table="StoredSecrets", partition_key="{user}", row_key="secret_{id}"):
    user: Mapped[str]
    id: Mapped[int]
    level: Mapped[int] = field(default=1)
    text: Mapped[str] = encrypted()
    scan: Mapped[bytes | None] = encrypted(default=None)
    long: Mapped[str] = encrypted(default="", chunked=True)

    by_level = Index(row_key="level_{level}_{id}", include=["text"])


class Xray(Entity, table="StoredXrays", partition_key="{user}", row_key="xray_{id:03d}", wide=3):
    user: Mapped[str]
    id: Mapped[int]
    image: Mapped[Blob] = encrypted()
    doses: Series[int] = series(3, default=0, encrypted=True)
    note: Mapped[str] = field(default="")


class Login(Entity, table="StoredLogins{at:%Y%m}", partition_key="{user}", row_key="at_{at:ticks}"):
    user: Mapped[str]
    at: Mapped[dt.datetime]
    device: Mapped[str] = field(default="phone")
