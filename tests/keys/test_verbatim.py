"""
Keys that escape nothing, for tables of other programs: what is stored is the value, and what cannot be is rejected.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm import Database, Entity, Index, Mapped, ModelError, PropertyBag, TemplateError
from tableorm.keys.template import parse_pair
from tableorm.models.entity import schema_of
from tableorm.protocol.limits import FORBIDDEN_IN_KEYS
from tests.databases import memory_database

TEXTS = st.text("a^2F5E_/%-é;|", max_size=6)


class Pump(Entity, table="Pumps", partition_key="{site}_{pump}", row_key="{name}", keys="verbatim", kind=None):
    site: Mapped[str]
    pump: Mapped[str]
    name: Mapped[str]


class Base(Entity, abstract=True, keys="verbatim"):
    pass


class Valve(Base, table="Pumps", partition_key="valves", row_key="valve_{name}"):
    name: Mapped[str]
    note: Mapped[str]

    by_note = Index(row_key="note_{note}_{name}")


async def stored(db: Database) -> set[tuple[str, str]]:
    return {(bag.partition_key, bag.row_key) async for bag in db.select_raw("Pumps").allow_scan()}


@given(TEXTS, TEXTS, TEXTS)
def test_a_key_is_the_text_of_its_fields(site: str, pump: str, name: str) -> None:
    """It is read back, or refused: where keys forbid a character, or a separator stands before its place."""
    fields = {"site": site, "pump": pump, "name": name}
    if any(FORBIDDEN_IN_KEYS.search(text) for text in fields.values()) or "_" in site:
        with pytest.raises(TemplateError, match="keys='verbatim' escapes nothing"):
            Pump.key(**fields)
        return
    key = Pump.key(**fields)
    assert (key.partition_key, key.row_key) == (f"{site}_{pump}", name)
    assert parse_pair(*schema_of(Pump).templates(), key.partition_key, key.row_key) == fields


async def test_rows_of_other_programs_are_found_by_what_they_say() -> None:
    """A caret is a caret: for get, conditions, saves and deletes."""
    names = ["pump^2", "^2F", "50%", "a_b", "^", "plain"]
    async with memory_database(Pump) as db:
        for name in names:
            await db.insert(PropertyBag("Pumps", f"s_{name}", name, {"Unit": "bar"}))
        before = await stored(db)
        for name in names:
            pump = await db.get(Pump, site="s", pump=name, name=name)
            assert (pump.name, dict(pump.extra)) == (name, {"Unit": "bar"})
            pump.extra["Unit"] = "psi"
            await db.save(pump)
            assert await db.select(Pump).where(Pump.site == "s", Pump.pump == name, Pump.name == name).all() == [pump]
            assert await db.select(Pump).where(Pump.name.startswith(name[:2])).allow_scan().count() >= 1
        assert await stored(db) == before
        assert [pump.name for pump in await db.select(Pump).allow_scan().all()] == sorted(names)
        await db.delete(Pump, site="s", pump="^2F", name="^2F", if_match="*")
        assert before - await stored(db) == {("s_^2F", "^2F")}


@pytest.mark.parametrize("name", ["pump/", "a#b"])
async def test_what_no_key_holds_is_rejected_in_conditions(name: str) -> None:
    """It is a TemplateError that names the field, for a value and for what values begin with."""
    async with memory_database(Pump) as db:
        for condition in (Pump.name == name, Pump.name >= name, Pump.name.startswith(name)):
            with pytest.raises(TemplateError, match="escapes nothing \\(condition on field 'name'\\)"):
                await db.select(Pump).where(Pump.site == "s", Pump.pump == "p", condition).all()


async def test_index_entries_lead_to_such_keys() -> None:
    """Entries are written by tableorm alone, and escape as always; a class inherits the keys of its base."""
    async with memory_database(Valve) as db:
        valve = Valve(name="v^2", note="a/b_c")
        await db.insert(valve)
        assert await stored(db) == {("valves", "valve_v^2"), ("valves", "note_a^2Fb^5Fc_v^5E2")}
        assert await db.select(Valve.by_note).where(Valve.note == "a/b_c").all() == [valve]


def test_another_word_is_refused() -> None:
    """`keys` is "escaped" or "verbatim"."""
    keys: Any = "raw"
    with pytest.raises(ModelError, match="keys='raw' is unknown; use 'escaped' or 'verbatim'"):

        class Raw(Entity, table="Pumps", partition_key="p", row_key="{name}", keys=keys):  # pyright: ignore[reportUnusedClass]
            name: Mapped[str]
