"""
The programs of the public API print the same on every store: only the argument of `connect` is another.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tableorm import Database, PropertyBag, connect
from tableorm_local import Account, serve
from tests.azurite import KEY, Azurite
from tests.database.programs import Department, Employee, everyday, reading, writing

Connect = Callable[[], Database]


@pytest.fixture(params=["file", "server", "azurite"])
async def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Connect]:
    """Opens a store that is not in memory."""
    if request.param == "file":
        yield lambda: connect(f"local:{tmp_path}/programs.tables")
    elif request.param == "server":
        accounts = [Account(name="contoso", keys=(KEY,))]
        async with serve(tmp_path / "served.tables", port=0, accounts=accounts) as server:
            yield lambda: connect(server.url, key=KEY)
    else:
        emulator: Azurite = request.getfixturevalue("azurite")
        yield lambda: connect(emulator.connection_string)


async def printed(
    db: Database, program: Callable[[Database], Awaitable[None]], capsys: pytest.CaptureFixture[str]
) -> str:
    """What a program prints, and what it leaves in the table."""
    await db.create_tables(Department, Employee)
    async with db.bulk() as bulk:
        await bulk.insert(Department(name="Sales"))
        for number, age in ((7, 61), (123, 45), (150, 20), (223, 31)):
            jun = Employee(department="Sales", id=number, first_name="Jun", last_name="Cao", age=age)
            jun.email = "junc@contoso.com" if number == 223 else None
            await bulk.insert(jun)
        await bulk.insert(Employee(department="Marketing", id=1, first_name="Eve", last_name="Ny"))
        await bulk.insert(Employee(department="Old", id=1, first_name="Ann", last_name="Li"))
        await bulk.insert(PropertyBag("Directory", "Sales", "raw", {"Age": 30}))
    capsys.readouterr()
    await program(db)
    text = capsys.readouterr().out
    left = [
        {name: value for name, value in bag.items() if name != "_w"}  # write tokens are drawn anew
        async for bag in db.select_raw("Directory").allow_scan()
    ]
    await db.drop_table("Directory")
    assert text or left
    return f"{text}\n{left}"


@pytest.mark.one_of(4)
@pytest.mark.parametrize("program", [everyday, reading, writing], ids=lambda program: program.__name__)
async def test_programs_run_unchanged(
    elsewhere: Connect, program: Callable[[Database], Awaitable[None]], capsys: pytest.CaptureFixture[str]
) -> None:
    """What they print, and what they leave, is what it is in memory."""
    async with connect("local::memory:") as db:
        expected = await printed(db, program, capsys)
    async with elsewhere() as db:
        assert await printed(db, program, capsys) == expected
