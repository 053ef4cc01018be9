"""
The two models of an offline re-key, and how an entity of the older one becomes entities of the newer one.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Self, cast

import attrs

from tableorm import (
    Conflict,
    Database,
    DecodeError,
    Entity,
    EntityNotFound,
    Key,
    ModelError,
    NotSupported,
    TransactionFailed,
)
from tableorm.connection.connection import connection_of
from tableorm.errors import shown
from tableorm.jobs.counts import JobCounts
from tableorm.jobs.process import default_name
from tableorm.jobs.ranges import purpose_of
from tableorm.models.entity import copy_unknown, schema_of
from tableorm.models.kinds import KindSet
from tableorm.models.schema import Schema
from tableorm.models.state import state_of
from tableorm.rekey.moved_from import copy_fields
from tableorm.rekey.phases import RekeyPhase, change_phase, load_phase
from tableorm.rekey.rekeying import Rekeying, rekeying_of
from tableorm.stores import Row, row_keys
from tableorm.writes.bulk.bulk import delete_found

from .hashing import hash_entity
from .sides import Deal, Side, Window

Merge = Callable[[Any, Any], Any]
"""Takes the entity that is stored and another one of the same key, and returns what they are together."""

ToNew = Callable[[Any], Any]
"""Makes an entity of the newer model from one of the older; or several in a list; or None, which drops the entity."""


@attrs.frozen(kw_only=True, eq=False)
class Layouts:
    """
    Two models, of which the entities of one become entities of the other.

    Args:
        label: The call, for messages.
        db: Where the entities of the older model are, and where is stored how far everything is.
        target: Where those of the newer model are; the same database, or another.
        old: The older model.
        new: The newer model.
        old_kinds: The kinds of the older model's table, as far as the re-key reads it.
        new_kinds: The same of the newer model's table.
        merge: Makes one of two entities with one key; None if no two have one.
    """

    label: str
    db: Database
    target: Database
    old: Schema
    new: Schema
    old_kinds: KindSet
    new_kinds: KindSet
    merge: Merge | None
    _to_new: ToNew = attrs.field(alias="to_new")
    _keys_lose: bool = attrs.field(init=False)
    """Whether fields of the older key are stored besides, so that what they say may not be what the key says."""

    def __attrs_post_init__(self) -> None:
        loses = any(self.old.fields[name].stored for name in self.old.key_fields)
        object.__setattr__(self, "_keys_lose", loses)

    @classmethod
    def of(
        cls,
        verb: str,
        db: Database,
        models: tuple[type[Entity], type[Entity]],
        to_new: ToNew | None,
        target: Database | None,
        merge: Merge | None = None,
    ) -> Self:
        """
        Return the layouts of a call.

        Args:
            verb: Name of the function that was called.
            db: Where the entities of the older model are.
            models: The older model and the newer one.
            to_new: What the function was given; None for what the newer model says, or for a copy by names of fields.
            target: Where those of the newer model are; None for the same database.
            merge: What the function was given.

        Raises:
            ModelError: An entity of one model cannot become one of the other, or `merge` is no function.
            NotSupported: Rows of the two models could not be told apart, or kept right.
            AccessDenied: A database is a scope.
        """
        old, new = map(schema_of, models)
        label = f"{verb}({old.name}, {new.name})"
        same = target is None or target is db
        for each in (db, target or db):
            connection_of(each).require_whole_tables(label)
        for schema in (old, new):
            _refuse_layout(label, schema)
        same = same and old.table_name().lower() == new.table_name().lower()
        if same and None in (old.kind, new.kind):
            raise NotSupported(f"{label} is rejected: both are in table {old.table}, and one of them has no kind")
        if same and old.kind == new.kind:
            raise NotSupported(
                f"{label} is rejected: both have the kind {old.kind!r} in table {old.table}, so their rows can't be "
                f'distinguished; give the newer model a different kind: class {new.name}(Entity, kind="...", ...)'
            )
        if merge is not None and not callable(merge):
            raise ModelError(f"{verb}(merge={shown(merge)}) is rejected: give a function of two entities")
        rekeying = rekeying_of(new)
        if to_new is None and rekeying is not None and rekeying.old is old:
            to_new = rekeying.to_new
        return cls(
            label=label,
            db=db,
            target=db if target is None else target,
            old=old,
            new=new,
            old_kinds=KindSet.of([old.model], old.table_name()),
            new_kinds=KindSet.of([new.model], new.table_name()),
            merge=merge,
            to_new=to_new or copy_fields(label, old, new, "to_new"),
        )

    def __str__(self) -> str:
        return f"{self.old.name} as {self.new.name}"

    @property
    def purpose(self) -> str:
        """A hash of the two layouts, as runs store it."""
        templates = [each.text for schema in (self.old, self.new) for each in schema.templates()]
        return purpose_of(f"rekey {templates}", [self.old, self.new])

    def run_name(self, what: str) -> str:
        """Return the name of a run: "re-key", "verify", "verify again", "finalize" or "roll back"."""
        return default_name(f"{what} {self}", self.purpose)

    async def forget_runs(self, *names: str) -> None:
        """
        Forget runs of these models, unless another process has just done so.

        Args:
            names: What `run_name` takes.

        Raises:
            TransactionFailed: A process works on one of them.
        """
        for name in names:
            with suppress(ModelError):  # there is none
                while True:
                    try:
                        await self.db.drop_run(self.run_name(name))
                    except TransactionFailed as error:
                        if not isinstance(error.__cause__, EntityNotFound):
                            raise

    @property
    def _rekeying(self) -> Rekeying | None:
        """What the newer model says of the older one, if it is this one."""
        found = rekeying_of(self.new)
        return found if found is not None and found.old is self.old else None

    async def enter(self, phase: RekeyPhase) -> None:
        """
        Let programs whose newer model says `moved_from=` the older one look at the newer keys alone: in phase *sealed*,
        or in the end *done*.

        Raises:
            NotSupported: An online re-key is under way.
        """
        db, rekeying = connection_of(self.target), self._rekeying
        if rekeying is None:
            return
        found = await load_phase(db, rekeying)
        if found.phase in (RekeyPhase.MOVE, RekeyPhase.BACK):
            raise NotSupported(
                f"{self.label} is rejected: an online re-key is under way, in phase "
                f"{found.phase.value!r}; finish it, or go back"
            )
        if found.phase is RekeyPhase.EXPAND or (found.phase is RekeyPhase.SEALED and phase is RekeyPhase.DONE):
            await change_phase(db, rekeying, found, phase)

    async def check_way_back(self) -> None:
        """
        Refuse to go back if programs do not look at the newer keys because of an offline re-key.

        Raises:
            NotSupported: Nothing was begun, or it is an online re-key, or the older entities are gone.
        """
        if self._rekeying is None:
            return
        found = await load_phase(connection_of(self.target), self._rekeying)
        if found.offline:
            return
        problem, remedy = "an online re-key", "roll_back_move() goes back until it is sealed"
        if found.phase is RekeyPhase.EXPAND:
            problem, remedy = "no re-key", "there is nothing to go back from"
        if found.phase is RekeyPhase.DONE:
            problem, remedy = "the re-key has ended", "the way back is another re-key"
        raise NotSupported(f"{self.label} is rejected: in phase {found.phase.value!r} there is {problem}; {remedy}")

    async def leave(self) -> None:
        """
        End the offline phase: a program that reads the newer model looks at the older keys again.

        This concerns newer models that declare `moved_from=` the older one.
        """
        if self._rekeying is not None:
            db = connection_of(self.target)
            found = await load_phase(db, self._rekeying)
            if found.offline:
                await change_phase(db, self._rekeying, found, RekeyPhase.EXPAND)

    def old_side(self, deal: Deal | Window) -> Side:
        """Return the side of a job that deals with the rows of the older model."""
        return Side(db=connection_of(self.db), schema=self.old, where=self.old_kinds.filter, deal=deal)

    def new_side(self, deal: Deal) -> Side:
        """Return the side of a job that deals with the rows of the newer model."""
        return Side(db=connection_of(self.target), schema=self.new, where=self.new_kinds.filter, deal=deal)

    def load(self, row: Row) -> Any:
        """
        Return the entity of the older model that a row holds; None if it holds none.

        Raises:
            DecodeError: It does not fit the model, or its fields are not those of its key.
        """
        entity = self.old_kinds.load(row)
        keys = row_keys(row)
        if self._keys_lose and isinstance(entity, Entity) and self.old.make_keys(entity.__dict__) != keys:
            raise DecodeError("has fields that make another key; another program has written it", self.old.name, keys)
        return entity

    def make(self, row: Row, counts: JobCounts) -> list[tuple[Any, tuple[str, str]]] | None:
        """
        Return the entities of the newer model that a row becomes, each with its keys; None if it holds no entity of the
        older model, which is counted otherwise.

        Raises:
            DecodeError: As `load` does.
            Exception: As `convert` does.
        """
        entity = self.load(row)
        if entity is None:
            return None
        counts.entities += 1
        return [(each, self.new.make_keys(each.__dict__)) for each in self.convert(entity)]

    async def delete(self, db: Database, schema: Schema, rows: Iterable[Row], counts: JobCounts) -> None:
        """
        Delete the entities of some rows, and what is derived from them, if the rows are still as they were read.

        Args:
            db: The database that has them.
            schema: The older model or the newer one, of which the entities are.
            rows: The rows; one may come twice.
            counts: Counts those that were deleted as `written`, and as failures those that were not; one that is gone
                is neither.
        """
        table = schema.table_name()
        by_key = {Key(schema.model, table, *row_keys(row)): row for row in rows}
        async with db.bulk(errors="report") as bulk:
            for key, row in by_key.items():
                await delete_found(bulk, key, row)
        for each in bulk.report.failed:
            if not isinstance(each.error, EntityNotFound):
                changed = isinstance(each.error, Conflict)
                counts.fail(each.entity, "was written meanwhile, and stays" if changed else str(each.error))
        counts.written += len(by_key) - bulk.report.failures
        counts.count("transactions", bulk.report.requests)

    def is_newer(self, row: Row) -> bool:
        """Return whether a row of the newer model's table is an entity of it."""
        return self.new_kinds.schema_of_row(row) is not None

    def holds(self, stored: Any, made: Any) -> bool:
        """
        Return whether an entity that was read is what an older entity becomes, alone or merged with others. With
        `merge`, it has been merged with that: a function that changes what it was given before, as a sum does, shows.

        Raises:
            ModelError: `merge` returned no entity of that key.
        """
        before = hash_entity(self.new, stored)
        if self.merge is None:
            return before == hash_entity(self.new, made)
        _merge_into(self.merge, stored, made)
        return before == hash_entity(self.new, stored)

    def convert(self, entity: Any) -> list[Any]:
        """
        Return the entities of the newer model that one of the older becomes; none if it is dropped.

        Raises:
            ModelError: The function returned something else.
            Exception: What the function raised.
        """
        made = self._to_new(entity)
        found: list[Any] = [] if made is None else [*made] if hasattr(made, "__iter__") else [made]
        for each in found:
            if getattr(cast("object", each), "__schema__", None) is not self.new:
                raise ModelError(
                    f"to_new returned {shown(each)} for {entity!r}; return a {self.new.name}, a list of such, or None"
                )
            if not state_of(each).unknown(self.new.known):
                copy_unknown(entity, each)
        return found


def _refuse_layout(label: str, schema: Schema) -> None:
    """Refuse a model whose entities a re-key cannot read or write as they are."""
    if schema.abstract:
        raise ModelError(f"{label} is rejected: {schema.name} is abstract; name a model that has entities")
    if schema.periods is not None:
        raise NotSupported(f"{label} is rejected: {schema.name} has a table for each period; re-key a plain table")
    if schema.uploads:
        raise NotSupported(
            f"{label} is rejected: {schema.name}.{schema.uploads[0].name} is a blob, which would be deleted with the "
            "older row; give entities their new keys one by one, by db.move()"
        )
    if schema.stages:
        what, remedy = "is wide, and its rows would be taken one by one", "by a program that inserts and deletes them"
        if schema.split is None:
            what, remedy = "has encrypted fields, and the sums that are compared would tell of them", "by db.move()"
        raise NotSupported(
            f"{label} is rejected: {schema.name} {what}; give entities their new keys one by one, {remedy}"
        )
    if schema.maintained:
        raise NotSupported(
            f"{label} is rejected: other entities keep {schema.name}.{schema.maintained[0].name}, which nobody would "
            "count for the new keys; leave the field out, and build it afterwards"
        )


def _merge_into(merge: Merge, stored: Any, entity: Any) -> None:
    """
    Give an entity that was read what it and another one of the same key are together. Properties that the model does
    not know are those of the entity that the function returns; if that is a third one, and has none, they stay.

    Raises:
        ModelError: The function returned no entity of that key.
    """
    found = merge(stored, entity)
    if type(found) is not type(stored) or found.key != stored.key:
        raise ModelError(f"merge returned {shown(found)}; return a {type(stored).__name__} of the key {stored.key}")
    if found is stored:
        return
    schema = stored.__schema__
    for name in schema.fields:  # a key may tell a part of its fields alone
        setattr(stored, name, getattr(found, name))
    unknown = state_of(found).unknown(schema.known)
    if found is entity or unknown:
        for name in state_of(stored).unknown(schema.known):
            del stored.extra.row[name]
        stored.extra.row.update(unknown)
