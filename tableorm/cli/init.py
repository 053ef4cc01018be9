"""
The command `tableorm init`, which makes a small project that passes its own tests.
"""

import argparse
import re
from contextlib import suppress
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from shlex import quote

from ..errors import ModelError
from .arguments import OwnCommand, option
from .output import emit

_PROJECT = """[project]
name = "PACKAGE"
version = "0.1.0"
requires-python = ">=3.11"
# Not on PyPI: install it from its repository first. With tables in Azure: "tableorm[azure]"
dependencies = ["tableorm"]

[dependency-groups]
test = ["pytest", "pytest-asyncio"]

[tool.pytest.ini_options]
asyncio_mode = "auto"
asyncio_default_fixture_loop_scope = "function"
pythonpath = ["."]
testpaths = ["tests"]
"""

_MODELS = '''"""
What is stored: the entities of one department are in one partition.
"""

from tableorm import Entity, Index, Mapped


class Employee(
    Entity, table="Employees", partition_key="{department}", row_key="employee_{id:06d}"
):
    department: Mapped[str]
    id: Mapped[int]
    name: Mapped[str]
    email: Mapped[str]
    by_email = Index(row_key="email_{email:lower}", unique=True)
'''

_SERVICE = '''"""
What the program does: `python -m PACKAGE.service`.
"""

import asyncio
import os

from tableorm import Database, connect

from .models import Employee

URL = os.environ.get("TABLEORM_URL", "local:./PACKAGE.tables")


async def hire(
    db: Database, department: str, id: int, name: str, email: str
) -> Employee:
    """Store a new employee. Raises UniqueViolation if the address is taken."""
    employee = Employee(department=department, id=id, name=name, email=email)
    await db.insert(employee)
    return employee


async def find(db: Database, department: str, email: str) -> Employee | None:
    """Return who has an address, or None."""
    return await db.get_or_none(Employee.by_email, department=department, email=email)


async def main() -> None:
    async with connect(URL) as db:
        await db.create_tables(Employee)
        if await find(db, "Sales", "ann@example.org") is None:
            await hire(db, "Sales", 1, "Ann", "ann@example.org")
        async for employee in db.select(Employee).where(Employee.department == "Sales"):
            print(employee.id, employee.name)


if __name__ == "__main__":
    asyncio.run(main())
'''

_CONFTEST = '''"""
The tests get an empty database in memory, with the tables of these models.
"""

import pytest
from PACKAGE.models import Employee


@pytest.fixture(scope="session")
def tableorm_models() -> list[type[Employee]]:
    return [Employee]
'''

_TESTS = '''"""
What the service promises.
"""

import pytest
from PACKAGE.service import find, hire
from tableorm import Database, UniqueViolation


async def test_hired(tableorm_db: Database) -> None:
    await hire(tableorm_db, "Sales", 1, "Ann", "ann@example.org")

    found = await find(tableorm_db, "Sales", "Ann@Example.org")
    assert found is not None
    assert found.name == "Ann"


async def test_an_address_is_taken(tableorm_db: Database) -> None:
    await hire(tableorm_db, "Sales", 1, "Ann", "ann@example.org")

    with pytest.raises(UniqueViolation):
        await hire(tableorm_db, "Sales", 2, "Anna", "ann@example.org")
'''

_FILES = {
    "pyproject.toml": _PROJECT,
    "PACKAGE/__init__.py": "",
    "PACKAGE/models.py": _MODELS,
    "PACKAGE/service.py": _SERVICE,
    "tests/conftest.py": _CONFTEST,
    "tests/test_service.py": _TESTS,
}


def _make_project(args: argparse.Namespace) -> int:
    """
    `tableorm init FOLDER` writes a project with a model, a service and tests. It replaces no file.

    Examples:
        tableorm init staff
        tableorm init .
    """
    folder: Path = args.folder
    package = re.sub(r"\W", "_", folder.resolve().name).lower()
    if not package.isidentifier() or iskeyword(package):
        raise ModelError(f"{package!r} is not a valid package name; give the folder another name")
    found = find_spec(package)
    if found is not None and found.origin is not None:  # a mere folder has none
        raise ModelError(f"{package!r} is a module that the package would hide; give the folder another name")
    texts = {folder / name.replace("PACKAGE", package): text for name, text in _FILES.items()}
    if taken := [path for path in texts if path.exists()]:
        raise ModelError(f"{taken[0]} already exists; choose another folder")
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("PACKAGE", package), encoding="utf-8")
    except BaseException:
        for path in texts:  # or the same command would be rejected, since a part is there
            with suppress(OSError):
                path.unlink()
        raise
    values = {"folder": str(folder), "files": [str(path) for path in texts]}
    test = "python -m pip install pytest pytest-asyncio && python -m pytest"
    emit(args, values, f"{folder}: created the project {package}; run its tests: cd {quote(str(folder))} && {test}")
    return 0


INIT = OwnCommand(
    "create a small project with a model, a service and tests",
    _make_project,
    option("folder", metavar="FOLDER", type=Path, help="where to; its name becomes the package's"),
)
