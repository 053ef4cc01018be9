"""
Tokens and change feeds: the rows of a feed are in the partition, and a token opens them as it opens others.
"""

import datetime as dt
from pathlib import Path

import pytest

from tableorm import AccessDenied, connect
from tests.derived.feed.staff import Employee, insert, noted

HOUR = dt.timedelta(hours=1)
SALES = {"department": "Sales"}


async def test_a_token_of_the_partition_writes_and_reads_its_feed(tmp_path: Path) -> None:
    """Writes read the counter, replace it, and add a row, so that they need the rights to read, add and update."""
    url = f"local:{tmp_path}/a.tables"
    async with connect(url) as db:
        await db.create_tables(Employee)
        whole = await db.grant(Employee, "rau", HOUR, start=SALES, end=SALES)
        blind = await db.grant(Employee, "au", HOUR, start=SALES, end=SALES)
    assert "Employee.changes" not in str(whole.explain())

    async with connect(url, sas=whole) as theirs:
        await insert(theirs, 1)
        assert await noted(theirs) == [["insert empid_000001"]]
        with pytest.raises(AccessDenied):
            await noted(theirs, "Law")
    async with connect(url, sas=blind) as theirs:
        with pytest.raises(AccessDenied, match="~f_counter"):
            await insert(theirs, 2)


async def test_a_token_of_one_entity_has_no_feed(tmp_path: Path) -> None:
    """The explanation names the feed, and writes are rejected as a whole."""
    url, one = f"local:{tmp_path}/a.tables", {**SALES, "id": 1}
    async with connect(url) as db:
        await db.create_tables(Employee)
        narrow = await db.grant(Employee, "raud", HOUR, start=one, end=one)
        assert "what is kept for Employee.by_mail, Employee.changes, where its keys are not in the range" in str(
            narrow.explain()
        )
        async with connect(url, sas=narrow) as theirs:
            with pytest.raises(AccessDenied, match="~f_counter"):
                await insert(theirs, 1)
        assert await db.select(Employee).where(Employee.department == "Sales").all() == []
