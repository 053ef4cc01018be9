"""
Kinds and versions: which model a stored row is of, and how an old row becomes a current entity.
"""

import datetime as dt
from typing import Any

import pytest

from tableorm import DecodeError, Entity, Mapped, ModelError, PropertyBag, field, upgrade
from tableorm.models.kinds import KindSet
from tableorm.protocol.filters import matcher
from tableorm.stores import Row


class Employee(Entity, table="Directory", partition_key="{department}", row_key="empid_{id:06d}", version=4):
    department: Mapped[str]
    id: Mapped[int]
    age: Mapped[int | None] = field(default=None)
    name: Mapped[str] = field(default="")


@upgrade(Employee, from_version=1)
def years_to_age(bag: PropertyBag) -> PropertyBag:
    bag["age"] = bag.pop("years", None)
    return bag


@upgrade(Employee, from_version=2)
def first_to_name(bag: PropertyBag) -> PropertyBag:
    # Another bag, without keys and kind, does as well.
    fresh = PropertyBag("Elsewhere", "", "")
    for name, value in bag.items():
        fresh[{"first": "name"}.get(name, name)] = value
    return fresh


@upgrade(Employee, from_version=3)
def older(bag: PropertyBag) -> PropertyBag:
    if "age" in bag:
        bag["age"] += 1
    return bag


class Department(Entity, table="Directory", partition_key="{name}", row_key="department"):
    name: Mapped[str]


class Person(
    Entity, table="People", partition_key="p", row_key="{kind}_{n:03d}", abstract=True, discriminator="row_key"
):
    n: Mapped[int]
    note: Mapped[str] = field(default="")


class Customer(Person, kind="C", version=2): ...


@upgrade(Customer, from_version=1)
def old_note(bag: PropertyBag) -> PropertyBag:
    bag["note"] = bag.pop("old_note", "")
    return bag


class Staff(Person, kind="S"): ...


class StaffTrainee(Person, kind="Sx"):
    """Its head begins as Staff's letter, not as Staff's head."""


class Numbered(Entity, table="Directory", partition_key="{p}", row_key="m_{n}", kind=None):
    p: Mapped[str]
    n: Mapped[int]


class Foreign(Entity, table="Directory", partition_key="{p}", row_key="{r}", kind=None):
    p: Mapped[str]
    r: Mapped[str]


def employee(kind: object, **properties: Any) -> Row:
    return {"PartitionKey": "Sales", "RowKey": "empid_000005", "EntityType": kind, **properties}


def load(models: list[type[Any]], row: Row) -> Any:
    """What a query gets for a row, in both ways of reading."""
    kinds = KindSet.of(models)
    one, many = kinds.load(dict(row)), kinds.load_all([dict(row)])
    assert many == ([] if one is None else [one])
    return one


# Which kind


def test_kinds_by_property() -> None:
    """A row is of the kind that its EntityType says; rows of other kinds, or of none, are not."""
    assert load([Employee], employee("Employee:4", age="5", **{"age@odata.type": "Edm.Int64"})).age == 5
    for kind in ("Manager", "employee", "", 5, None):
        assert load([Employee, Department], employee(kind)) is None
    assert load([Employee], {"PartitionKey": "p", "RowKey": "r"}) is None


def test_several_kinds() -> None:
    """A query of several models gets each row as its own class; PropertyBag brings the rest."""
    department = {"PartitionKey": "Sales", "RowKey": "department", "EntityType": "Department"}
    models: list[type[Any]] = [Employee, Department, PropertyBag]

    assert isinstance(load(models, employee("Employee:4")), Employee)
    assert load(models, department) == Department(name="Sales")
    rest = load(models, {"PartitionKey": "p", "RowKey": "r", "x": 1})
    assert isinstance(rest, PropertyBag)
    assert (rest.table, dict(rest)) == ("Directory", {"x": 1})


@pytest.mark.parametrize(
    ("stored", "matches"),
    [
        ("Employee", True),
        ("Employee:2", True),
        ("Employee:17", True),
        ("Employees", False),
        ("Employee2", False),
        ("Employe", False),
        ("Employee;", False),
        ("employee", False),
    ],
)
def test_the_filter_of_a_kind(stored: str, matches: bool) -> None:
    """The filter brings every version of the kind, and no other kind."""
    where = KindSet.of([Employee]).filter
    assert where is not None

    assert matcher(where)(employee(stored)) is matches


def test_an_abstract_base_is_all_of_its_kinds() -> None:
    """An abstract base stands for its concrete classes, told apart by the key's head."""
    assert [schema.model for schema in KindSet.of([Person]).schemas] == [Customer, Staff, StaffTrainee]

    found = [load([Person], {"PartitionKey": "p", "RowKey": key}) for key in ("C_001", "S_002", "Sx_003", "T_004", "Z")]
    assert [type(entity) for entity in found] == [Customer, Staff, StaffTrainee, type(None), type(None)]


def test_a_function_tells_kinds() -> None:
    """A function from a bag to a model decides; for None or another model the row is not of these kinds."""

    def choose(bag: PropertyBag) -> type[Entity]:
        return Round if bag.get("radius") else Square

    class Shape(Entity, table="Shapes", partition_key="p", row_key="{n:03d}", abstract=True, discriminator=choose):
        n: Mapped[int]

    class Round(Shape):
        radius: Mapped[float]

    class Square(Shape): ...

    round_row: Row = {"PartitionKey": "p", "RowKey": "001", "radius": 2.5}
    assert load([Shape], round_row) == Round(n=1, radius=2.5)
    assert load([Shape], {"PartitionKey": "p", "RowKey": "002"}) == Square(n=2)
    assert load([Square], round_row) is None
    assert KindSet.of([Shape]).filter is None


def test_without_kind() -> None:
    """A model with kind=None takes every row; among others, those that are of no other kind, in whatever order."""
    assert load([Foreign], employee("Manager")) == Foreign(p="Sales", r="empid_000005")
    for models in ([Foreign, Employee], [Employee, Foreign]):
        assert type(load(models, employee("Employee:4"))) is Employee
        assert type(load(models, employee("Manager"))) is Foreign


def test_bags_beside_a_model_without_kind() -> None:
    """A row whose keys are none of the model is a bag if bags are asked for; one that has its keys is of the model."""
    row: Row = {"PartitionKey": "p", "RowKey": "m_1"}
    others: list[Row] = [row | {"RowKey": "m_x"}, row | {"RowKey": "par", "EntityType": "Par"}]

    with_bags = KindSet.of([Numbered, PropertyBag])

    assert with_bags.load_all([row, row | {"EntityType": "Par"}]) == [Numbered(p="p", n=1), Numbered(p="p", n=1)]
    assert [(type(found), found.row) for found in map(with_bags.load, others) if isinstance(found, PropertyBag)] == [
        (PropertyBag, other) for other in others
    ]
    for other in others:
        with pytest.raises(DecodeError, match="does not match the template"):
            KindSet.of([Numbered]).load(other)


def test_a_base_without_classes() -> None:
    """An abstract base cannot be queried before it has classes."""

    class Nothing(Entity, table="Directory", abstract=True): ...

    with pytest.raises(ModelError, match="Nothing is abstract and has no concrete classes"):
        KindSet.of([Nothing])


# Versions


@pytest.mark.parametrize(
    ("kind", "properties", "age", "name"),
    [
        ("Employee", {"years": "40", "years@odata.type": "Edm.Int64", "first": "Jun"}, 41, "Jun"),
        ("Employee:1", {"years": 40, "first": "Jun"}, 41, "Jun"),
        ("Employee:2", {"age": 40, "first": "Jun"}, 41, "Jun"),
        ("Employee:3", {"age": 40, "name": "Jun"}, 41, "Jun"),
        ("Employee:4", {"age": 40, "name": "Jun"}, 40, "Jun"),
        ("Employee", {}, None, ""),
    ],
)
def test_upgrades_run_one_after_the_other(kind: str, properties: Row, age: int | None, name: str) -> None:
    """An old row passes through every upgrade from its version on; a current one through none."""
    found = load([Employee], employee(kind, **properties))

    assert (found.department, found.id, found.age, found.name) == ("Sales", 5, age, name)


def test_an_upgraded_entity_keeps_what_it_was_read_with() -> None:
    """ETag, timestamp, keys and unknown properties stay, whatever the upgrade returns; the row is not changed."""
    row = employee(
        "Employee", years=40, Phone="555", **{"odata.etag": "W/x", "Timestamp": "2024-02-29T12:00:00.0000000Z"}
    )
    before = dict(row)

    found = KindSet.of([Employee]).load(row)

    assert isinstance(found, Employee)
    assert found.etag == "W/x"
    assert found.timestamp == dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
    assert found.key == Employee.key(department="Sales", id=5)
    assert dict(found.extra) == {"Phone": "555"}
    assert row == before


def test_a_newer_row() -> None:
    """A row newer than the code is read as far as its known fields decode; the rest is unknown properties."""
    found = load([Employee], employee("Employee:9", age=40, mood="good"))

    assert (found.age, dict(found.extra)) == (40, {"mood": "good"})
    with pytest.raises(DecodeError, match=r"Employee\.age"):
        KindSet.of([Employee]).load(employee("Employee:9", age="forty"))


@pytest.mark.parametrize("version", ["", "x", "0", "-1", "1.5", "²", pytest.param("9" * 5_000, id="endless")])
def test_versions_that_are_no_numbers(version: str) -> None:
    """A version that is no number from 1, or of more digits than an integer takes, is rejected, naming the row."""
    with pytest.raises(DecodeError, match=r"Employee.*Sales.*version.*not a number from 1"):
        KindSet.of([Employee]).load(employee(f"Employee:{version}"))


def test_versions_where_a_key_tells_the_kind() -> None:
    """There the version is a property of its own, from 2 on, stored by whatever program as whatever integer."""
    row: Row = {"PartitionKey": "p", "RowKey": "C_001", "old_note": "x"}

    assert Customer.__schema__.kind_properties == {"EntityVersion": 2}
    assert Staff.__schema__.kind_properties == {}
    assert load([Person], row).note == "x"
    assert load([Person], {**row, "EntityVersion": 2, "note": "y"}).note == "y"
    old = load([Person], {**row, "EntityVersion": "1", "EntityVersion@odata.type": "Edm.Int64"})
    assert (old.note, dict(old.extra)) == ("x", {})
    encoded, _ = Customer.__schema__.encode(old.__dict__, "p", "C_001")
    assert encoded == {"PartitionKey": "p", "RowKey": "C_001", "EntityVersion": 2, "note": "x"}


def test_a_missing_upgrade() -> None:
    """A step that nothing takes is named, with the declaration that is missing."""

    class Old(Entity, table="Old", partition_key="p", row_key="r", version=3): ...

    upgrade(Old, from_version=1)(lambda bag: bag)

    with pytest.raises(DecodeError, match=r"Old.*version 1.*@upgrade\(Old, from_version=2\)"):
        KindSet.of([Old]).load({"PartitionKey": "p", "RowKey": "r", "EntityType": "Old"})


def test_upgrades_of_an_abstract_base() -> None:
    """An upgrade of an abstract base serves all of its classes; a class's own comes first."""

    class Base(Entity, table="Base", partition_key="p", row_key="r", abstract=True):
        note: Mapped[str] = field(default="")

    class Plain(Base, version=2): ...

    class Special(Base, version=2): ...

    def mark(text: str) -> Any:
        def step(bag: PropertyBag) -> PropertyBag:
            bag["note"] = text
            return bag

        return step

    upgrade(Base, from_version=1)(mark("base"))
    upgrade(Special, from_version=1)(mark("special"))

    assert load([Plain], {"PartitionKey": "p", "RowKey": "r", "EntityType": "Plain"}).note == "base"
    assert load([Special], {"PartitionKey": "p", "RowKey": "r", "EntityType": "Special"}).note == "special"


def test_upgrades_that_are_wrong() -> None:
    """An upgrade returns the bag; one that does not is named."""

    class Odd(Entity, table="Odd", partition_key="p", row_key="r", version=2): ...

    def forget(bag: PropertyBag) -> Any:
        bag.clear()

    upgrade(Odd, from_version=1)(forget)

    with pytest.raises(ModelError, match=r"Odd from version 1 must return the bag, got None"):
        KindSet.of([Odd]).load({"PartitionKey": "p", "RowKey": "r", "EntityType": "Odd"})


@pytest.mark.parametrize(
    ("model", "version", "words"),
    [
        (Employee, 4, ["Employee", "from_version=4", "version is 4", "at least 5"]),
        (Employee, 1, ["Employee", "from_version=1", "already"]),
        (Employee, 0, ["from_version=0", "count from 1"]),
        (Employee, "1", ["from_version='1'", "count from 1"]),
        (Department, 1, ["Department", "version is 1", "at least 2"]),
        (dict, 1, ["dict", "not a model"]),
    ],
)
def test_upgrades_that_never_run(model: Any, version: Any, words: list[str]) -> None:
    """An upgrade from a version that is not below the model's, or taken already, is rejected; so is one of no model."""
    with pytest.raises(ModelError) as caught:
        upgrade(model, from_version=version)(lambda bag: bag)
    for word in words:
        assert word in str(caught.value)


def test_an_upgraded_row_that_does_not_fit() -> None:
    """What an upgrade makes is decoded as any row, and refused by field."""

    class Odd(Entity, table="Odd", partition_key="p", row_key="r", version=2):
        age: Mapped[int]

    upgrade(Odd, from_version=1)(lambda bag: bag)

    with pytest.raises(DecodeError, match=r"Odd\.age.*no property 'age'"):
        KindSet.of([Odd]).load({"PartitionKey": "p", "RowKey": "r", "EntityType": "Odd"})
