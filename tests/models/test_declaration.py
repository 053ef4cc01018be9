"""
Declaring models: what a class may say, and what it is rejected with.
"""

import datetime as dt
import enum
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, cast
from uuid import UUID, uuid4

import attrs
import pytest

from tableorm import Edm, Entity, Int32, Mapped, ModelError, field
from tableorm.models.schema import concrete


class Employee(Entity, table="Directory", partition_key="{department}", row_key="empid_{id:06d}", version=2):
    """A model as a user writes it."""

    COMPANY: ClassVar[str] = "Contoso"

    department: Mapped[str]
    id: Mapped[int]
    first_name: Mapped[str]
    age: Mapped[int | None] = field(default=None)
    count: Mapped[int] = field(default=0, name="EmployeeCount")
    tags: Mapped[list[str]] = field(factory=list)
    token: Mapped[UUID] = field(factory=uuid4)

    @property
    def shout(self) -> str:
        return self.first_name.upper()


@contextmanager
def refused(*words: str) -> Generator[None]:
    """What is declared raises a ModelError with these words."""
    with pytest.raises(ModelError) as caught:
        yield
    for word in words:
        assert word in str(caught.value), f"{word!r} is not in: {caught.value}"


def test_a_model() -> None:
    """Fields become attributes with defaults and factories; what else the class has stays."""
    first, second = (Employee(department="Sales", id=number, first_name="Jun") for number in (1, 2))

    assert (first.department, first.id, first.age, first.count, first.tags) == ("Sales", 1, None, 0, [])
    assert first.tags is not second.tags
    assert first.token != second.token
    assert (first.shout, first.COMPANY, Employee.kind, first.kind) == ("JUN", "Contoso", "Employee", "Employee")
    assert (first.etag, first.timestamp, dict(first.extra)) == (None, None, {})


def test_the_schema_of_a_model() -> None:
    """What a key holds in full is no property; the rest is, under its stored name and type."""
    schema = Employee.__schema__

    assert {name: info.stored for name, info in schema.fields.items()} == {
        "department": False,
        "id": False,
        "first_name": True,
        "age": True,
        "count": True,
        "tags": True,
        "token": True,
    }
    assert {p: info.type.edm for p, info in schema.by_property.items()} == {
        "first_name": Edm.STRING,
        "age": Edm.INT64,
        "EmployeeCount": Edm.INT64,
        "tags": Edm.STRING,
        "token": Edm.GUID,
    }
    assert schema.key_fields == ("department", "id")


def test_stored_and_partial_key_fields() -> None:
    """A field in a key is stored too if the key holds it in part, or if it says so."""

    class Visit(Entity, table="Visits", partition_key="{user:lower}_{day}", row_key="{at:%Y%m%d}_{n:03d}"):
        user: Mapped[str]
        day: Mapped[dt.date] = field(stored=True)
        at: Mapped[dt.datetime]
        n: Mapped[int]

    assert set(Visit.__schema__.by_property) == {"user", "day", "at"}


def test_validators_and_converters() -> None:
    """Both run when an entity is made, when a field is set, and in a copy; a converter makes the default too."""

    class Account(Entity, table="Accounts", partition_key="p", row_key="{name}"):
        name: Mapped[str] = field(converter=str.strip)
        age: Mapped[int] = field(default=18, validator=attrs.validators.ge(0))
        level: Mapped[int] = field(default="5", converter=int)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    account = Account(name=" jun ")
    assert (account.name, account.level) == ("jun", 5)
    account.name = " ann "
    assert account.name == "ann"
    assert Account.__schema__.decode({"PartitionKey": "p", "RowKey": "jun"}).level == 5
    with pytest.raises(ValueError, match="age"):
        Account(name="x", age=-1)
    with pytest.raises(ValueError, match="age"):
        account.age = -1
    with pytest.raises(ValueError, match="age"):
        account.evolve(age=-1)


def test_validators_are_inherited() -> None:
    """A subclass without validators of its own keeps those of its base."""

    class Aged(Entity, abstract=True):
        age: Mapped[int] = field(validator=attrs.validators.ge(0))

    class Person(Aged, table="People", partition_key="p", row_key="r"):
        name: Mapped[str] = field(default="")

    person = Person(age=1)
    with pytest.raises(ValueError, match="age"):
        person.age = -1


def test_a_constructor_of_its_own() -> None:
    """A model that defines `__init__` is rejected, with what to write instead."""
    with refused("Person.__init__", "classmethod", "converter", "__attrs_post_init__"):

        class Person(Entity, table="People", partition_key="p", row_key="{name}"):  # pyright: ignore[reportUnusedClass]
            name: Mapped[str]

            def __init__(self, first: str) -> None: ...


def test_pascal_names() -> None:
    """`naming="pascal"` stores `first_name` as `FirstName`; a name given by field() stands as it is."""

    class Person(Entity, table="People", partition_key="p", row_key="{key_name}", naming="pascal"):
        key_name: Mapped[str]
        first_name: Mapped[str]
        age: Mapped[int]
        odd_one: Mapped[int] = field(name="odd_one")

    class Child(Person):
        school_year: Mapped[int]

    class Plain(Person, naming="as_written"):
        school_year: Mapped[int]

    assert set(Person.__schema__.by_property) == {"FirstName", "Age", "odd_one"}
    assert set(Child.__schema__.by_property) == {"FirstName", "Age", "odd_one", "SchoolYear"}
    assert set(Plain.__schema__.by_property) == {"FirstName", "Age", "odd_one", "school_year"}


def test_naming_by_a_function() -> None:
    """A function names properties as it likes, within the service's rules."""

    class Person(Entity, table="People", partition_key="p", row_key="r", naming=lambda name: "x_" + name):
        age: Mapped[int]

    assert set(Person.__schema__.by_property) == {"x_age"}
    with refused("Odd.age", "age-x"):

        class Odd(Entity, table="People", partition_key="p", row_key="r", naming=lambda name: name + "-x"):  # pyright: ignore[reportUnusedClass]
            age: Mapped[int]


def test_kind_of_a_model() -> None:
    """The kind is the class name, what `kind` says, or none; later versions stand behind a colon."""

    class Named(Entity, table="T1x", partition_key="p", row_key="r"): ...

    class Chosen(Entity, table="T1x", partition_key="p", row_key="r", kind="chosen", version=3): ...

    class Nothing(Entity, table="T1x", partition_key="p", row_key="r", kind=None): ...

    assert Named.__schema__.kind_properties == {"EntityType": "Named"}
    assert Chosen.__schema__.kind_properties == {"EntityType": "chosen:3"}
    assert Nothing.__schema__.kind_properties == {}
    assert (Named.kind, Chosen.kind, Nothing.kind) == ("Named", "chosen", None)
    with pytest.raises(ModelError, match="version=2 is rejected with kind=None"):
        type("Old", (Entity,), {}, table="T1x", partition_key="p", row_key="r", kind=None, version=2)


def test_a_class_declared_again_replaces_the_one_before() -> None:
    """As in a notebook: the family has the newer one only, also where keys tell kinds."""

    def declare() -> type[Entity]:
        class Again(Family, kind="AGAIN"): ...

        return Again

    class Family(Entity, table="T1x", partition_key="p", row_key="{kind}_{x}", abstract=True, discriminator="row_key"):
        x: Mapped[str]

    kept = [declare(), declare()]

    assert [schema.model for schema in concrete(Family.__schema__)] == kept[1:]


# Names


@pytest.mark.parametrize(
    "name", ["PartitionKey", "RowKey", "Timestamp", "EntityType", "EntityVersion", "_w", "_ix", "_p01"]
)
def test_reserved_properties(name: str) -> None:
    """Names of the service and of tableorm itself are not free for properties."""
    with refused("Odd.a", repr(name), "reserved", "field(name=...)"):

        class Odd(Entity, abstract=True):  # pyright: ignore[reportUnusedClass]
            a: Mapped[str] = field(name=name)


# Fields


class _Far(enum.Enum):
    AWAY = 2**31


class _Mixed(enum.Enum):
    A = 1
    B = "b"


class _Other(Entity, table="Others", partition_key="p", row_key="{a}"):
    a: Mapped[str]


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (tuple[int, ...], ["tuple[int, ...]"]),
        (complex, ["complex"]),
        (dt.timedelta, ["timedelta"]),
        (type(None), ["None"]),
        (_Mixed, ["_Mixed", "one stored type"]),
        (list[_Other], ["_Other", "a model", "key"]),
        (dict[str, list[_Other]], ["_Other", "a model", "key"]),
        (Annotated[str, Int32], ["str", "Int32", "an int or an enum of ints"]),
        (Annotated[_Far, Int32], ["_Far.AWAY", "2147483648", "range of Edm.Int32"]),
        (Annotated[_Mixed, Int32], ["_Mixed", "not an int"]),
    ],
)
def test_types_that_cannot_be_stored(annotation: Any, words: list[str]) -> None:
    """
    A type without a stored form is rejected, naming the field, the type, and what there is. Int32 is said of an int, or
    of an enum whose values are ints that fit.
    """
    with refused("Odd.a", *words):
        type("Odd", (Entity,), {"__annotations__": {"a": Mapped[annotation]}, "__module__": __name__}, abstract=True)


@pytest.mark.parametrize(
    ("annotation", "default", "words"),
    [
        (int, 2**63, ["range"]),
        (Int32, 2**31, ["range", "Int32"]),
        (str | None, 5, ["5", "str"]),
        (dt.datetime, dt.datetime(2024, 1, 1), ["naive"]),  # noqa: DTZ001
        (_Mixed | None, "b", ["_Mixed"]),
    ],
)
def test_defaults_that_do_not_fit(annotation: Any, default: Any, words: list[str]) -> None:
    """A default that could never be written is rejected, not stored for later."""
    with refused("Odd.a", *words):
        space = {"__annotations__": {"a": Mapped[annotation]}, "a": field(default=default), "__module__": __name__}
        type("Odd", (Entity,), space, abstract=True)


class _Rank(enum.IntEnum):
    FIRST = 1


def test_the_name_of_an_enum_of_int32() -> None:
    """It is named as it is declared, and asks for the member as any enum does."""

    class Runner(Entity, table="Runners", partition_key="p", row_key="{id}"):
        id: Mapped[str]
        rank: Mapped[Annotated[_Rank, Int32] | None] = field(default=_Rank.FIRST)

    kind = Runner.__schema__.fields["rank"].type
    assert kind.name == "Annotated[_Rank, Int32]"
    assert Runner(id="a").rank is _Rank.FIRST


def test_what_field_does_not_do() -> None:
    """Factories and converters do not see the entity."""
    with refused("Odd.a", "factory"):

        class Odd(Entity, abstract=True):  # pyright: ignore[reportUnusedClass]
            a: Mapped[int] = field(default=attrs.Factory(lambda _: 1, takes_self=True))

    with refused("Converting.a", "Converter"):

        class Converting(Entity, abstract=True):  # pyright: ignore[reportUnusedClass]
            a: Mapped[int] = field(default=1, converter=cast(Any, attrs.Converter(int)))


def test_hiding_an_inherited_field() -> None:
    """An attribute or method named as an inherited field would never be seen, so it is rejected."""
    with refused("Odd.age", "5", "hides an inherited field"):

        class Odd(Employee):  # pyright: ignore[reportUnusedClass]
            age = cast(Any, 5)

    with refused("Hiding.age", "hides an inherited field"):

        class Hiding(Employee):  # pyright: ignore[reportUnusedClass]
            def age(self) -> int:  # type: ignore[misc, override]  # pyright: ignore[reportIncompatibleVariableOverride]
                return 5


def test_too_many_fields() -> None:
    """A row holds 252 properties, of which the kind is one."""

    def declare(count: int, **keywords: Any) -> Any:
        annotations = {f"f{number}": Mapped[int] for number in range(count)}
        space = {"__annotations__": annotations, "__module__": __name__}
        return type("Wide", (Entity,), space, table="Broad", partition_key="p", row_key="r", **keywords)

    declare(251)
    declare(252, kind=None)
    with refused("Wide", "252"):
        declare(252)
    with refused("Wide", "252"):
        declare(253, kind=None)
