"""
Plans: what a writer does to people, of which any request may be its last.

A new plan is a function and a line of `PLANS`; all tests of recovery then try it.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import attrs

from tableorm import Blob, Database, Key
from tableorm.connection.connection import connection_of
from tableorm.models.reserved import BLOB_FIELDS
from tableorm.outbox.bell import OUTBOX, outbox_queues
from tests.outbox.members import Member
from tests.outbox.portraits import Portrait
from tests.outbox.sailors import Harbour, Passenger, Sailor, Ship
from tests.outbox.staff import GUEST, MODELS, STORAGE, Content, Former, Person, Welcome

SAILOR = Sailor.key(port="Genoa", id=1)


PORTRAIT = Portrait.key(hall="east", id=1)


MEMBER = Member.key(town="Bern", id=1)


PERSON = Person.key(team="red", id=1)


FORMER = Former.key(year=2025, team="red", id=1)


PASSENGER = Passenger.key(port="Genoa", id=1)


SHIP = Ship.key(name="Argo")


Step = Callable[[Database], Awaitable[object]]


async def save_with(db: Database, key: Key[Any], **values: object) -> None:
    """Save an entity with other values."""
    entity = await db.get(key)
    for name, value in values.items():
        setattr(entity, name, value)
    await db.save(entity)


async def insert(db: Database) -> None:
    await db.insert(Person(team="red", id=1, name="Ann", city="Oslo"))


async def change(db: Database) -> None:
    await save_with(db, PERSON, name="Anna", city="Rome")


async def touch(db: Database) -> None:
    """Change what an entry holds, and leave it where it is."""
    await save_with(db, PERSON, name="")


async def upsert(db: Database) -> None:
    await db.upsert(Person(team="red", id=1, name="Ann", city="Bonn"), "replace")


async def delete(db: Database) -> None:
    await db.delete(PERSON, if_match="*", missing_ok=True)


async def reinsert(db: Database) -> None:
    await delete(db)
    await db.insert(Person(team="red", id=1, name="Bo", city="Oslo"))


async def replace_in_transaction(db: Database) -> None:
    """Give one entity up and let another one come, in one transaction with a third."""
    async with db.transaction() as tx:
        tx.delete(await tx.get(PERSON))
        tx.insert(Person(team="red", id=2, name="Ann", city="Oslo"))
        tx.insert(Person(team="red", id=3))


async def insert_by_bulk(db: Database) -> None:
    """Insert into two partitions, with one message for both."""
    async with db.bulk() as bulk:
        for number, team in ((2, "red"), (3, "red"), (4, "blue")):
            await bulk.insert(Person(team=team, id=number, name="Bo", city="Oslo"))


async def move_within(db: Database) -> None:
    await db.move(await db.get(PERSON), id=2)


async def move(db: Database) -> None:
    await db.move(await db.get(PERSON), team="blue")


async def move_on(db: Database) -> None:
    person = await db.get(PERSON)
    person.name = "Anna"
    await db.move(person, team="blue")
    await db.move(person, team="green")


async def archive(db: Database) -> None:
    await db.archive(await db.get(PERSON), to=Former, year=2026)


async def archive_to_blob(db: Database) -> None:
    await db.archive(await db.get(PERSON), to=STORAGE)


async def insert_former(db: Database) -> None:
    await db.insert(Former(year=2025, team="red", id=1, name="Ann", city="Oslo"))


async def change_former(db: Database) -> None:
    await save_with(db, FORMER, city="Rome")


async def delete_former(db: Database) -> None:
    await db.delete(await db.get(FORMER))


async def join(db: Database) -> None:
    await db.insert(Member(town="Bern", id=1, email="a@x"))


async def change_address(db: Database) -> None:
    await save_with(db, MEMBER, email="b@x")


async def leave(db: Database) -> None:
    await db.delete(await db.get(MEMBER))


async def upsert_member(db: Database) -> None:
    await db.upsert(Member(town="Bern", id=1, email="c@x"), "replace")


async def forget_address(db: Database) -> None:
    await db.modify(MEMBER, lambda member: member.evolve(email=None))


async def move_member(db: Database) -> None:
    await db.move(await db.get(MEMBER), id=2)


async def join_by_bulk(db: Database) -> None:
    async with db.bulk() as bulk:
        for number, town in ((1, "Bern"), (2, "Bern"), (3, "Rome")):
            await bulk.insert(Member(town=town, id=number, email=f"{number}@x"))


async def exchange_addresses(db: Database) -> None:
    """Let two members exchange their addresses, and a third one come, in one transaction."""
    async with db.transaction() as tx:
        ann, ben = await tx.get(MEMBER), await tx.get(Member, town="Bern", id=2)
        ann.email, ben.email = ben.email, ann.email
        tx.save(ann)
        tx.save(ben)
        tx.insert(Member(town="Bern", id=4, email="d@x"))


async def hang(db: Database) -> None:
    await db.insert(Portrait(hall="east", id=1, title="Ann", picture=Blob(b"first")))


async def paint_over(db: Database) -> None:
    await save_with(db, PORTRAIT, title="Anna", picture=Blob(b"second", "image/png"))


async def repaint_together(db: Database) -> None:
    """Give up a picture, and hang two, in one transaction."""
    async with db.transaction() as tx:
        portrait = await tx.get(PORTRAIT)
        portrait.picture = Blob(b"third")
        tx.save(portrait)
        tx.insert(Portrait(hall="east", id=2, picture=Blob(b"fourth")))


async def upsert_portrait(db: Database) -> None:
    await db.upsert(Portrait(hall="east", id=1, picture=Blob(b"fifth")), "replace")


async def take_down(db: Database) -> None:
    await db.delete(PORTRAIT, if_match="*", missing_ok=True)


async def paint_over_and_rehang(db: Database) -> None:
    """Give up a picture, and take another one along, in the transaction of a move."""
    portrait = await db.get(PORTRAIT)
    portrait.picture = Blob(b"seventh")
    await db.move(portrait, id=2)


async def rehang_elsewhere(db: Database) -> None:
    await db.move(await db.get(PORTRAIT), hall="west")


async def hang_elsewhere(db: Database) -> None:
    await hang(db)
    await rehang_elsewhere(db)


async def paint_over_elsewhere(db: Database) -> None:
    """Drop a picture in another partition than that of its row."""
    await save_with(db, Portrait.key(hall="west", id=1), picture=Blob(b"sixth"))


async def welcome(db: Database) -> None:
    """Insert a guest, and start a workflow."""
    guest = Person(team="red", id=2, name=GUEST, city="Oslo")
    async with db.transaction() as tx:
        tx.insert(guest)
        tx.start(Welcome, guest, 2)


LONG = "t" * 390  # so that four people fill a row of a list


async def fill_list(db: Database) -> None:
    async with db.transaction() as tx:
        for number in range(4):
            tx.insert(Person(team=LONG, id=number, city="Oslo"))


async def divide_list(db: Database) -> None:
    await db.insert(Person(team=LONG, id=4, city="Oslo"))


async def enlist(db: Database) -> None:
    async with db.bulk() as bulk:
        for number, port in ((1, "Genoa"), (2, "Genoa"), (3, "Malta")):
            await bulk.insert(Sailor(port=port, id=number, ship="Argo", wage=number))


async def enlist_one(db: Database) -> None:
    await db.insert(Sailor(port="Genoa", id=1, ship="Argo", wage=1))


async def change_ship(db: Database) -> None:
    await save_with(db, SAILOR, ship="Bounty")


async def raise_wages(db: Database) -> None:
    """Change one sailor, and let another one go, in one transaction."""
    async with db.transaction() as tx:
        sailor = await tx.get(SAILOR)
        sailor.wage = 7
        tx.save(sailor)
        tx.delete(await tx.get(Sailor, port="Genoa", id=2))


async def desert(db: Database) -> None:
    await db.delete(await db.get(SAILOR))


async def move_sailor(db: Database) -> None:
    await db.move(await db.get(SAILOR), port="Malta")


async def embark(db: Database) -> None:
    """Insert two ships, and three passengers of one of them."""
    for name in ("Argo", "Bounty"):
        await db.insert(Ship(name=name, flag=f"of {name}"))
    async with db.transaction() as tx:
        for number in (1, 2):
            tx.insert(Passenger(port="Genoa", id=number, ship="Argo"))
    await embark_one(db)


async def embark_one(db: Database) -> None:
    await db.insert(Passenger(port="Malta", id=3, ship="Argo"))


async def insert_ship(db: Database) -> None:
    await db.insert(Ship(name="Argo", flag="of Argo"))


async def change_flag(db: Database) -> None:
    await save_with(db, SHIP, flag="black")


async def transfer(db: Database) -> None:
    await save_with(db, PASSENGER, ship="Bounty")


async def scrap(db: Database) -> None:
    await db.delete(await db.get(SHIP))


async def disembark(db: Database) -> None:
    await db.delete(await db.get(PASSENGER))


async def move_passenger(db: Database) -> None:
    await db.move(await db.get(PASSENGER), port="Malta")


async def open_harbour(db: Database) -> None:
    await db.insert(Harbour(name="Genoa"))
    await embark(db)
    await enlist(db)


async def close_harbour(db: Database) -> None:
    """Delete a harbour, and let workers delete all who are there before it."""
    await db.delete(Harbour.key(name="Genoa"), if_match="*")


@attrs.frozen
class Plan:
    """
    A plan.

    Args:
        act: What the writer does.
        before: What was done before.
        by_team: Whether each partition goes by itself, so that one may come before the other.
        commit: After how many writes something is left to a worker: a message and the transaction, or the mark of what
            is to be moved and a message. A value that is unique across partitions is reserved between them.
    """

    act: Step
    before: Step | None = None
    by_team: bool = attrs.field(default=False, kw_only=True)
    commit: int = attrs.field(default=2, kw_only=True)

    @property
    def name(self) -> str:
        """What it is called."""
        return self.act.__name__

    def passes(self, contents: list[Content], content: Content) -> bool:
        """Return whether it passes something that is stored, given what it passes if nothing goes wrong."""
        if not self.by_team:
            return content in contents
        teams = {keys[1] for each in [*contents, content] for keys in each}
        return all(_of_team(content, team) in [_of_team(each, team) for each in contents] for team in teams)


def _of_team(content: Content, team: str) -> Content:
    return [each for each in content if each[1] == team]


PLANS = [
    Plan(insert),
    Plan(change, insert),
    Plan(touch, insert),
    Plan(upsert, insert),
    Plan(delete, insert),
    Plan(reinsert, insert),
    Plan(replace_in_transaction, insert),
    Plan(insert_by_bulk, insert, by_team=True),
    Plan(move_within, insert),
    Plan(move, insert),
    Plan(move_on, insert),
    Plan(archive, insert),
    Plan(archive_to_blob, insert),
    Plan(insert_former),
    Plan(change_former, insert_former),
    Plan(delete_former, insert_former),
    Plan(join, commit=3),
    Plan(change_address, join, commit=3),
    Plan(leave, join),
    Plan(upsert_member, join, commit=3),
    Plan(forget_address, join),
    Plan(move_member, join),
    Plan(join_by_bulk, by_team=True, commit=3),
    Plan(exchange_addresses, join_by_bulk, commit=3),
    Plan(hang, commit=3),
    Plan(paint_over, hang, commit=4),
    Plan(repaint_together, hang, commit=6),
    Plan(upsert_portrait, hang, commit=4),
    Plan(take_down, hang),
    Plan(paint_over_and_rehang, hang, commit=4),
    Plan(rehang_elsewhere, hang),
    Plan(paint_over_elsewhere, hang_elsewhere, commit=4),
    Plan(welcome, insert),
    Plan(divide_list, fill_list),
    Plan(enlist_one),
    Plan(enlist, by_team=True),
    Plan(change_ship, enlist),
    Plan(raise_wages, enlist),
    Plan(desert, enlist),
    Plan(move_sailor, enlist),
    Plan(embark_one, insert_ship),
    Plan(change_flag, embark),
    Plan(transfer, embark),
    Plan(scrap, embark),
    Plan(disembark, embark),
    Plan(move_passenger, embark),
    Plan(close_harbour, open_harbour),
]


async def prepare(db: Database, plan: Plan) -> None:
    """Make the tables, the container and the queue, and do what comes before a plan."""
    await db.create_tables(*MODELS)
    await db.blobs.create_container(BLOB_FIELDS)
    await outbox_queues(connection_of(db)).create_queue(OUTBOX)
    if plan.before is not None:
        await plan.before(db)
