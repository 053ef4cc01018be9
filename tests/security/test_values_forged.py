"""
Claims of unique values, forged by who may write some rows of a partition: rows in other partitions that belong to other
entities stay as they are.
"""

import datetime as dt
import json
from contextlib import suppress
from typing import Any

import pytest

from tableorm import Damage, Database, Entity, Index, Mapped, TableOrmError, field
from tableorm.outbox.bell import OUTBOX
from tableorm.stores import CLOCK, Row
from tests.rows import insert_row, put_row
from tests.security.world import work, write_row


class User(Entity, table="ForgedUsers", partition_key="{site}", row_key="user_{id}"):
    site: Mapped[str]
    id: Mapped[int]
    mail: Mapped[str | None]
    city: Mapped[str | None]
    note: Mapped[str | None] = field(default=None)

    by_mail = Index(
        table="ForgedValues", partition_key="mail_{mail}", row_key="mail", unique=True, consistency="eventual"
    )
    by_city = Index(
        table="ForgedValues", partition_key="city_{city}", row_key="{site}_{id}", include="keys", consistency="eventual"
    )


@pytest.fixture
async def db(db: Database) -> Database:
    await db.create_tables(User)
    await db.insert(User(site="se", id=1, mail="ann@x", city="Rome"))
    return db


async def values_of(db: Database) -> list[Row]:
    return [row.row for row in await db.select_raw("ForgedValues").allow_scan().all()]


async def act(db: Database, way: str, claim: list[str], name: str) -> None:
    """Let the owner write the forged row, or a worker carry out a decision row that says so."""
    if way == "worker":
        mine = [*claim[:3], "token_of_mine"]
        works = [{"kind": "User", "row": "user_9", "entries": {name: [{"un": claim}, {"un": mine}]}}]
        row: Row = {"PartitionKey": "se", "RowKey": "user_9", "EntityType": "User"}
        row["_ix"] = json.dumps({name: {"un": mine}})
        await put_row(db, "ForgedUsers", row)
        row = {"PartitionKey": "se", "RowKey": "~o_token_of_mine", "EntityType": "#_decision", "State": "committed"}
        row["Work"] = json.dumps({"format": 1, "works": works})
        await insert_row(db, "ForgedUsers", row)
        await work(db, User, table="ForgedUsers")
    elif way == "delete":
        await db.delete(User, site="se", id=9, if_match="*")
    elif way == "audit":
        await db.audit(User, repair=True)
    else:
        found = await db.get(User, site="se", id=9)
        found.mail = "new@x" if way == "mail" else None
        found.note = "changed"
        await db.save(found)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("way", ["save", "mail", "delete", "worker", "audit"])
@pytest.mark.parametrize("name", ["by_mail", "by_city", "gone"])
@pytest.mark.parametrize("place", ["mail_ann@x mail", "city_Rome se_1"])
async def test_a_claim_of_others_is_not_given_up(db: Database, place: str, name: str, way: str) -> None:
    """
    A row that claims the value of another entity of its partition, or what is at the key of that one's entry, by the
    token that is there: nothing that is done to it takes the value, or the entry, from the other entity.
    """
    partition, row_key = place.split()
    stored = await db.store.get("ForgedValues", partition, row_key)
    before = await values_of(db)
    claim = [partition, row_key, "ForgedValues", stored["_v"]]
    await write_row(db, "ForgedUsers", "se", "user_9", EntityType="User", _ix=json.dumps({name: {"un": claim}}))
    with suppress(TableOrmError):
        await act(db, way, claim, name)
    after: list[Any] = [each for each in await values_of(db) if each["PartitionKey"] != "mail_new@x"]
    assert after == before


@pytest.mark.parametrize("owner", ["user_1", "user_2"])
@pytest.mark.parametrize("place", ["mail_ann@x mail", "city_Rome se_1"])
async def test_a_message_gives_nothing_up(db: Database, place: str, owner: str) -> None:
    """Who may put a message, and knows a token, gets no value and no index entry of an entity deleted by a worker."""
    partition, row_key = place.split()
    stored = await db.store.get("ForgedValues", partition, row_key)
    before = await values_of(db)
    claims = [[owner, [partition, row_key, "ForgedValues"]]]
    change = {"table": "ForgedUsers", "partition_key": "se", "token": stored["_v"], "claims": claims}
    message = {"type": "doorbell", "changes": [change], "kinds": ["User"], "format": 1}
    await db.queues.put(OUTBOX, json.dumps(message).encode())
    await work(db, User)
    assert await values_of(db) == before


@pytest.mark.usefixtures("stopped_clock")
@pytest.mark.parametrize("way", ["worker", "audit"])
@pytest.mark.parametrize("handed_over", [False, True])
async def test_a_decision_row_frees_no_value_that_is_held(db: Database, handed_over: bool, way: str) -> None:
    """A decision row that says that an entity gave up a value which it holds, or claimed it anew, frees nothing."""
    stored = await db.store.get("ForgedValues", "mail_ann@x", "mail")
    before = await values_of(db)
    claims = [["mail_ann@x", "mail", "ForgedValues", token] for token in (stored["_v"], "token_of_mine")]
    entries = [{"un": claim} for claim in claims[: 1 + handed_over]]
    works = json.dumps({"format": 1, "works": [{"kind": "User", "row": "user_1", "entries": {"by_mail": entries}}]})
    await write_row(db, "ForgedUsers", "se", "~o_token_of_mine", EntityType="#_decision", State="committed", Work=works)
    if way == "audit":
        CLOCK.advance(dt.timedelta(hours=2))
        report = await db.audit(User, repair=True)
        assert [each.damage for each in report.findings] == [Damage.UNFINISHED]
    else:
        await work(db, User, table="ForgedUsers")
    assert await values_of(db) == before


@pytest.mark.parametrize(
    "entries",
    [
        [{"un": ["mail_bo@x", "mail", "ForgedValues", "token_of_bo_1"]}],
        [{"un": ["mail_bo@x", "mail", "ForgedValues", each]} for each in ("token_of_bo_1", "token_of_mine")],
        [{"at": ["mail_bo@x", "mail", "ForgedValues"]}],
    ],
    ids=["given up", "claimed anew", "an entry"],
)
async def test_a_claim_that_loses_its_reservation_never_commits(db: Database, entries: list[dict[str, Any]]) -> None:
    """A decision row that takes away what a slow writer has reserved makes the claim of that writer void first."""
    row: Row = {"PartitionKey": "mail_bo@x", "RowKey": "mail", "EntityType": "User#by_mail"}
    row |= {"_of": '["ForgedUsers","se","user_2"]', "_v": "token_of_bo_1"}
    await insert_row(db, "ForgedValues", row)
    works = json.dumps({"format": 1, "works": [{"kind": "User", "row": "user_2", "entries": {"by_mail": entries}}]})
    row = {"PartitionKey": "se", "RowKey": "~o_token_of_mine", "EntityType": "#_decision", "State": "committed"}
    await insert_row(db, "ForgedUsers", {**row, "Work": works})
    await work(db, User, table="ForgedUsers")
    assert "mail_bo@x" not in {each["PartitionKey"] for each in await values_of(db)}
    assert (await db.store.get("ForgedUsers", "se", "~o_token_of_bo_1"))["State"] == "void"
