"""
`propose` on rows in random layouts: keys of known formats, literals and separators, with properties of any type.
"""

import datetime as dt
import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tableorm.inspection import propose
from tableorm.keys.format import Format
from tableorm.keys.formats import make_format
from tableorm.protocol.edm import Value
from tableorm.stores import Row
from tests.inspection.layouts import NOW, Long, make_row

Chance = random.Random

VALUES: dict[Any, Callable[[Chance], Any]] = {
    str: lambda chance: "".join(chance.choices("abzAZ09 é^%_-.+å", k=chance.randrange(5))),
    int: lambda chance: chance.randrange(10 ** chance.randrange(1, 6)),
    bool: lambda chance: chance.random() < 0.5,
    dt.datetime: lambda chance: NOW - dt.timedelta(seconds=chance.randrange(10**8)),
    dt.date: lambda chance: NOW.date() - dt.timedelta(days=chance.randrange(9000)),
    UUID: lambda chance: UUID(int=chance.getrandbits(128)),
    float: lambda chance: chance.choice([0.5, -1.0, float("inf")]),
    bytes: lambda chance: chance.randbytes(3),
    Long: lambda chance: Long(chance.getrandbits(60)),
}
SPECS: dict[Any, list[str]] = {
    str: [""],
    int: ["", "06d", "07d_desc", "08x", "08X"],
    bool: ["", "True"],
    dt.datetime: ["ticks", "ticks_desc", "epoch_s", "epoch_s_desc", "epoch_ms", "epoch_us_desc", "iso", "iso3", "iso7"],
    dt.date: ["", "%Y%m%d", "%d-%m-%Y"],
    UUID: ["", "upper", "N", "N_upper", "B", "B_upper", "desc"],
}
SEPARATORS = ["_", "-", "|", ";", "^", "%", "___", ":", "@", "=", "~^", "."]


def make_rows(seed: int) -> list[Row]:
    """Return the rows of a table: of one kind, or of several that heads of RowKeys, or a property, tell apart."""
    chance = Chance(seed)
    rows: dict[tuple[str, str], Row] = {}
    heads = chance.choice([[""], [""], ["order_", "customer-"], ["a|", "ab|", "profile;"]])
    typed = chance.choice([None, None, "EntityType", "Type"])
    for head in heads:
        make_key = [make_keys(chance), make_keys(chance)]
        names = {f"P{n}{head.strip('_-|;')}": chance.choice(list(VALUES)) for n in range(chance.randrange(4))}
        for _ in range(chance.randrange(1, 30)):
            properties: dict[str, Value] = {
                name: VALUES[kind](chance)
                for name, kind in names.items()
                if kind is not dt.date and (chance.random() < 0.9 or name.startswith("P0"))
            }
            if typed is not None:
                properties[typed] = head or "one"
            one, two = (make(properties) for make in make_key)
            row = make_row(one, head + two, **properties)
            rows[row["PartitionKey"], row["RowKey"]] = row
    return list(rows.values())


def make_keys(chance: Chance) -> Callable[[dict[str, Value]], str]:
    """Return what makes a key of a row: texts of formats between separators, some of a property."""
    parts: list[Callable[[dict[str, Value]], str]] = []
    for _ in range(chance.randrange(1, 5)):
        kind = chance.choice(list(SPECS))
        form = make_format(kind, chance.choice(SPECS[kind]))
        assert isinstance(form, Format)
        separator = chance.choice(SEPARATORS) if parts else chance.choice(["", "", "v2_", "T"])
        literal, repeats = chance.random() < 0.2, chance.random() < 0.3

        def part(
            row: dict[str, Value],
            form: Format = form,
            kind: Any = kind,
            separator: str = separator,
            literal: bool = literal,
            repeats: bool = repeats,
        ) -> str:
            same = [value for value in row.values() if type(value) is kind]
            value = same[0] if same and repeats else VALUES[kind](chance)
            return separator + ("x" if literal else form.to_text(value))

        parts.append(part)
    return lambda row: "".join(make(row) for make in parts)


@given(st.integers(0, 2**32))
def test_all_rows_are_read(seed: int) -> None:
    """Whatever the layout, the models that are proposed read all rows exactly."""
    rows = make_rows(seed)

    proposal = propose("Things", rows)

    assert sum(model.rows for model in proposal.models) == len(rows)
    assert [str(model) for model in proposal.models if model.exact < model.rows] == []
