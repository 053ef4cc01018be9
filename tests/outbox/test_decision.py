"""
Decision rows and doorbells: what they say, what is too large or damaged, and who decides.
"""

import asyncio
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm import Database, DecodeError, LimitExceeded, NotSupported
from tableorm.connection.connection import connection_of
from tableorm.models.manifest import IndexEntry, ListEntry, ManifestEntry, UnknownEntry
from tableorm.models.marker_rows import is_marker
from tableorm.outbox.decision import Decision, Work, decision_of, read_decision, settle_decision
from tableorm.outbox.doorbell import Begun, Doorbell, doorbell_of
from tableorm.protocol.codes import Fault
from tableorm.protocol.limits import MAX_VALUE_BYTES, check_row
from tableorm.stores import Row
from tests.databases import database_fixture
from tests.outbox.test_worker import Person
from tests.rows import insert_row

TOKEN = "Zm9vYmFyYmF6"
ENTRIES: dict[str, tuple[ManifestEntry, ...]] = {
    "by_name": (IndexEntry("name_jones"), IndexEntry("name_smith")),
    "by_city": (ListEntry("city_oslo", "Person#by_city"),),
}


def committed(**changes: Any) -> Decision:
    work = msgspec.structs.replace(Work(kind="Person", row_key="person_001", entries=ENTRIES), **changes)
    return Decision(partition_key="red", token=TOKEN, works=(work, Work(kind="Person:2", row_key="person_002")))


db = database_fixture(Person)


def test_a_decision_row() -> None:
    """It is a marker row under the token of the change, with the rows to be made right as JSON text."""
    assert committed().to_row() == {
        "PartitionKey": "red",
        "RowKey": f"~o_{TOKEN}",
        "EntityType": "#_decision",
        "_w": TOKEN,
        "State": "committed",
        "Work": '{"format":1,"works":[{"kind":"Person","row":"person_001","entries":{"by_city":[{"list":["city_oslo",'
        '"Person#by_city"]}],"by_name":["name_jones","name_smith"]}},{"kind":"Person:2","row":"person_002",'
        '"entries":{}}]}',
    }
    assert is_marker(committed().to_row())


@given(
    st.builds(
        committed,
        kind=st.text(max_size=10),
        row_key=st.text(max_size=10),
        entries=st.dictionaries(
            st.text(max_size=5),
            st.lists(st.text(max_size=5).map(IndexEntry) | st.integers().map(UnknownEntry), min_size=1, max_size=3).map(
                tuple
            ),
            max_size=3,
        ),
    )
)
def test_it_comes_back(decision: Decision) -> None:
    """What a decision row says is what was written, entries in unknown forms included."""
    assert decision_of(decision.to_row()) == decision


def test_work_that_is_too_large() -> None:
    """More work than a property holds is rejected, with the numbers; the most that fits is a row that a store takes."""

    def of_size(size: int) -> Decision:
        return committed(entries={"by_name": (IndexEntry("x" * size),)})

    room = MAX_VALUE_BYTES // 2 - len(of_size(0).to_row()["Work"])
    check_row(of_size(room).to_row())
    with pytest.raises(LimitExceeded, match=rf"2 entities .* have {MAX_VALUE_BYTES + 2} bytes, and {MAX_VALUE_BYTES}"):
        of_size(room + 1).to_row()


@pytest.mark.parametrize(
    "members",
    [
        {"State": "perhaps"},
        {"State": 1},
        {"State": "committed"},
        {"State": "committed", "Work": "{"},
        {"State": "committed", "Work": "[]"},
        {"State": "committed", "Work": '{"format":1}'},
        {
            "State": "committed",
            "Work": '{"format":1,"works":[{"kind":"P","row":"r","entries":{"a":[' + "[" * 9000 + "]" * 9000 + "]}}]}",
        },
        {},
    ],
)
def test_damage(members: Row) -> None:
    """A damaged decision row says which it is, and what to do."""
    with pytest.raises(DecodeError, match=r"row \('red', '~o_.*'\) is a decision row .*; if nobody works on it"):
        decision_of({"PartitionKey": "red", "RowKey": f"~o_{TOKEN}", **members})


def test_newer_programs() -> None:
    """What a newer program has written is left to newer programs, and is no damage."""
    row = {**committed().to_row(), "Work": '{"format":2,"what":"else"}'}

    with pytest.raises(NotSupported, match="has the format 2, and this program knows 1; leave it"):
        decision_of(row)
    with pytest.raises(NotSupported, match="the message has the format 2, and this program knows 1; leave it"):
        doorbell_of(b'{"format":2}')


def test_a_doorbell() -> None:
    """A doorbell comes back from its message; anything else is none."""
    begun = Begun(table="Work", partition_key="rød", token=TOKEN)
    doorbell = Doorbell(changes=(begun, begun), kinds=("Person:2",))

    assert msgspec.json.decode(doorbell.to_message())["kinds"] == ["Person:2"]
    assert doorbell_of(doorbell.to_message()) == doorbell
    for body in (b"", b"x", b"[]", b'{"format":1}', b'{"format":"1"}', b"[" * 9000):
        with pytest.raises(ValueError, match="the message is not a doorbell"):
            doorbell_of(body)


# In a table


async def test_a_change_that_has_not_committed(db: Database) -> None:
    """Who asks for the decision of a change that has none makes it void; then its transaction cannot commit."""
    connection = connection_of(db)
    assert await read_decision(connection, "Work", "red", TOKEN) is None
    void = await settle_decision(connection, "Work", "red", TOKEN)

    assert not void.committed and void.etag is not None
    assert attrs.evolve(await settle_decision(connection, "Work", "red", TOKEN), timestamp=None) == void
    with pytest.raises(Fault, match="EntityAlreadyExists"):
        await insert_row(db, "Work", committed().to_row())
    assert await db.select(Person).where(Person.team == "red").all() == []


async def test_all_get_one_decision(db: Database) -> None:
    """Of a commit and many who settle at the same time one decides, and all hear the same."""
    connection = connection_of(db)

    async def commit() -> bool:
        await asyncio.sleep(0)
        try:
            await insert_row(db, "Work", committed().to_row())
        except Fault:  # somebody else was first
            return False
        return True

    committing = asyncio.create_task(commit())
    found = await asyncio.gather(*(settle_decision(connection, "Work", "red", TOKEN) for _ in range(5)))
    assert {each.committed for each in found} == {await committing}
