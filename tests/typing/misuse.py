# mypy: ignore-errors
# type: ignore  # noqa: PGH003
"""
What the checkers refuse: each line marked `# E` is an error of both, and no other line is.

The two lines above keep this file out of other checks; `test_typing.py` checks a copy without them.
"""

import uuid
from typing import Any

from tableorm import (
    Database,
    Entity,
    Expression,
    Index,
    IndexList,
    Int32,
    Mapped,
    Partial,
    PropertyBag,
    Series,
    connect,
    field,
    http_status,
    many,
    one,
    series,
    to_dict,
    upgrade,
)


class Employee(Entity, table="Directory", partition_key="{department}", row_key="empid_{id:06d}"):
    department: Mapped[str]
    id: Mapped[int]
    age: Mapped[int | None] = field(default=None)
    level: Mapped[Int32] = field(default=0)

    by_age = Index(row_key="age_{age:03d}_{id:06d}")
    by_level = IndexList(row_key="level_{level}")


class Team(Entity, table="Directory", partition_key="p", row_key="team_{name}"):
    name: Mapped[str]


def use(*values: object) -> None:
    """Makes the checkers see that a value is used."""
    assert values


# Class keywords


class Misspelt(Entity, tabel="Directory", partition_key="p", row_key="r"):  # E
    name: Mapped[str]


class WrongKeyword(Entity, table="Directory", partition_key="p", row_key="r", version="2"):  # E
    name: Mapped[str]


class WrongNaming(Entity, table="Directory", partition_key="p", row_key="r", naming="camel"):  # E
    name: Mapped[str]


class WrongDiscriminator(Entity, table="Directory", partition_key="p", row_key="r", discriminator="rowkey"):  # E
    name: Mapped[str]


# Fields


class Defaults(Entity, table="Directory", partition_key="p", row_key="r"):
    count: Mapped[int] = field(default="0")  # E
    name: Mapped[str] = field(default=None)  # E
    tags: Mapped[list[str]] = field(factory=dict)  # E
    token: Mapped[uuid.UUID] = field(factory=lambda: "x")  # E
    bare: Mapped[int] = 5  # E
    other: Mapped[int] = field(default=1, nmae="Other")  # E


# Series


class WrongDefault(Entity, table="Directory", partition_key="p", row_key="r"):
    counts: Series[int] = series(3, default="x")  # E


class Counted(Entity, table="Directory", partition_key="p", row_key="r"):
    counts: Series[int] = series(3, default=0)


def slots(counted: Counted) -> None:
    counted.counts[1] = None  # E
    counted.counts[1] = "x"  # E
    counted.counts = ["x"]  # E
    counted.counts.append(1)  # E
    use(Counted.counts[1] > "x")  # E


# Entities


def entities() -> None:
    Employee(department="Sales")  # E
    Employee(department="Sales", id="5")  # E
    Employee(department="Sales", id=5, agee=5)  # E
    Employee("Sales", 5)  # E
    Employee(department="Sales", id=5, level="x")  # E
    jun = Employee(department="Sales", id=5)
    jun.age = "48"  # E
    jun.etag = "x"  # E
    jun.extra = {}  # E
    use(jun.agee)  # E


# Conditions


def where(*conditions: Expression) -> None:
    use(conditions)


def conditions() -> None:
    where(Employee.id == "5")  # E
    where(Employee.age >= "30")  # E
    where(Employee.department < 5)  # E
    where(Employee.id == Employee.age)  # E
    where(Employee.id.between(1, "2"))  # E
    where(Employee.department.startswith(5))  # E
    where((Employee.id == 5) & True)  # E
    where(Employee.agee == 5)  # E


# Keys and dictionaries


def keys(team: Team) -> None:
    Employee.key_of("Sales")  # E
    Employee.key_of("Sales", "r").row_key = "x"  # E
    use(to_dict(team, mode="yaml"))  # E
    use(to_dict(team, include=5))  # E


def partials(changes: Partial[Employee], team: Team) -> None:
    team.update(changes)  # E
    changes.given["age"] = 5  # E
    use(Partial(Employee), Partial(5, {}))  # E


# Indexes


class WrongIndex(Entity, table="Directory", partition_key="p", row_key="r_{name}"):
    name: Mapped[str]
    first = Index()  # E
    second = Index("x_{name}")  # E
    fourth = Index(row_key="x_{name}", consistency="often")  # E
    fifth = Index(row_key="x_{name}", table=Team, consistency="eventual")  # E


async def by_index(db: Database) -> None:
    index = Employee.by_age
    await db.lookup(index, department="Sales", age=5)  # E
    await db.get(Employee.by_level, department="Sales", level=5)  # E


# Databases


async def reading(db: Database) -> None:
    await db.get("Employee", department="Sales", id=5)  # E
    db.select(int)  # E
    db.select(Team).where(Team.name)  # E
    db.select(Team).where(True)  # E
    db.select(Team).limit("5")  # E
    await db.insert("x")  # E
    await db.merge(Team)  # E
    await db.upsert(Team(name="a"), mode="both")  # E
    await db.modify(Team(name="a"), 5)  # E
    await db.get_or_insert(Team)  # E
    await db.drop_table(Team(name="a"))  # E
    await db.create_tables(5)  # E
    http_status("EntityNotFound")  # E
    await db.move(Team.key(name="a"), name="b")  # E
    db.explain_write("sing", Team(name="a"))  # E
    db.explain_write("save", Team(name="a"), name="b")  # E
    Team(name="a").update(name="b")  # E
    Team(name="a").update(None)  # E
    for _ in db.changes(Team):  # E
        use()
    for _ in await db.select(Team).page():  # E
        use()
    with db.transaction():  # E
        use()
    async with db.transaction() as tx:
        await tx.insert(Team(name="a"))  # E
    await connect("local::memory:")  # E
    await db.bulk()  # E
    use(Team.nmae == "a")  # E
    db.changes(Team).all()  # E


# Relations


class Office(Entity, table="Offices", partition_key="{name}", row_key="office"):
    name: Mapped[str]

    teams = many(lambda: Team, department="{name}", on_delete="keep")
    first = one(lambda: Team, department="{name}")
    bad = many(lambda: Team, department="{name}")  # E
    worse = many(lambda: Team, department="{name}", on_delete="drop")  # E


async def loads(db: Database, office: Office, team: Team) -> None:
    office.teams = ()  # E
    office.first = team  # E
    await db.load(team, Office.teams)  # E
    await db.load(office, Team.department)  # E
    await db.load(office)  # E


# Upgrades


@upgrade(Team, from_version="1")  # E
def upgraded(bag: PropertyBag) -> PropertyBag:
    return bag


@upgrade(Team, from_version=1)  # E
def returns_nothing(bag: PropertyBag) -> None:
    bag["x"] = 1


@upgrade(Team, from_version=2)
def fine(bag: PropertyBag) -> PropertyBag:
    value: Any = bag["x"]
    bag["y"] = value
    return bag
