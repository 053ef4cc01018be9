"""
What an interpreter and the reference show of a value: what programs call, and nothing else.
"""

import inspect
import re

import pytest

from scripts.docs_pages import ROOT
from tableorm import Count, Entity, Index, IndexList, Mapped, PropertyBag, Sum, connect, field


class Department(Entity, table="Directory", partition_key="{name}", row_key="department"):
    name: Mapped[str]
    employees: Mapped[int] = field(default=0, maintained=True)
    ages: Mapped[int] = field(default=0, maintained=True)


class Employee(Entity, table="Directory", partition_key="{department}", row_key="empid_{id:06d}"):
    department: Mapped[str]
    id: Mapped[int]
    age: Mapped[int] = field(default=0)
    by_age = Index(row_key="age_{age:03d}_{id:06d}")
    of_age = IndexList(row_key="of_age_{age:03d}")
    count = Count(lambda: Department.employees, name="{department}")
    total = Sum("age", lambda: Department.ages, name="{department}")


database = connect("local::memory:")
query = database.select(Employee).where(Employee.department == "Sales")
VALUES: list[object] = [
    database,
    database.scope(department="Sales"),
    query,
    database.select_raw("Directory"),
    database.union(query),
    query.stream(),
    PropertyBag("Directory", "Sales", "a"),
    Employee.by_age,
    Employee.of_age,
    Employee.count,
    *(vars(Employee)[name] for name in ("by_age", "of_age", "count", "total")),
    database.stats,
    database.bulk(),
    database.transaction(),
    database.explain_write("insert", Employee(department="Sales", id=1)),
    query.explain(),
    Employee(department="Sales", id=1),
    Employee.key_of("Sales", "empid_000001"),
    Employee.age,
    Employee.age > 1,
]


def name_type(value: object) -> str:
    return type(value).__name__


def public_names(names: list[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def hidden_by_the_reference() -> set[str]:
    """Return the names that the site's configuration leaves out of the reference."""
    found = re.search(r'"!\^\(([a-z_|]+)\)\$"', (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert found is not None
    return set(found.group(1).split("|"))


@pytest.mark.parametrize("value", VALUES, ids=name_type)
def test_what_is_shown_is_public(value: object) -> None:
    """Completion offers a member only if the reference describes it, in its own docstring or in that of its class."""
    kind = type(value)
    described = " ".join(inspect.getdoc(base) or "" for base in kind.__mro__ if base is not object)
    shown = public_names(dir(value))

    assert shown & hidden_by_the_reference() == set()
    for name in shown:
        member = inspect.getattr_static(kind, name, None)
        own = inspect.getdoc(member) if inspect.isroutine(member) or isinstance(member, property) else None
        assert own or re.search(rf"\b{name}\b", described), name


def test_what_is_hidden_exists() -> None:
    """The reference leaves out what completion leaves out, and names nothing that no class has any more."""
    hidden = set[str]()
    for value in VALUES:
        hidden |= public_names([*object.__dir__(value)]) - set(dir(value))

    assert hidden == hidden_by_the_reference()
