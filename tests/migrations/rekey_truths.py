"""
The entities of an online re-key as they really are, whatever their keys are by now.
"""

from collections.abc import Sequence
from typing import Any

import attrs

from tableorm.models.entity import schema_of
from tableorm.models.state import state_of
from tableorm.stores import Row
from tests.migrations.random_layouts import Layout, Values, rows_of_entities
from tests.migrations.random_programs import Who, Write

SIDES: dict[Who, int] = {"older": 0, "newer": 1}


@attrs.define
class Truth:
    """
    What an entity really has.

    Args:
        values: Its fields by the older model, but for those that writes fill.
        extra: What neither model knows, as it is stored.
        stamp: What the last write that fills it has filled in.
        born: What its insert has filled in.
        version: How often it was written.
    """

    values: Values
    extra: Row
    stamp: int = 0
    born: int | None = None
    version: int = 0


class Truths:
    """
    All entities of a layout.

    Args:
        layout: The two models.

    Attributes:
        entities: By a number that nobody else knows.
        used: The older keys that entities have had.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.entities: dict[int, Truth] = {}
        self.used = set[tuple[str, str]]()
        self._count = 0

    def add(self, truth: Truth) -> None:
        """Note a new entity."""
        self._count += 1
        self.replace(self._count, truth)

    def replace(self, number: int, truth: Truth) -> None:
        """Note what an entity is by now."""
        self.entities[number] = truth
        self.used.add(self.layout.keys_of(truth.values)[0])

    def pick(self, number: int) -> tuple[int, Truth]:
        """Choose an entity."""
        numbers = list(self.entities)
        chosen = numbers[number % len(numbers)]
        return chosen, self.entities[chosen]

    def model(self, who: Who) -> type[Any]:
        """Return the model that a program knows."""
        return self.layout.old if who == "older" else self.layout.new

    def values_of(self, who: Who, truth: Truth) -> Values:
        """Return the fields that an entity has by a model."""
        values = truth.values if who == "older" else self.layout.renew(truth.values)
        return {**values, "stamp": truth.stamp, "born": truth.born}

    def key_of(self, who: Who, truth: Truth) -> Values:
        """Return the fields of its key."""
        values = self.values_of(who, truth)
        return {name: values[name] for name in schema_of(self.model(who)).key_fields}

    def make(self, who: Who, truth: Truth) -> Any:
        """Return an entity as a program makes it, which leaves some fields to its first write."""
        values = self.values_of(who, truth)
        entity = self.model(who)(**{name: values[name] for name in values if name not in ("stamp", "born")})
        if truth.extra:
            entity.extra.row.update(truth.extra)
        return entity

    def is_new(self, truth: Truth) -> bool | None:
        """Return whether both keys of an entity are free; None if one is, so that there would be a collision later."""
        older, newer = self.layout.keys_of(truth.values)
        taken = [self.layout.keys_of(each.values) for each in self.entities.values()]
        by_older, by_newer = any(each[0] == older for each in taken), any(each[1] == newer for each in taken)
        return None if by_older is not by_newer else not by_older

    def changed(self, write: Write, truth: Truth) -> Truth | None:
        """
        Return what an entity is to become; None if the program would give it another key by its own model, or there
        would be a collision, or a key that is rejected.
        """
        values = {**truth.values, **{name: write.values[name] for name in write.names}}
        if not self.layout.may_be(values):
            return None
        before, after = self.layout.keys_of(truth.values), self.layout.keys_of(values)
        others = [self.layout.keys_of(each.values) for each in self.entities.values() if each is not truth]
        if any(key in (other[0], other[1]) for other in others for key in after):
            return None
        side = SIDES[write.who]
        key_fields = schema_of(self.model(write.who)).key_fields
        renewed = [each if write.who == "older" else self.layout.renew(each) for each in (truth.values, values)]
        if before[side] != after[side] or any(renewed[0][name] != renewed[1][name] for name in key_fields):
            return None
        extra = truth.extra if write.extra is None else write.extra
        return attrs.evolve(truth, values=values, extra=extra)

    def changes_older_key(self, before: Truth, after: Truth) -> bool:
        """Return whether an entity would get another key by the older model."""
        return self.layout.keys_of(before.values)[0] != self.layout.keys_of(after.values)[0]

    def note(self, who: Who, entity: Any, truth: Truth, *, inserted: bool = False, sent: bool = True) -> None:
        """Note what a write has filled in: each model fills some fields, and nothing else does."""
        if inserted:
            assert entity.born is not None
            truth.born = entity.born
        if sent and self.layout.spec.on_write[SIDES[who]]:
            assert entity.stamp > truth.stamp
            truth.stamp = entity.stamp
        truth.version += sent  # what has not changed is not sent

    # What there should be

    def assert_is(self, who: Who, entity: Any, truth: Truth) -> None:
        """Compare an entity that was read with what it really is."""
        schema = schema_of(self.model(who))
        found = {name: getattr(entity, name) for name in schema.fields}
        assert found == self.values_of(who, truth)
        assert state_of(entity).unknown(schema.known) == truth.extra

    def assert_all(self, who: Who, found: Sequence[Any], *, whole: bool) -> None:
        """Compare entities that a query has found with what they really are; if these should be all, also which."""
        expected = {self.layout.keys_of(each.values)[SIDES[who]]: each for each in self.entities.values()}
        keys = [schema_of(self.model(who)).make_keys(each.__dict__) for each in found]
        assert len(set(keys)) == len(keys), f"doubled: {keys}"
        for key, entity in zip(keys, found, strict=True):
            assert key in expected, f"{entity!r} should not be there"
            self.assert_is(who, entity, expected[key])
        if whole:
            assert set(keys) == set(expected), f"lost: {set(expected) - set(keys)}"

    def rows(self, who: Who, table: str) -> dict[tuple[str, str], Row]:
        """Return the rows that a table should have if all entities have their keys by a model."""
        if table != self.layout.tables[SIDES[who]]:
            return {}
        entities = [(self.values_of(who, truth), truth.extra) for truth in self.entities.values()]
        return rows_of_entities(self.model(who), entities)

    def raw_keys(self, who: Who) -> set[tuple[str, str]]:
        """Return the keys of entities that a program without the mapper has inserted, and that no write has filled."""
        raw = [truth for truth in self.entities.values() if truth.born is None and not truth.stamp]
        return {self.layout.keys_of(truth.values)[SIDES[who]] for truth in raw}
