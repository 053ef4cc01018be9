"""
Which queries take an index on their own, what explains it, and that nobody can tell.
"""

import pytest

from tableorm import Access, Database, Entity, Expression, Index, Mapped, ModelError, ScanRefused, field
from tableorm.derived.index.effect import IndexMaintainer
from tableorm.expressions import NoneOf
from tableorm.models.derivation import bound_to


class Person(Entity, table="Paths", partition_key="{city}", row_key="id_{id:04d}"):
    city: Mapped[str]
    id: Mapped[int]
    name: Mapped[str] = field(default="Li")
    email: Mapped[str | None] = field(default=None)
    age: Mapped[int] = field(default=0)

    by_email = Index(row_key="email_{email}", unique=True)
    by_name = Index(row_key="name_{name}_{id:04d}")
    by_name_alone = Index(row_key="keys_{name}_{id:04d}", include="keys")
    by_age = Index(row_key="age_{age:03d}_{id:04d}", where=lambda person: person.age > 10)
    by_both = Index(row_key="both_{age:03d}_{name}_{id:04d}", include=["age"], building=True)


class Ticket(Entity, table="Paths", partition_key="{city}", row_key="ticket_{seat}_{id:03d}"):
    city: Mapped[str]
    id: Mapped[int]
    seat: Mapped[str]
    row: Mapped[str] = field(default="a")
    code: Mapped[str] = field(default="")

    by_all = Index(row_key="all_{id:03d}_{row}_{seat}_{id:03d}")
    by_hash = Index(row_key="hash_{code:spread(4)}", unique=True)


@pytest.fixture(name="db")
async def db_with_tables(db: Database) -> Database:
    await db.create_tables(Person, Ticket)
    return db


def path(db: Database, *conditions: object) -> tuple[str, Access]:
    explained = db.select(Person).where(Person.city == "Oslo", *conditions).explain()  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    return explained.path, explained.access


async def test_a_unique_value_is_a_point(db: Database) -> None:
    """Equality on the fields of an index is one point query of a copy."""
    assert path(db, Person.email == "a@x") == ("index Person.by_email", Access.POINT)
    assert path(db, Person.email == "a@x", Person.age > 3) == ("index Person.by_email", Access.POINT)
    assert path(db, Person.email == "a@x", Person.id.in_([1, 2])) == ("primary key", Access.POINTS)  # as good


async def test_a_value_of_many_is_a_range_in_the_same_order(db: Database) -> None:
    """Behind the value the copies are in the order of the primary key."""
    assert path(db, Person.name == "Li") == ("index Person.by_name", Access.RANGE)
    assert path(db, Person.name == "Li", Person.id > 3) == ("primary key", Access.RANGE)  # no better, and not followed


async def test_what_would_show_takes_the_primary_key(db: Database) -> None:
    """Another order, copies that not all entities have, an index that is being built, and conditions on RowKey."""
    for conditions in (
        (Person.email > "a",),
        (Person.name > "L",),
        (Person.email.is_none(),),
        (Person.email != "a@x",),
        (Person.age == 20,),
        (Person.age == 20, Person.name == "Li", Person.id == 3),
        (~(Person.email == "a@x"),),
    ):
        assert path(db, *conditions)[0] == "primary key"
    assert path(db, Person.id == 3) == ("primary key", Access.POINT)


async def test_conditions_that_nest_too_deep_are_refused(db: Database) -> None:
    """Before anything looks whether an index holds what they name."""
    deep: Expression = Person.age == 1
    for _ in range(3_000):
        deep = NoneOf(deep)
    with pytest.raises(ModelError, match="nests deeper than 50 levels"):
        path(db, deep)


async def test_a_refused_scan_names_the_index(db: Database) -> None:
    """With the partition the index would serve."""
    with pytest.raises(ScanRefused, match=r"Person.city == ...\), which then uses Person.by_email"):
        await db.select(Person).where(Person.email == "a@x").all()
    for condition in (Person.id == 3, Person.age == 20):  # no index begins with it, or not one that has every entity
        with pytest.raises(ScanRefused, match=r"Person.city == ...\), or .allow_scan"):
            await db.select(Person).where(condition).all()


async def test_a_field_that_comes_twice_does_not_make_an_order(db: Database) -> None:
    """What stands before the fields of the primary key has to be equal, whatever stands there again."""
    for number in range(3):
        await db.insert(Ticket(city="Oslo", id=1, seat=str(number), row="cba"[number], code=str(number)))
    found = db.select(Ticket).where(Ticket.city == "Oslo", Ticket.id == 1)
    assert [each.seat for each in await found.all()] == ["0", "1", "2"]


async def test_a_hash_that_is_the_same_is_not_the_value(db: Database) -> None:
    """Of a key that holds a value in part, the value itself is compared: by the index, counted, and by itself."""
    await db.insert(Ticket(city="Oslo", id=1, seat="1", code="7"))
    (entries,) = bound_to(Ticket.by_hash, IndexMaintainer)
    addresses = entries.row_schema.addresses
    same = next(code for code in map(str, range(8, 99)) if addresses({"code": code}) == addresses({"code": "7"}))
    for code, expected in (("7", 1), (same, 0)):
        for query in (db.select(Ticket.by_hash), db.select(Ticket)):
            found = query.where(Ticket.city == "Oslo", Ticket.code == code)
            assert (len(await found.all()), await found.count(), await found.exists()) == (
                expected,
                expected,
                bool(expected),
            )
            assert len(await found.only(Ticket.code).all()) == expected
