"""
Entities as values: equality, copies, pickling, and what an entity keeps of the row it was read from.
"""

import copy
import pickle
from typing import Any
from uuid import UUID

import pytest

from tableorm import DecodeError, EncodeError, Entity, Field, Mapped, ModelError, NotLoaded, PropertyBag, field
from tableorm.models.entity import schema_of


class Employee(Entity, table="Directory", partition_key="{department}", row_key="empid_{id:06d}"):
    department: Mapped[str]
    id: Mapped[int]
    name: Mapped[str] = field(default="")
    age: Mapped[int | None] = field(default=None, name="Age")
    tags: Mapped[list[str]] = field(factory=list)


class Manager(Employee): ...


ROW: dict[str, Any] = {
    "PartitionKey": "Sales",
    "RowKey": "empid_000010",
    "Timestamp": "2024-02-29T12:00:00.1234567Z",
    "odata.etag": "W/\"datetime'2024-02-29T12%3A00%3A00.1234567Z'\"",
    "EntityType": "Employee",
    "name": "Ken",
    "Age": "23",
    "Age@odata.type": "Edm.Int64",
    "Phone": "555",
    "Badge": "00000000-0000-0000-0000-000000000001",
    "Badge@odata.type": "Edm.Guid",
    "Floor": 3,
}


def ken() -> Employee:
    entity: Employee = Employee.__schema__.decode(dict(ROW))
    return entity


def test_equality() -> None:
    """Entities of one class are equal if their fields are; ETags, stored keys and unknown properties do not matter."""
    new = Employee(department="Sales", id=10, name="Ken", age=23)

    assert ken() == new
    assert ken() != new.evolve(age=24)
    assert new != Manager(department="Sales", id=10, name="Ken", age=23)
    assert new != "Ken"


def test_not_hashable() -> None:
    """An entity can change, so it is no member of a set; its key is."""
    entity = ken()

    with pytest.raises(TypeError, match="unhashable"):
        hash(entity)
    assert hash(entity.key) == hash(Employee.key(department="Sales", id=10))


def test_repr() -> None:
    """An entity shows its class and fields."""
    assert repr(ken()) == "Employee(department='Sales', id=10, name='Ken', age=23, tags=[])"


@pytest.mark.parametrize("name", ["etag", "timestamp", "extra"])
def test_what_is_not_for_setting(name: str) -> None:
    """They are not for setting."""
    with pytest.raises(ModelError, match=f"Employee has no field '{name}', which is set to None"):
        setattr(ken(), name, None)


def test_fields_on_the_class() -> None:
    """On the class a field is an expression that knows its class, on an instance a value."""
    assert isinstance(Employee.age, Field)
    assert str(Employee.age) == "Employee.age"
    assert str(Manager.age) == "Manager.age"
    assert Employee.age is Employee.age


def test_fields_that_were_not_loaded() -> None:
    """A field without a value says so, by name; what was loaded compares, shows and copies."""
    entity = ken()
    del entity.__dict__["name"]
    other = entity.evolve(age=1)

    with pytest.raises(NotLoaded, match=r"Employee\.name.*not loaded"):
        entity.name  # noqa: B018
    assert not hasattr(entity, "name")
    assert "name" not in repr(entity)
    assert entity != ken()
    assert other != entity
    assert other.evolve(age=23) == entity
    entity.name = "Ken"
    assert entity == ken()


def test_evolve() -> None:
    """A copy has the changes, and the same ETag, stored keys and unknown properties, without sharing them."""
    entity = ken()
    entity.extra["Phone"] = "556"
    older = entity.evolve(age=48)

    assert (older.age, entity.age) == (48, 23)
    assert (older.etag, older.key, dict(older.extra)) == (entity.etag, entity.key, dict(entity.extra))
    older.extra["Phone"] = "557"
    assert entity.extra["Phone"] == "556"


@pytest.mark.parametrize("name", ["agee", "etag", "extra", "_row", "key"])
def test_evolve_of_no_field(name: str) -> None:
    """Only fields can be changed; the message names them."""
    with pytest.raises(ModelError, match=rf"Employee has no field '{name}'.*department, id, name, age, tags"):
        ken().evolve(**{name: 1})


def test_extra() -> None:
    """What the model does not know is there with its types, to read, change, add and remove."""
    extra = ken().extra
    assert dict(extra) == {"Phone": "555", "Badge": UUID(int=1), "Floor": 3}
    assert isinstance(extra, PropertyBag)

    extra["Floor"] += 1
    del extra["Phone"]
    extra["Car"] = "SAAB"

    assert dict(extra) == {"Badge": UUID(int=1), "Floor": 4, "Car": "SAAB"}
    assert extra.type_of("Floor").value == "Edm.Int32"


def test_extra_of_a_new_entity() -> None:
    """A new entity takes unknown properties too."""
    entity = Employee(department="Sales", id=10)

    entity.extra["Phone"] = "555"
    assert dict(entity.extra) == {"Phone": "555"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("name", ["field 'name'"]),
        ("Age", ["field 'age'"]),
        ("EntityType", ["reserved"]),
        ("PartitionKey", ["belongs to the service"]),
        ("Timestamp", ["belongs to the service"]),
        ("odata.etag", ["belongs to the service"]),
        ("x@odata.type", ["belongs to the service"]),
        ("a-b", ["invalid"]),
    ],
)
def test_extra_is_not_for_fields(name: str, words: list[str]) -> None:
    """A property of the model, of the service, or with a bad name is rejected, saying what to do."""
    with pytest.raises(EncodeError) as caught:
        ken().extra[name] = 5
    for word in [repr(name)[1:-1], *words]:
        assert word in str(caught.value)


def test_pickling() -> None:
    """An entity comes back with its fields, ETag, keys, and unknown properties, changed or not."""
    for entity in (ken(), ken().evolve(age=5), Employee(department="x", id=1)):
        for _ in range(2):  # the second time with what was changed in extra
            back = pickle.loads(pickle.dumps(entity))
            assert back == entity
            assert (back.etag, back.timestamp, back.key) == (entity.etag, entity.timestamp, entity.key)
            assert back.extra == entity.extra
            entity.extra["New"] = 1.5


def test_copying() -> None:
    """`copy` and `deepcopy` share no unknown properties; `deepcopy` shares no values either."""
    entity = ken()
    entity.extra["Phone"] = "1"
    entity.tags.append("a")
    shallow, deep = copy.copy(entity), copy.deepcopy(entity)
    entity.extra["Phone"] = "2"
    entity.tags.append("b")

    assert (shallow.extra["Phone"], deep.extra["Phone"]) == ("1", "1")
    assert (shallow.tags, deep.tags) == (["a", "b"], ["a"])
    assert shallow.etag == deep.etag == entity.etag


def test_a_row_is_kept_as_it_was_read() -> None:
    """Reading decodes every field, and keeps the row for what is written later; changing an entity leaves it alone."""
    row = dict(ROW)
    entity: Employee = Employee.__schema__.decode(row)

    entity.age = 99
    entity.extra["Phone"] = "x"
    assert row == ROW


def test_no_model() -> None:
    """What is not a model is rejected by name."""
    with pytest.raises(ModelError, match=r"<class 'int'> is not a model; declare it as class int\(Entity"):
        schema_of(int)


def test_decode_errors_survive_pickling() -> None:
    """An error of a row comes back from another process with all it says."""
    with pytest.raises(DecodeError) as caught:
        Employee.__schema__.decode({**ROW, "RowKey": "x"})
    back = pickle.loads(pickle.dumps(caught.value))

    assert str(back) == str(caught.value)
    assert (back.model, back.key, back.field) == ("Employee", ("Sales", "x"), None)
