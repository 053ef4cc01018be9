"""
Queries for entities of a model that takes over those of an older one: as long as some have their older keys, a query of
each of the two models, joined in the order of the newer keys.

Entities go from one key to the other meanwhile. So what they come from is read first, and what they come to afterwards,
which counts where both have an entity. Those that were found at their older keys are held in memory until their turn.
If there are too many, the first ones in the order of newer keys are given; then both are read again, for the next ones.
"""

from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import cached_property
from typing import Any, Self, TypeVar

import attrs
import msgspec

from ..connection.rows import read_row
from ..errors import DecodeError, GoingBack, NotSupported, ScanRefused
from ..expressions import (
    AllOf,
    AnyOf,
    Comparison,
    Expression,
    Field,
    FieldTerm,
    Membership,
    NoneOf,
    PartitionKey,
    RowKey,
    conjuncts,
)
from ..keys.ranges import KeyPosition, key_order
from ..models.entity import Entity
from ..models.kinds import KindSet
from ..models.schema import Schema
from ..models.state import state_of
from ..protocol.filters import Op
from ..queries.explain import Explanation, explain_together
from ..queries.misfits import settle_error
from ..queries.planning.client_filter import make_test
from ..queries.planning.planner import planner_of
from ..queries.progress import ReadProgress
from ..queries.select import Select
from ..stores import Row, RowAddress, row_keys
from .phases import RekeyPhase, current_phase
from .rekeying import Rekeying, entity_of_old, has_old_key_of, renewed

E_co = TypeVar("E_co", covariant=True)

_NoteMisfit = Callable[[DecodeError], object]
_SortKey = tuple[bytes, bytes]

_MOST_HELD = 50_000
"""How many entities are held in memory, and for a moment a quarter more; as bytes each takes a kilobyte or more."""


class RekeyedSelect(Select[E_co]):
    """A query for entities of a model that takes over those of an older one."""

    @property
    def _rekeying(self) -> Rekeying:
        home = self._kinds.home
        assert isinstance(home, Rekeying)
        return home

    async def _open_phase(self) -> RekeyPhase | None:
        """Return the phase as long as entities may have their older keys; None afterwards, or without a database."""
        phase = None if self._db is None else await current_phase(self._db, self._rekeying)
        return None if phase is None or phase.is_over else phase

    async def _settle(self) -> Self:
        phase = await self._open_phase()
        if phase is not None:
            raise self._refused(phase, "it cannot be read page by page, deleted, or joined with others")
        return await super()._settle()

    def _refused(self, phase: RekeyPhase, problem: str) -> NotSupported:
        return NotSupported(
            f"{self} is rejected: {problem}, while entities may have their keys by {self._rekeying.old.name}, in phase "
            f"{phase.value!r} of the {self._rekeying}; do so when `tableorm migrate seal` was run"
        )

    def _scan_refused(self, phase: RekeyPhase) -> ScanRefused:
        """Return the error that refuses the query of the older model, and names what would serve it here."""
        old, new = self._rekeying.old, self._rekeying.new
        partition = old.partition
        fields = [] if partition is None else [each for each in partition.fields if each not in partition.spread_fields]
        wanted = ", ".join(f"{new.name}.{each} == ..." for each in fields)
        told = wanted and self._rekeying.copied.issuperset(fields)
        return ScanRefused(
            f"{self}: in phase {phase.value!r} of the {self._rekeying}, entities may have their keys by {old.name}, "
            f"and to find those the query would visit too many partitions of table {old.table}; add "
            f"{f'.where({wanted}), or ' if told else ''}.allow_scan() to scan anyway"
        )

    # Running

    async def _results(
        self, cursor: str | None, progress: ReadProgress | None = None
    ) -> AsyncGenerator[list[E_co], None]:
        phase = await self._open_phase()
        if phase is None:
            return await super()._results(cursor, progress)
        self._check(phase)
        if cursor is not None:
            raise self._refused(phase, "it has no cursors")
        if progress is not None:
            progress.refused = str(self._refused(phase, "it has no cursors"))
        return self._join_both(phase)

    async def _join_both(self, phase: RekeyPhase) -> AsyncGenerator[list[E_co], None]:
        """Yield entities of both queries, each once, as many as are wanted."""
        left = self._limit
        if left == 0:
            return
        misfits: dict[tuple[str, KeyPosition], DecodeError] = {}

        def note_misfit(error: DecodeError) -> None:
            if misfits.setdefault((error.model, error.key), error) is error and self._misfits != "raise":
                settle_error(self._misfits, error)

        async with aclosing(self._read_both(phase, note_misfit)) as found:
            async for entity in found:
                yield [entity]
                left = None if left is None else left - 1
                if left == 0:
                    return
        first = next(iter(misfits.values()), None)
        if first is not None and self._misfits == "raise":
            raise first  # after all others: nobody knows the newer key, and so the place, of what does not fit
        if (phase is RekeyPhase.BACK) is not (await self._open_phase() is RekeyPhase.BACK):
            raise GoingBack(f"{self}: entities began to go the other way while it ran; run it again")

    async def count(self) -> int:
        """Count the entities. Raises what `all` raises."""
        return await (super().count() if await self._open_phase() is None else self._count_entities(None))

    def _check(self, phase: RekeyPhase) -> None:
        """Refuse what would need more than the two queries."""
        problems = {
            "it reads entries of an index; query the model": self._reads_entries,
            "it reads several kinds; query each by itself": len(self._kinds.schemas) > 1 or self._kinds.bags,
            "it loads some fields alone; remove .only()": self._only is not None,
            "it was split": self._interval is not None,
            "its key is spread over partitions": self._newer._plan(self._select).merged,
        }
        for problem, found in problems.items():
            if found:
                raise self._refused(phase, problem)

    async def _read_both(self, phase: RekeyPhase, note_misfit: _NoteMisfit) -> AsyncGenerator[E_co, None]:
        """
        Yield entities of both queries, each once: where both have one, that which was read later.

        The first ones in the order of the newer keys are held, up to a number; then the next ones are looked for.
        """
        most = _MOST_HELD if self._limit is None else min(_MOST_HELD, self._limit)
        after: KeyPosition | None = None
        while True:
            held = _Held(most, after)
            if phase is RekeyPhase.BACK:
                async with aclosing(self._read_newer(phase, after, None, note_misfit)) as newer:
                    async for entity in newer:
                        held.add(self._keys_of(entity), entity)
            await self._read_older(phase, held, note_misfit)
            waiting = deque(held.end())
            if phase is not RekeyPhase.BACK:
                async with aclosing(self._read_newer(phase, after, held.last, note_misfit)) as newer:
                    async for entity in newer:
                        keys = self._keys_of(entity)
                        held.found.pop(keys, None)
                        while self._ordered and waiting and key_order(waiting[0]) < key_order(keys):
                            before = waiting.popleft()
                            if before in held.found:
                                for loaded in self._load(held.found.pop(before), note_misfit):
                                    yield loaded
                        yield entity
            for keys in waiting:
                if keys in held.found:
                    for loaded in self._load(held.found.pop(keys), note_misfit):
                        yield loaded
            if held.last is None:
                return
            after = held.last

    def _keys_of(self, entity: Any) -> KeyPosition:
        """
        Return the newer key that an entity has, also one that was found by an index entry. What another program has
        written may have fields that make the key of another entity, which it must not hide.
        """
        keys = state_of(entity).keys
        assert keys is not None
        return keys

    def _load(self, found: Any, note_misfit: _NoteMisfit) -> list[Any]:
        """Return an entity that was held, if it fits the model."""
        try:
            row: Any = msgspec.json.decode(found) if isinstance(found, bytes) else found
            return [row if isinstance(row, Entity) else self._kinds.load(row)]
        except DecodeError as error:
            note_misfit(error)
            return []

    def _read_newer(
        self, phase: RekeyPhase, after: KeyPosition | None, last: KeyPosition | None, note_misfit: _NoteMisfit
    ) -> AsyncGenerator[E_co, None]:
        """
        Return the entities that have their newer keys.

        Args:
            phase: The phase.
            after: Those behind this key; None for all.
            last: Those up to this key; None for all.
            note_misfit: Called with the error of each that does not fit its model.
        """
        query = attrs.evolve(self._newer, part=None if phase is RekeyPhase.MOVE else self._kinds.table)
        return query.where(*_between(after, last)).misfits(note_misfit)._iterate(None, None)

    async def _read_older(self, phase: RekeyPhase, held: "_Held", note_misfit: _NoteMisfit) -> None:
        """
        Hold the entities that have their older keys, by the keys that they will have, as bytes, which take less room.

        Raises:
            ScanRefused: The query of the older model would visit every partition.
        """
        tests = [make_test(planner_of(self._kinds).target, term) for term in self._where]
        try:
            async with aclosing(self._older.misfits(note_misfit)._iterate(None, None)) as entities:
                async for entity in entities:
                    try:
                        made = await self._renew(entity)
                    except DecodeError as error:
                        note_misfit(error)
                        continue
                    row = None if made is None else state_of(made).row
                    if row is not None and all(test(row) is True for test in tests):
                        held.add(row_keys(row), _pack(row))
        except ScanRefused:
            raise self._scan_refused(phase) from None

    async def _renew(self, entity: Entity) -> Entity | None:
        """Return what an entity of the older model becomes; None if it has just left its older key."""
        state, db, old = state_of(entity), self._db, self._rekeying.old
        if state.etag is not None and state.keys is not None:
            made = renewed(self._rekeying, entity)
            return made if made is not None and has_old_key_of(self._rekeying, made) else None
        assert db is not None
        row = await read_row(db, RowAddress(old.table_name(), *old.make_keys(entity.__dict__)))  # of an index entry
        return None if row is None else entity_of_old(self._rekeying, row)

    @cached_property
    def _newer(self) -> Select[E_co]:
        """The query of the newer keys."""
        return self._as(Select[E_co])

    @cached_property
    def _older(self) -> Select[Any]:
        """The query of the older model, of all entities that may satisfy the conditions, and perhaps of others."""
        model = self._rekeying.old.model
        terms = [_older_condition(self._rekeying, term) for term in conjuncts(self._where)]
        query: Select[Any] = Select(
            self._db, KindSet.of([model]), (model,), tuple(each for each in terms if each is not None)
        )
        return attrs.evolve(
            query, scan=self._scan, parallel=self._parallel, ordered=False, concurrency=self._concurrency
        )

    # Explaining

    def explain(self) -> Explanation:
        """
        Tell what will be sent to which keys, first of the older model. Nothing is sent: until the store was asked for
        the phase, entities may have their older keys.

        Raises:
            ScanRefused: One of the queries would visit every partition.
        """
        phase = None if self._db is None else RekeyPhase.known_to(self._db, self._rekeying)
        if phase is None or phase.is_over:
            return super().explain()
        self._check(phase)
        newer = self._newer.explain()
        try:
            older = self._older.explain()
        except ScanRefused:
            raise self._scan_refused(phase) from None
        tested = attrs.evolve(older, client_side=(*older.client_side, *map(str, self._where)))
        return explain_together(newer, [tested, newer])


class _Held:
    """
    The first entities behind a key that were found, in the order of keys.

    Args:
        most: How many there are in the end.
        after: The key; None for the beginning.

    Attributes:
        found: The entities by their keys. Where one is found twice, the later find counts.
        last: The key up to which it has all that were found; None if it has all.
    """

    def __init__(self, most: int, after: KeyPosition | None) -> None:
        self.found: dict[KeyPosition, Any] = {}
        self.last: KeyPosition | None = None
        self._most, self._after = most, None if after is None else key_order(after)
        self._last: _SortKey | None = None

    def add(self, keys: KeyPosition, entity: Any) -> None:
        """Add an entity, unless it is not behind the key, or behind enough others."""
        if self._after is not None or self._last is not None:
            place = key_order(keys)
            if (self._after is not None and place <= self._after) or (self._last is not None and place > self._last):
                return
        self.found[keys] = entity
        if len(self.found) > self._most + self._most // 4:
            self.end()

    def end(self) -> list[KeyPosition]:
        """Drop those that are too many, and return the keys of the others in order."""
        keys = sorted(self.found, key=key_order)
        if len(keys) > self._most:
            keys, dropped = keys[: self._most], keys[self._most :]
            for each in dropped:
                del self.found[each]
            self.last, self._last = keys[-1], key_order(keys[-1])
        return keys


def _pack(row: Row) -> bytes | Row:
    """Return a row in a form that takes less room; itself, if it has half of a surrogate pair, which has no JSON."""
    try:
        return msgspec.json.encode(row)
    except (TypeError, ValueError):
        return row


def _between(after: KeyPosition | None, last: KeyPosition | None) -> list[Expression]:
    """Return the conditions of rows behind a key, and up to another one."""
    found: list[Expression] = []
    if after is not None:
        found.append((PartitionKey > after[0]) | ((PartitionKey == after[0]) & (RowKey > after[1])))
    if last is not None:
        found.append((PartitionKey < last[0]) | ((PartitionKey == last[0]) & (RowKey <= last[1])))
    return found


def _older_condition(rekeying: Rekeying, term: Expression, *, exact: bool = False) -> Expression | None:
    """
    Return the condition on the older model that holds wherever this one does; None if the models do not tell.

    Args:
        rekeying: The models.
        term: The condition.
        exact: Whether the condition must hold nowhere else either.
    """
    if isinstance(term, FieldTerm):
        name = term.field.name
        if name not in rekeying.copied or not _is_told(rekeying.old, term, exact=exact):
            return None
        return attrs.evolve(term, field=Field(rekeying.old.model, name))
    if isinstance(term, NoneOf):
        inner = _older_condition(rekeying, term.term, exact=True)
        return None if inner is None else NoneOf(inner)
    if isinstance(term, (AllOf, AnyOf)):
        terms = [_older_condition(rekeying, each, exact=exact) for each in term.terms]
        return (
            None
            if any(each is None for each in terms)
            else attrs.evolve(term, terms=tuple(each for each in terms if each is not None))
        )
    return None


def _is_told(old: Schema, term: FieldTerm, *, exact: bool) -> bool:
    """
    Return whether a stored row of the older model tells what its entity has. A row without a property does not if the
    field is read as its default then: only that it has none of some other values is told.
    """
    info = old.fields[term.field.name]
    default = info.absent() if info.stored else None
    if default is None:
        return True
    if isinstance(term, Membership):
        return not exact and not term.negated and default not in term.values
    return not exact and isinstance(term, Comparison) and term.op is Op.EQ and bool(term.value != default)
