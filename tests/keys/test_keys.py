"""
Keys as values: made from fields or from stored keys, compared, hashed and pickled.
"""

import copy
import datetime as dt
import pickle

import pytest

from tableorm import EncodeError, Entity, Int32, Key, Mapped, ModelError, PropertyBag, TemplateError, field


class Employee(Entity, table="Directory", partition_key="{department}", row_key="empid_{id:06d}"):
    department: Mapped[str]
    id: Mapped[int]
    name: Mapped[str] = field(default="")


class Fan(Entity, table="Fans", partition_key="{name:lower}", row_key="fan"):
    name: Mapped[str]


class Base(Entity, table="Directory", partition_key="p", row_key="r", abstract=True): ...


class Detached(Entity, partition_key="{a}", row_key="r", abstract=True):
    a: Mapped[str]


class Shift(Entity, table="Shifts", partition_key="{team}_{day:%Y-%m-%d}", row_key="shift"):
    team: Mapped[str]
    day: Mapped[dt.date]


class Counter(Entity, table="Counters", partition_key="", row_key="{n}"):
    n: Mapped[Int32]


def test_key_from_fields() -> None:
    """The key fields make a key with the model, the table and both stored keys."""
    key = Employee.key(department="Sales", id=223)

    assert (key.model, key.table) == (Employee, "Directory")
    assert (key.partition_key, key.row_key) == ("Sales", "empid_000223")
    assert str(key) == "Employee ('Sales', 'empid_000223') in table Directory"
    assert repr(key) == "Key(Employee, 'Directory', 'Sales', 'empid_000223')"
    assert repr(Employee.key) == "Employee.key(department, id)"


def test_keys_are_values() -> None:
    """Equal keys are one in a set; the model, the table and each key matter; a key does not change."""
    key = Employee.key(department="Sales", id=223)
    of_a_bag: object = PropertyBag.key("Directory", "Sales", "empid_000223")

    assert key == Employee.key_of("Sales", "empid_000223")
    assert len({key, Employee.key_of("Sales", "empid_000223"), Employee.key(department="Sales", id=224)}) == 2
    assert key != of_a_bag
    with pytest.raises(AttributeError):
        key.row_key = "x"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def test_keys_survive_pickling_and_copying() -> None:
    """A key of a model or of a bag comes back equal, with equal hash."""
    for key in (Employee.key(department="Sales", id=223), PropertyBag.key("Directory", "a", "b")):
        for back in (pickle.loads(pickle.dumps(key)), copy.copy(key), copy.deepcopy(key)):
            assert back == key
            assert hash(back) == hash(key)
            assert back.model is key.model


def test_key_of_an_entity() -> None:
    """An entity's key is that of its fields, until it was read: then it is the stored one."""
    new = Employee(department="Sales", id=10)
    assert new.key == Employee.key(department="Sales", id=10)

    read = Fan.__schema__.decode({"PartitionKey": "JUN", "RowKey": "fan", "name": "Jun"})
    assert read.key == Fan.key_of("JUN", "fan")


def test_empty_keys() -> None:
    """A key may be empty text; a class keyword says so."""
    assert Counter.key(n=-5) == Counter.key_of("", "-5")


def test_int32_in_a_key() -> None:
    """A key holds no more than the field's declared type, padded or not."""
    assert Counter.key(n=2**31 - 1).row_key == "2147483647"
    with pytest.raises(TemplateError, match=r"Counter\.row_key.*2147483648"):
        Counter.key(n=2**31)


@pytest.mark.parametrize(
    ("keys", "words"),
    [(("a/b", "r"), ["PartitionKey", "U+002F"]), (("p", "x" * 513), ["RowKey", "512"]), (("p", None), ["RowKey"])],
)
def test_bad_stored_keys(keys: tuple[str, str], words: list[str]) -> None:
    """Keys that the service would refuse are rejected, for a model and for a bag."""
    with pytest.raises(EncodeError) as of_model:
        Employee.key_of(*keys)
    with pytest.raises(EncodeError) as of_bag:
        PropertyBag.key("Directory", *keys)
    for word in words:
        assert word in str(of_model.value)
        assert word in str(of_bag.value)
    assert "Employee" in str(of_model.value)


def test_bad_table_of_a_bag() -> None:
    """So is a table name."""
    with pytest.raises(EncodeError, match="no table!"):
        PropertyBag.key("no table!", "p", "r")


def test_keys_of_abstract_bases() -> None:
    """An abstract base has keys from stored keys, where it has a table; its templates serve its classes only."""
    assert Base.key_of("p", "r").model is Base
    assert isinstance(Base.key_of("p", "r"), Key)
    with pytest.raises(ModelError, match="Detached has no table"):
        Detached.key(a="x")


@pytest.mark.parametrize("day", [dt.date.min, dt.date(987, 6, 5), dt.date(2024, 2, 29), dt.date.max])
def test_dates_that_are_written_in_place(day: dt.date) -> None:
    """They are what the template writes, and are read back."""
    key = Shift.key(team="a", day=day)

    assert key.partition_key == Shift.__schema__.templates()[0].format({"team": "a", "day": day})
    assert key.partition_key == f"a_{day.year:04d}-{day.month:02d}-{day.day:02d}"
    assert Shift.__schema__.parse_keys(key.partition_key, key.row_key) == {"team": "a", "day": day}
    with pytest.raises(TemplateError, match="a date"):
        Shift.key(team="a", day=dt.datetime(2024, 2, 29, tzinfo=dt.UTC))
