"""
Declaring indexes: what they are, and what is rejected, by name, when the class is made.
"""

import pickle
from collections.abc import Callable
from typing import Any, cast

import pytest

from tableorm import (
    Count,
    Database,
    Entity,
    EntityNotFound,
    Index,
    IndexList,
    IndexOf,
    Mapped,
    ModelError,
    PropertyBag,
    TableOrmError,
    TemplateError,
    UniqueViolation,
    field,
)
from tests.derived.index.oracle import read_table
from tests.derived.index.staff import Employee


def model(indexes: dict[str, Any], *bases: type[Entity], name: str = "Person", **keywords: Any) -> type[Any]:
    """A model with these indexes, and what is given besides."""
    space: dict[str, Any] = {
        "__annotations__": {
            "group": Mapped[str],
            "id": Mapped[int],
            "email": Mapped[str | None],
            "age": Mapped[int],
            "kept": Mapped[int],
        },
        "__module__": __name__,
        "email": field(default=None),
        "age": field(default=0),
        "kept": field(default=0, maintained=bool(keywords.pop("keeps", False))),
        **indexes,
    }
    given = {"table": "People", "partition_key": "{group}", "row_key": "person_{id:04d}", **keywords}
    return cast("type[Any]", type(name, bases or (Entity,), space, **given))


def child(name: str, base: type[Entity], by_email: Index | None = None, **keywords: Any) -> Any:
    """A model that derives from another one, with another index if one is given."""
    declared = {} if by_email is None else {"by_email": by_email}
    return type(name, (base,), {"__module__": __name__, **declared}, **keywords)


def by_email(**options: Any) -> dict[str, Any]:
    return {"by_email": Index(row_key="email_{email}", **options)}


EMAIL = by_email(unique=True)


def _employee(bag: PropertyBag) -> type[Entity]:
    return Employee


REFUSED: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    "not unique, and without the key": (
        lambda: model(by_email()),
        ("Person.by_email", "'email_{email}'", "lacks id", "add {id}", "unique=True"),
    ),
    "the key of an entity": (
        lambda: model({"by_id": Index(row_key="person_{id:04d}", unique=True)}),
        ("Person.by_id", "'person_{id:04d}'", "Person.row_key", "by_id_person_"),
    ),
    "the key of another index": (
        lambda: model(
            {"one": Index(row_key="x_{email}", unique=True), "two": Index(row_key="x_{age}_{id}", include="keys")}
        ),
        ("Person.two", "Person.one", "'x_{email}'", "'x_{age}_{id}'", "two_x_"),
    ),
    "the key of a list": (
        lambda: model({"one": IndexList(row_key="x_{email}"), "two": Index(row_key="x_{age}_{id}")}),
        ("Person.two", "Person.one", "'x_{email}'"),
    ),
    "the key of a row of a list": (
        lambda: model({"one": IndexList(row_key="all"), "two": Index(row_key="all~{id}")}),
        ("Person.two", "'all~{id}'", "Person.one", "'all'"),
    ),
    "an entity's key that a row of a list can have": (
        lambda: model({"one": IndexList(row_key="all")}, row_key="all~{id}"),
        ("Person.one", "'all'", "Person.row_key", "'all~{id}'"),
    ),
    "the object of another index": (
        lambda: model({"one": (same := Index(row_key="x_{age}_{id}")), "two": same}),
        ("Person.two", "the same object", "'one'", "a separate Index(...)"),
    ),
    "no object": (
        lambda: model({"by_email": Index}),
        ("Person.by_email", "is the class Index", "write Index(...)"),
    ),
    "unique": (
        lambda: model(by_email(unique="no")),
        ("unique='no'", "True or False"),
    ),
    "no such field": (
        lambda: model({"by_mail": Index(row_key="mail_{mail}", unique=True)}),
        ("Person.by_mail", "mail_{mail}", "mail"),
    ),
    "a template that cannot be read back": (
        lambda: model({"by_both": Index(row_key="x_{email}{id:04d}{age}")}),
        ("Person.by_both", "x_{email}{id:04d}{age}"),
    ),
    "a field of include": (
        lambda: model(by_email(unique=True, include=["mail"])),
        ("Person.by_email", "include=['mail']", "no field 'mail'", "email"),
    ),
    "include": (
        lambda: model(by_email(include="some")),
        ("include='some'", "'all', 'keys'"),
    ),
    "no template": (
        lambda: model({"by_email": Index(row_key=cast("Any", None))}),
        ("row_key=None", "email_{email}"),
    ),
    "no condition": (
        lambda: model(by_email(where=True)),
        ("Index(where=True)", "lambda e:"),
    ),
    "no kind": (
        lambda: model(EMAIL, kind=None),
        ("Person.by_email", "kind=None"),
    ),
    "kinds told by a function": (
        lambda: model(EMAIL, discriminator=_employee),
        ("Person.by_email", "discriminator='property'"),
    ),
    "the name of something else": (
        lambda: model({"key": Index(row_key="email_{email}", unique=True)}),
        ("Person.key", "every entity has an attribute 'key'"),
    ),
    "a private name": (
        lambda: model({"_by_email": Index(row_key="email_{email}", unique=True)}),
        ("Person._by_email", "reserved; rename it"),
    ),
    "a kept field in a template": (
        lambda: model({"by_kept": Index(row_key="kept_{kept}_{id}", include="keys")}, keeps=True),
        ("Person.by_kept", "'kept_{kept}_{id}'", "kept", "leave it out"),
    ),
    "a kept field in copies": (
        lambda: model(by_email(unique=True, include=["age", "kept"]), keeps=True),
        ("Person.by_email", "include=['age', 'kept']", "kept", "leave it out"),
    ),
    "a kept field in a list": (
        lambda: model({"by_kept": IndexList(row_key="kept_{kept}")}, keeps=True),
        ("Person.by_kept", "'kept_{kept}'", "leave it out"),
    ),
    "a kept field that is counted by": (
        lambda: model({"n": Count(lambda: cast("Any", None), name="{kept}")}, keeps=True),
        ("Person.n", "'kept'", "leave it out"),
    ),
}


OF_TEMPLATES = ("no such field", "a template that cannot be read back")


@pytest.mark.parametrize("case", REFUSED)
def test_is_refused(case: str) -> None:
    """The message names the model, the index, what is wrong with it, and what to do."""
    declare, words = REFUSED[case]
    with pytest.raises((ModelError, TemplateError)) as caught:
        declare()
    assert isinstance(caught.value, TemplateError) == (case in OF_TEMPLATES)
    assert [word for word in words if word not in str(caught.value)] == []


def test_a_field_does_not_hide_an_index() -> None:
    """The index is inherited, and both would be one attribute."""
    base = model(EMAIL)
    space = {"__annotations__": {"by_email": Mapped[int]}, "__module__": __name__, "by_email": field(default=0)}
    with pytest.raises(ModelError, match=r"Child\.by_email is a field, and hides an inherited index"):
        type("Child", (base,), space)


def test_an_index_does_not_hide_a_field() -> None:
    """Likewise the other way round."""
    with pytest.raises(ModelError, match=r"Child\.age = .* hides an inherited field"):
        type("Child", (model({}),), {"age": Index(row_key="x_{id}"), "__module__": __name__})


def test_copies_of_a_family_whose_keys_tell_kinds_are_no_entities() -> None:
    """A copy that could be taken for a sibling is rejected, whichever of the two is declared first."""
    index = Index(row_key="STAFF_{email}_{id}")
    base = model({}, abstract=True, discriminator="row_key", row_key="{kind}_{email}", name="Base")
    staff = child("Staff", base, kind="STAFF")  # a class that nobody has is none
    with pytest.raises(ModelError, match=rf"Customer\.by_email.*'STAFF_.*'.*{staff.__name__}\.row_key"):
        child("Customer", base, by_email=index, kind="CUSTOMER", row_key="C_{id}")

    other = model({}, abstract=True, discriminator="row_key", row_key="{kind}_{email}", name="Other", table="Others")
    first = child("First", other, by_email=index, kind="FIRST", row_key="F_{id}")
    with pytest.raises(ModelError, match=r"First\.by_email.*Second\.row_key"):
        child("Second", other, kind="STAFF")
    assert first.by_email == IndexOf(first, "by_email")


def test_an_index_belongs_to_the_class() -> None:
    """An entity has none, and the message says where it is."""
    with pytest.raises(AttributeError, match=r"it belongs to the class, Employee\.by_email"):
        _ = Employee(department="Sales", id=1).by_email


async def test_an_index_is_no_model(db: Database) -> None:
    """What takes a model and key fields says how to get at the entity instead."""
    await db.create_tables(Employee)
    by_email: Any = Employee.by_email
    wanted = r"Employee\.by_email is not a model: read the entity with it first, .*, or give Employee with its"
    with pytest.raises(ModelError, match=wanted):
        await db.modify(by_email, lambda _: None, department="Sales", email="e1@x")
    with pytest.raises(ModelError, match=wanted):
        await db.delete(by_email, department="Sales", email="e1@x", if_match="*")


def test_an_index_can_be_pickled_and_compared() -> None:
    """It stands for a class and a name."""
    assert pickle.loads(pickle.dumps(Employee.by_email)) == Employee.by_email
    assert str(Employee.by_email) == "Employee.by_email"
    assert len({Employee.by_email, Employee.by_email, Employee.by_age}) == 2


def test_a_limit_of_properties_is_checked_for_copies() -> None:
    """What notes and keys add counts."""
    space: dict[str, Any] = {"__annotations__": {"group": Mapped[str], "id": Mapped[int]}, "__module__": __name__}
    space["__annotations__"] |= {f"x{n}": Mapped[int] for n in range(249)}
    wide: Any = type("Wide", (Entity,), dict(space), table="Wide", partition_key="{group}", row_key="w_{id}")
    assert len(wide.__schema__.stored) == 249
    with pytest.raises(ModelError, match=r"Wide\.by_x: its entries would have 250 properties.*include="):
        type(
            "Wide",
            (Entity,),
            {**space, "by_x": Index(row_key="x_{x1}", unique=True)},
            table="Wide",
            partition_key="{group}",
            row_key="w_{id}",
        )


async def test_classes_inherit_indexes(db: Database) -> None:
    """Each concrete class has those of its bases, and its copies their own kind."""
    base = model(
        {"by_email": Index(row_key="email_{email}_{kind}_{id:04d}")}, abstract=True, name="Base", row_key="b_{id:04d}"
    )
    one = child("One", base, row_key="one_{id:04d}")
    two = child("Two", base, row_key="two_{id:04d}", naming="pascal")
    await db.create_tables(one, two)
    await db.insert(one(group="g", id=1, email="b"))
    await db.insert(two(group="g", id=2, email="a"))

    assert {bag["EntityType"] for bag in (await read_table(db, "People")).values()} == {
        "One",
        "Two",
        "One#by_email",
        "Two#by_email",
    }
    assert [type(each) for each in await db.select(base.by_email).where(base.group == "g").all()] == [two, one]
    assert [type(each) for each in await db.select(one.by_email).where(one.group == "g").all()] == [one]
    with pytest.raises(ModelError, match="abstract"):
        await db.get(base.by_email, group="g", email="b", id=1)


@pytest.mark.parametrize("kind", [Index, IndexList])
def test_a_family_does_not_share_other_rows(kind: type[Any]) -> None:
    """Entities of two kinds whose own keys begin otherwise can have the same number, and would want one copy."""
    base = model({"by_email": kind(row_key="email_{email}_{id:04d}")}, abstract=True, name="Base", row_key="b_{id:04d}")
    _one = child("One", base, row_key="one_{id:04d}")
    with pytest.raises(ModelError, match=r"Two.by_email: .* of One.by_email .* put \{kind\} into it"):
        child("Two", base, row_key="two_{id:04d}")


async def test_a_class_can_replace_an_index(db: Database) -> None:
    """The nearest class counts."""
    base = model(EMAIL)
    derived = child("Child", base, by_email=Index(row_key="mail_{email}_{id}"), row_key="child_{id:04d}")
    await db.create_tables(derived)
    await db.insert(derived(group="g", id=1, email="a"))

    assert ("g", "mail_a_1") in await read_table(db, "People")


async def test_a_family_shares_unique_values(db: Database) -> None:
    """An index of a base is unique among all classes that derive from it."""
    base = model(EMAIL, abstract=True, name="Base")
    one = child("One", base, row_key="one_{id:04d}")
    two = child("Two", base, row_key="two_{id:04d}")
    await db.create_tables(one)
    await db.insert(one(group="g", id=1, email="a"))
    with pytest.raises(UniqueViolation, match="'one_0001' of this partition has email='a' already"):
        await db.insert(two(group="g", id=1, email="a"))


async def test_fields_are_stored_by_their_names(db: Database) -> None:
    """`naming` and `field(name=)` hold for copies too, also for fields that only keys of the entity hold."""
    space: dict[str, Any] = {
        "__annotations__": {"group": Mapped[str], "user_id": Mapped[int], "e_mail": Mapped[str], "age": Mapped[int]},
        "__module__": __name__,
        "age": field(name="Years"),
        "by_email": Index(row_key="email_{e_mail}", unique=True),
    }
    named: Any = type(
        "Named", (Entity,), space, table="People", partition_key="{group}", row_key="n_{user_id}", naming="pascal"
    )
    await db.create_tables(named)
    await db.insert(named(group="g", user_id=7, e_mail="a", age=30))

    copy = (await read_table(db, "People"))["g", "email_a"]
    assert {name: copy[name] for name in ("UserId", "EMail", "Years")} == {"UserId": 7, "EMail": "a", "Years": 30}
    assert await db.get(named.by_email, group="g", e_mail="a") == named(group="g", user_id=7, e_mail="a", age=30)


def test_two_fields_of_copies_have_two_names() -> None:
    """What only keys hold is stored in copies, where its name may be taken."""
    space: dict[str, Any] = {
        "__annotations__": {"group": Mapped[str], "number": Mapped[int], "email": Mapped[str], "other": Mapped[int]},
        "__module__": __name__,
        "other": field(name="number"),
        "by_email": Index(row_key="email_{email}", unique=True),
    }
    with pytest.raises(ModelError, match=r"Twice\.by_email: its entries would store both .* as 'number'"):
        type("Twice", (Entity,), space, table="People", partition_key="{group}", row_key="n_{number}")


async def test_a_condition_that_fails_names_the_index(db: Database) -> None:
    """The error says what was asked of which entity, and has the program's own as its cause; nothing is written."""

    def fails(entity: Any) -> bool:
        raise ValueError(entity.id)

    failing = model(by_email(unique=True, where=fails), name="Failing")
    await db.create_tables(failing)
    asked = r"where= of the index Failing\.by_email raised ValueError\(7\) for Failing\(group='g', id=7"
    with pytest.raises(ModelError, match=asked) as caught:
        await db.insert(failing(group="g", id=7, email="a"))
    assert isinstance(caught.value.__cause__, ValueError)
    assert await read_table(db, "People") == {}


async def test_a_condition_does_not_see_what_others_keep(db: Database) -> None:
    """That changes without the entity being written, so that the copy would not follow."""
    keeping = model(
        {"by_email": Index(row_key="email_{email}_{id}", include="keys", where=lambda e: e.kept > 3)},
        name="Keeping",
        keeps=True,
    )
    await db.create_tables(keeping)
    with pytest.raises(TableOrmError, match="kept"):
        await db.insert(keeping(group="g", id=1, email="a"))


async def test_missing_and_unknown_fields_are_named(db: Database) -> None:
    """Of the key of an index as of any other."""
    await db.create_tables(Employee)
    with pytest.raises(TemplateError, match=r"Employee\.by_email.*needs 'email'"):
        await db.get(Employee.by_email, department="Sales")
    with pytest.raises(TemplateError, match=r"Employee\.by_email.*does not take 'id'"):
        await db.get(Employee.by_email, department="Sales", email="x", id=5)
    with pytest.raises(EntityNotFound, match=r"there is no Employee\.by_email of department='Sales', email='x'"):
        await db.get(Employee.by_email, department="Sales", email="x")
