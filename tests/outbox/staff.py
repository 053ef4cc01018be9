"""
People with rows in other partitions and tables, and what must be true of all rows in the end.

They have eventual indexes and an eventual list, can be archived in several ways, and get a badge by a workflow. Those
who have left are in lists that are blobs, and members of the guild have a value that is unique across partitions.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from tableorm import (
    BlobArchive,
    Database,
    Entity,
    EntityExists,
    Index,
    IndexList,
    Mapped,
    TableOrmError,
    Workflow,
    field,
    workflow,
)
from tableorm.connection.connection import connection_of
from tableorm.derived.index_list.rows import bits_of, is_divided, keys_of
from tableorm.models.marker_rows import is_marker
from tableorm.models.reserved import BLOB_FIELDS, BLOB_LISTS
from tableorm.outbox.bell import OUTBOX, outbox_queues
from tableorm.protocol.codes import Fault
from tableorm.stores import BlobStore, Row, TableStore
from tableorm.testing.contract.base import everything
from tests.faults import RowBlobs
from tests.outbox.members import Member, extra_reservations, wrong_reservations
from tests.outbox.portraits import Portrait, extra_pictures, wrong_pictures
from tests.outbox.sailors import COUNT_ROWS, Harbour, Passenger, Sailor, Ship, wrong_copies, wrong_totals

GUEST = "Guest"
"""The name of people who are welcomed."""

CITIES, NAMES = ("Bonn", "Oslo", "Rome"), ("Ann", "Anna", "Bo", GUEST)
"""Where people are, and what they are called, unless they have no city or an empty name."""


class AnyPerson(Entity, abstract=True):
    team: Mapped[str]
    id: Mapped[int]
    name: Mapped[str] = field(default="")
    city: Mapped[str | None] = field(default=None)


class Person(AnyPerson, table="Crew", partition_key="{team}", row_key="person_{id:03d}"):
    by_city = Index(partition_key="city_{city}", row_key="at_{team}_{id:03d}", table="Cities", consistency="eventual")
    by_name = Index(
        partition_key="name_{name}",
        row_key="of_{team}_{id:03d}",
        include="keys",
        consistency="eventual",
        where=lambda person: person.name != "",
    )
    in_city = IndexList(
        partition_key="list_{city}", row_key="people", table="Cities", consistency="eventual", divide_at=2048
    )


class Former(AnyPerson, table="Formers", partition_key="{year}", row_key="person_{id:03d}_of_{team}", tracked=True):
    year: Mapped[int]

    by_city = Index(
        partition_key="city_{city}", row_key="former_{year}_{team}_{id:03d}", table="Cities", consistency="eventual"
    )
    in_city = IndexList(partition_key="{city}", row_key="former", consistency="eventual", blob=True)


class Badge(Entity, table="Crew", partition_key="{team}", row_key="badge_{id:03d}_{token}"):
    team: Mapped[str]
    id: Mapped[int]
    token: Mapped[str]
    signed: Mapped[bool] = field(default=False)


@workflow("welcome")
class Welcome(Workflow[Person]):
    async def make_badge(self, db: Database) -> list[Any]:
        with suppress(EntityExists):
            await db.insert(Badge(team=self.key.partition_key, id=self.arguments, token=self.token))
        return [self.arguments, self.token]

    async def sign_badge(self, db: Database) -> None:
        number, token = self.arguments
        badge = await db.get(Badge, team=self.key.partition_key, id=number, token=token)
        badge.signed = True
        await db.save(badge)


STORAGE = BlobArchive("storage", Person)

MODELS = (Person, Former, Badge, Member, Portrait, Ship, Sailor, Passenger, Harbour)
TARGETS = (Person, Former, Member, Portrait, Ship, Sailor, Passenger, Harbour, Welcome, STORAGE)
"""What workers know."""


async def recover(db: Database, *models: type[Entity]) -> None:
    """Let a worker do what it can see to be done; it knows these models, or all that is here."""
    queues = outbox_queues(connection_of(db))
    async with db.worker(*(models or TARGETS), tries=99):
        with suppress(Fault):  # nobody has rung
            # What it works on is not seen any more, and is finished before the block ends.
            while await queues.peek(OUTBOX):  # noqa: ASYNC110 - what a worker takes
                await asyncio.sleep(0)


# What is stored

Content = list[list[str]]
"""The people of all tables and of the archive in order: kind, keys, name or address, and city."""

Blobs = BlobStore | RowBlobs

KINDS = ("Person", "Former", "Member", "Portrait", "Sailor", "Passenger", "Ship", "Harbour")
"""What counts as content."""


async def content_of(store: TableStore, blobs: Blobs | None = None) -> Content:
    """Return what is stored; the blobs are those that are rows of the same store, if no others are given."""
    found = [
        [
            row["EntityType"],
            row["PartitionKey"],
            row["RowKey"],
            row.get("name", row.get("email", row.get("picture_sha256", row.get("ship", row.get("flag", ""))))),
            row.get("city", row.get("wage", "")),
        ]
        for row in await _all_rows(store)
        if row.get("EntityType") in KINDS
    ]
    archived = [json.loads(text)["row"] for text in (await _texts_of(blobs or RowBlobs(store), STORAGE.name)).values()]
    found += [["archived", row["PartitionKey"], row["RowKey"], row["name"], row.get("city", "")] for row in archived]
    return sorted(found)


async def _texts_of(blobs: Blobs, container: str) -> dict[str, str]:
    """Return what the blobs of a container hold, by name."""
    found: dict[str, str] = {}
    continuation: str | None = None
    with suppress(Fault, TableOrmError):  # there is no container
        while True:
            page = await blobs.list_blobs(container, "", continuation)
            for each in page.blobs:
                async with blobs.get(container, each.name) as stream:
                    found[each.name] = b"".join([chunk async for chunk in stream.chunks]).decode()
            continuation = page.continuation
            if continuation is None:
                break
    return found


async def is_in_a_move(store: TableStore) -> bool:
    """Return whether rows of a move are there, so that an entity may be in a row of another kind."""
    return any(is_marker(row) and "_mv" in row for row in await _all_rows(store))


async def _all_rows(store: TableStore) -> list[Row]:
    return [
        row
        for table in ("Crew", "Cities", "Formers", "Guild", "Gallery", "Sailors", "Fleet")
        for row in await everything(store, table)
    ]


# What must be true in the end


async def find_problems(db: Database) -> list[str]:
    """
    Return what is wrong after workers have done all that was left. What is only too much begins with "extra": an index
    entry, a member of a list, or a tentative row of a move that can never be committed.
    """
    store = db.store
    rows = await _all_rows(store)
    left = [
        row
        for row in rows
        if (is_marker(row) and row["EntityType"] not in COUNT_ROWS and row.get("State") not in ("void", "held"))
        or "confirmed" in row.get("_mv", "")
    ]
    problems = [f"{'extra' if '#_tentative' in row['EntityType'] else 'left'} row: {row}" for row in left]
    problems += await wrong_entries(store)
    problems += [f"extra entry at {place}" for place in sorted(await extra_entries(store))]

    people = [row for row in rows if row.get("EntityType") == "Person"]
    listed = members_of(row for row in rows if row.get("EntityType") == "Person#in_city")
    wanted = {(f"list_{row['city']}", row["PartitionKey"], row["RowKey"]) for row in people if "city" in row}
    problems += [f"{place} is not listed" for place in sorted(wanted - listed.keys())]
    problems += [f"{place} is listed {number} times" for place, number in listed.items() if number > 1]
    problems += [f"extra in a list: {place}" for place in sorted(listed.keys() - wanted)]

    former = [row for row in rows if row.get("EntityType") == "Former"]
    named = await names_in_blobs(connection_of(db).blobs)
    wanted = {(row["city"], row["PartitionKey"], row["RowKey"]) for row in former if "city" in row}
    problems += [f"{place} is in no blob" for place in sorted(wanted - named.keys())]
    problems += [f"{place} is in a blob {number} times" for place, number in named.items() if number > 1]
    problems += [f"extra in a blob: {place}" for place in sorted(named.keys() - wanted)]

    problems += await wrong_reservations(store)
    problems += [f"extra reservation of {email}" for email in sorted(await extra_reservations(store))]
    problems += await wrong_totals(store)
    problems += await wrong_copies(store)

    pictures = await _texts_of(connection_of(db).blobs, BLOB_FIELDS)
    problems += await wrong_pictures(store, pictures)
    problems += [f"extra picture {token}" for token in sorted(await extra_pictures(store, pictures))]

    badges = [row for row in rows if row.get("EntityType") == "Badge"]
    have = Counter((row["PartitionKey"], row["RowKey"].split("_")[1]) for row in badges)
    guests = Counter((row["PartitionKey"], row["RowKey"].split("_")[1]) for row in people if row["name"] == GUEST)
    if have != guests or not all(row["signed"] for row in badges):
        problems.append(f"guests are {guests}, and badges {badges}")
    if await outbox_queues(connection_of(db)).length(OUTBOX):
        problems.append("messages are left")
    return problems


async def find_misread(db: Database) -> list[str]:
    """Return which reads by an index or a list return other people than are stored."""
    problems: list[str] = []

    def compare(what: str, found: Iterable[Person | Former], wanted: Iterable[Person | Former]) -> None:
        keys = [sorted((each.team, each.id, each.name) for each in people) for people in (found, wanted)]
        if keys[0] != keys[1]:
            problems.append(f"{what} returns {keys[0]} instead of {keys[1]}")

    people = [person async for person in db.select(Person).allow_scan()]
    former = [each async for each in db.select(Former).allow_scan()]
    for city in CITIES:
        there = [person for person in people if person.city == city]
        compare(f"by_city {city}", await db.select(Person.by_city).where(Person.city == city).all(), there)
        compare(f"in_city {city}", await db.lookup(Person.in_city, city=city), there)
        gone = [each for each in former if each.city == city]
        compare(f"former by_city {city}", await db.select(Former.by_city).where(Former.city == city).all(), gone)
        compare(f"former in_city {city}", await db.lookup(Former.in_city, city=city), gone)
    for name in NAMES:
        found = await db.select(Person.by_name).where(Person.name == name).all()
        compare(f"by_name {name}", found, [person for person in people if person.name == name])
    return problems


async def names_in_blobs(blobs: Blobs) -> Counter[tuple[str, str, str]]:
    """Return how often each entity is in lists that are blobs: by city, and its keys."""
    found = Counter[tuple[str, str, str]]()
    for name, text in (await _texts_of(blobs, BLOB_LISTS)).items():
        city = name.split("/")[-2]
        head, *lines, end = text.split("\n")
        assert (head, end) == ("tableorm index list 1", "")
        found.update((city, line.split("\t")[0], line.split("\t")[1]) for line in lines)
    return found


def members_of(rows: Iterable[Row]) -> Counter[tuple[str, str, str]]:
    """Return how often each entity is in the rows of lists: by PartitionKey of the list, and keys of the entity."""
    found = Counter[tuple[str, str, str]]()
    for row in rows:
        assert not (is_divided(row) and keys_of(row))
        bits = row["RowKey"].rpartition("~")[2]
        for text in keys_of(row):
            member, _, _ = text.rpartition("\t")
            _, partition_key, row_key = member.split("\t")
            assert bits_of(member, len(bits)) == bits
            found[row["PartitionKey"], partition_key, row_key] += 1
    return found


async def committed_decisions(store: TableStore, table: str = "Crew") -> list[str]:
    return [row["RowKey"] for row in await everything(store, table) if row.get("State") == "committed"]


Place = tuple[str, str, str]
"""Table and keys."""


async def _entries_of(store: TableStore) -> dict[Place, Row]:
    return {
        (table, row["PartitionKey"], row["RowKey"]): row
        for table in ("Crew", "Cities")
        for row in await everything(store, table)
        if "#by_" in row.get("EntityType", "")
    }


async def _wanted_entries(store: TableStore) -> dict[Place, Row]:
    found: dict[Place, Row] = {}
    for person in await everything(store, "Crew"):
        if person.get("EntityType") == "Person":
            found |= _entries_of_person(person)
    for former in await everything(store, "Formers"):
        if former.get("EntityType") == "Former" and "city" in former:
            number, _, team = former["RowKey"].removeprefix("person_").partition("_of_")
            place = "Cities", f"city_{former['city']}", f"former_{former['PartitionKey']}_{team}_{number}"
            content = {"name": former["name"], "city": former["city"]}
            found[place] = {"EntityType": "Former#by_city", **content, "_of": _owner_of("Formers", former)}
    return found


def _entries_of_person(person: Row) -> Mapping[Place, Row]:
    keys, owner = f"{person['PartitionKey']}_{person['RowKey'].removeprefix('person_')}", _owner_of("Crew", person)
    found: dict[Place, Row] = {}
    if "city" in person:
        content = {"name": person["name"], "city": person["city"], "_of": owner}
        found["Cities", f"city_{person['city']}", f"at_{keys}"] = {"EntityType": "Person#by_city", **content}
    if person["name"]:
        found["Crew", f"name_{person['name']}", f"of_{keys}"] = {"EntityType": "Person#by_name", "_of": owner}
    return found


def _owner_of(table: str, row: Row) -> str:
    return json.dumps([table, row["PartitionKey"], row["RowKey"]], separators=(",", ":"))


async def wrong_entries(store: TableStore) -> list[str]:
    """Return which index entries are missing, or have other contents than their entity says."""
    stored, problems = await _entries_of(store), list[str]()
    for place, wanted in (await _wanted_entries(store)).items():
        row = stored.get(place)
        if row is None:
            problems.append(f"no entry at {place}")
        elif {n: v for n, v in row.items() if n in ("EntityType", "name", "city", "_of")} != wanted:
            problems.append(f"at {place} is {row} instead of {wanted}")
    return problems


async def extra_entries(store: TableStore) -> set[Place]:
    """Return where index entries are that belong to no entity."""
    return (await _entries_of(store)).keys() - (await _wanted_entries(store)).keys()
