"""
Tables as programs without a mapper have written them for years: 100 rows in each of ten layouts of keys.
"""

import datetime as dt
import hashlib
import random
from collections.abc import Callable, Iterable
from typing import cast
from uuid import UUID

import attrs

from tableorm import connect
from tableorm.keys.format import Format
from tableorm.keys.formats import make_format
from tableorm.protocol.edm import ANNOTATION, MAX_TICKS, Edm, Value, encode, ticks_from_datetime
from tableorm.stores import Row
from tests.rows import insert_row

ROWS = 100
NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


class Long(int):
    """A number that is stored as an Int64; programs in C# say `long`."""


def make_row(partition_key: str, row_key: str, **properties: Value) -> Row:
    """Return a row as the service sends it, without its ETag; an int is an Int32, as in the SDKs."""
    row: Row = {"PartitionKey": partition_key, "RowKey": row_key}
    kinds: dict[type, Edm] = {
        str: Edm.STRING,
        bool: Edm.BOOLEAN,
        int: Edm.INT32,
        Long: Edm.INT64,
        float: Edm.DOUBLE,
        dt.datetime: Edm.DATETIME,
        UUID: Edm.GUID,
        bytes: Edm.BINARY,
    }
    for name, value in properties.items():
        row[name], annotation = encode(value, kinds[type(value)])
        if annotation is not None:
            row[name + ANNOTATION] = annotation
    return row


async def fill(url: str, table: str, rows: Iterable[Row], others: Iterable[str] = ()) -> None:
    """Make a database with the rows in a table, and with other tables."""
    async with connect(url) as db:
        await db.create_tables(table, *others)
        for row in rows:
            await insert_row(db, table, row)


@attrs.frozen
class Layout:
    """
    A table.

    Args:
        table: Its name.
        make: Makes the row of a number.
        keys: Templates of the models that are right for it, without the names of fields.
        others: Tables beside it.
    """

    table: str
    make: Callable[[random.Random, int], Row]
    keys: set[tuple[str, str]]
    others: tuple[str, ...] = ()

    @property
    def rows(self) -> list[Row]:
        """All of its rows."""
        chance = random.Random(1)
        return [self.make(chance, number) for number in range(ROWS)]


def _guid(chance: random.Random) -> UUID:
    return UUID(int=chance.getrandbits(128), version=4)


def _moment(chance: random.Random) -> dt.datetime:
    return NOW - dt.timedelta(microseconds=chance.randrange(10**12))


TENANTS = [_guid(random.Random(number)) for number in range(5)]
DEPLOYMENT = _guid(random.Random(5)).hex
BUCKET = cast("Format", make_format(str, "spread(24)"))


def tenant_events(chance: random.Random, number: int) -> Row:
    """Tenant and region, the newest first; a level that some events lack."""
    tenant, region = chance.choice(["acme", "globex", "initech"]), chance.choice(["eu-west-1", "us-east-2"])
    at = _moment(chance)
    more = {"Level": chance.randrange(5)} if number % 3 else {}
    row = f"{MAX_TICKS - ticks_from_datetime(at):019d}_{number % 1000:03d}"
    return make_row(f"{tenant}_{region}", row, Tenant=tenant, Region=region, At=at, Message=f"No. {number}", **more)


def shop(chance: random.Random, number: int) -> Row:
    """Two types, which a property names, and numbers with zeros."""
    town = chance.choice(["Lund", "Oslo", "Åbo"])
    if number % 4:
        return make_row(town, f"{number:06d}", Type="order", Total=number / 2, Paid=bool(number % 2))
    return make_row(town, f"{number:06d}", Type="customer", Name=f"C{number}", credit=Long(number * 9))


def device_days(chance: random.Random, number: int) -> Row:
    """Date and device, the newest first by milliseconds; a number for each hour."""
    at = NOW - dt.timedelta(minutes=number * 37)
    left = 9_999_999_999_999 - int(at.timestamp() * 1000)
    hours = {f"H{hour:02d}": chance.random() for hour in range(24) if chance.random() < 0.7}
    return make_row(f"{at:%Y-%m-%d}_pump-{number % 7:02d}", f"{left:013d}", Battery=chance.randrange(100), **hours)


def documents(chance: random.Random, number: int) -> Row:
    """GUIDs without dashes, in capitals for tenants; a Guid repeats one."""
    one = _guid(chance)
    more = {"Body": bytes(chance.randbytes(20))} if number % 2 else {"Link": "a/b#c"}
    return make_row(chance.choice(TENANTS).hex.upper(), one.hex, Id=one, Size=Long(number * 2**33), **more)


def compressed(chance: random.Random, number: int) -> Row:
    """Composite keys of few characters."""
    partition = f"C{number % 5}|{chance.choice(['EU', 'US'])};{chance.choice(['SE', 'NO', 'TX'])}"
    row = f"P^{chance.choice(['AB', 'CD', 'XYZ'])}%{chance.getrandbits(28) | 0xA000000:08X}%{number % 2 == 0}"
    return make_row(partition, row, q=number, p=number / 4)


def grains(chance: random.Random, number: int) -> Row:
    """State of Orleans: the reference of a grain is three numbers of 16 hexadecimal digits."""
    code = chance.choice([0x2D7A9C4B, 0x4F8E21A0])
    own = f"{0:016x}{number + 1:016x}03ffffff{code:08x}"
    name = "Shop.Grains.Cart" if code == 0x2D7A9C4B else "Shop.Grains.User"
    return make_row(f"shop_GrainReference={own}", name, StringData=f'{{"n":{number}}}')


def diagnostics(chance: random.Random, number: int) -> Row:
    """Logs of Azure diagnostics: the minute in ticks; deployment, role, instance and a number."""
    at = NOW - dt.timedelta(seconds=number * 11)
    minute = ticks_from_datetime(at.replace(second=0))
    role = chance.choice(["WebRole", "WorkerRole"])
    instance = f"{role}_IN_{number % 3}"
    return make_row(
        f"{minute:019d}",
        f"{DEPLOYMENT}___{role}___{instance}___{number:019d}",
        EventTickCount=Long(ticks_from_datetime(at) + 7),
        DeploymentId=DEPLOYMENT,
        Role=role,
        RoleInstance=instance,
        Level=4,
        Message=f"m{number}",
    )


def sessions(chance: random.Random, number: int) -> Row:
    """Sessions of users and their clicks, told by the properties alone."""
    user, at = f"{_guid(chance)}", int(_moment(chance).timestamp())
    if number % 2:
        return make_row(user, f"{at}", Browser="x", Language="sv", Expires=_moment(chance))
    return make_row(user, f"{at}-{number % 10}", Path=f"/{number}", Milliseconds=number, Referrer="")


def metrics(chance: random.Random, number: int) -> Row:
    """Measurements of a month, which has a table of its own; a day repeats a part of the moment."""
    at = NOW + dt.timedelta(hours=number * 7)
    row = f"{at:%Y-%m-%dT%H:%M:%S}.{number:03d}Z"
    return make_row(f"pump{number % 3}", row, Day=f"{at:%Y-%m-%d}", Value=chance.random())


def bucketed(chance: random.Random, number: int) -> Row:
    """Buckets by the hash of the user, and by another hash, which is not known."""
    user = f"user-{chance.randrange(30)}"
    other = hashlib.md5(user.encode(), usedforsecurity=False).digest()[0] % 16
    return make_row(f"{BUCKET.to_text(user)}_{user}", f"{other:02d}_{number:04d}", User=user)


LAYOUTS = [
    Layout("TenantEvents", tenant_events, {("{}_{}", "{:ticks_desc}_{:03d}")}),
    Layout("WebShop", shop, {("{}", "{:06d}")}),
    Layout("DeviceDays", device_days, {("{}_pump-{:02d}", "{:epoch_ms_desc}")}),
    Layout("ScannedDocuments", documents, {("{:N_upper}", "{:N}")}),
    Layout("Compressed", compressed, {("C{}|{};{}", "P^{}%{:08X}%{:True}")}),
    Layout("OrleansGrainState", grains, {("shop_GrainReference={}", "Shop.Grains.{}")}),
    Layout("WADLogsTable", diagnostics, {("{:ticks}", "{}___{}___{}___{:019d}")}),
    Layout("WebSessions", sessions, {("{}", "{:epoch_s}"), ("{}", "{:epoch_s}-{}")}),
    Layout("Metrics202603", metrics, {("pump{}", "{:iso3}")}, ("Metrics202602", "Metrics2026041")),
    Layout("BucketedUsers", bucketed, {("{:spread(24)}_{}", "{:02d}_{:04d}")}),
]
