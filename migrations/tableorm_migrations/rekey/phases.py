"""
An online re-key as the store knows it: its two models, its phase, and how long everybody has known that.
"""

import asyncio
import datetime as dt
import time
from typing import Self

import attrs

from tableorm import Database, Entity, ModelError, NotSupported
from tableorm.connection.connection import Connection, connection_of
from tableorm.connection.index_states import write_records
from tableorm.connection.rows import read_row
from tableorm.jobs.process import Crew
from tableorm.models.entity import schema_of
from tableorm.models.kinds import KindSet, filter_of_kinds
from tableorm.models.marker_rows import FORWARD, TENTATIVE
from tableorm.models.reserved import UPKEEP_TABLE
from tableorm.protocol.edm import datetime_from_text
from tableorm.protocol.filters import Filter, Or
from tableorm.rekey.phases import ASK_AGAIN, RekeyPhase, StoredPhase, change_phase, load_phase
from tableorm.rekey.rekeying import Rekeying, rekeying_of
from tableorm.stores import Operation, Row, RowAddress, Verb

KNOWN_EVERYWHERE = 2 * ASK_AGAIN
"""After how many seconds every program that runs knows a phase, or has asked for it again."""

_CLOCK = "clock"


@attrs.frozen(kw_only=True, eq=False)
class OnlineRekey:
    """
    An online re-key.

    Args:
        db: The database.
        verb: Name of the function that was called, with the model, for messages.
        rekeying: The two models.
        old_kinds: The kinds of the older model.
        new_kinds: The kinds of the newer one.
        crew: The workers of this process.
    """

    db: Database
    verb: str
    rekeying: Rekeying
    old_kinds: KindSet
    new_kinds: KindSet
    crew: Crew = attrs.field(factory=Crew)

    @classmethod
    def of(cls, verb: str, db: Database, model: type[Entity]) -> Self:
        """
        Return the re-key that a model declares.

        Raises:
            ModelError: It declares none.
            AccessDenied: The database is a scope.
        """
        schema = schema_of(model)
        verb = f"{verb}({schema.name})"
        rekeying = rekeying_of(schema)
        if rekeying is None:
            raise ModelError(
                f"{verb} is rejected: {schema.name} does not say whose entities it takes over; declare class "
                f"{schema.name}(..., moved_from=MovedFrom(OlderModel))"
            )
        connection = connection_of(db)
        connection.require_whole_tables(verb)
        old = rekeying.old
        return cls(
            db=db,
            verb=verb,
            rekeying=rekeying,
            old_kinds=KindSet.of([old.model], old.table_name()),
            new_kinds=KindSet.of([model], schema.table_name()),
        )

    def __str__(self) -> str:
        return f"{self.rekeying.old.name} as {self.rekeying.new.name}"

    @property
    def connection(self) -> Connection:
        """The connection of the database."""
        return connection_of(self.db)

    async def read_phase(self, *allowed: RekeyPhase, remedy: str = "") -> StoredPhase:
        """
        Return the phase as the store says it now.

        Raises:
            NotSupported: It is none of those that are allowed.
        """
        found = await load_phase(self.connection, self.rekeying)
        if allowed and found.phase not in allowed:
            names = " or ".join(f"{each.value!r}" for each in allowed)
            raise NotSupported(
                f"{self.verb} is rejected: the re-key of {self} is in phase {found.phase.value!r}, and this is for "
                f"{names}{remedy and f'; {remedy}'}"
            )
        return found

    async def enter(self, read: StoredPhase, phase: RekeyPhase) -> StoredPhase:
        """Let the next phase begin, unless another process has done so; return the phase as it is then."""
        if read.phase is phase:
            return read
        return await change_phase(self.connection, self.rekeying, read, phase)

    async def wait_until_known(self, phase: StoredPhase) -> None:
        """
        Wait until every program that runs knows a phase, by the clock of the store; no longer than if it had begun just
        now, should its row be of a damaged file.
        """
        begun = time.monotonic()
        while phase.since is not None:
            left = KNOWN_EVERYWHERE - max(
                (await self._read_clock() - phase.since).total_seconds(), time.monotonic() - begun
            )
            if left <= 0:
                break
            await asyncio.sleep(left)

    async def _read_clock(self) -> dt.datetime:
        """Return what time it is for the store, by writing a row."""
        row: Row = {"PartitionKey": _CLOCK, "RowKey": self.rekeying.digest}
        what = f"clock of the store for {self.verb}"
        await write_records(self.connection, [Operation(Verb.INSERT_OR_REPLACE, row)], (), what)
        written = await read_row(self.connection, RowAddress(UPKEEP_TABLE, _CLOCK, self.rekeying.digest))
        assert written is not None
        return datetime_from_text(written["Timestamp"])

    async def require(self, phase: RekeyPhase) -> None:
        """
        Stop what belongs to a phase once it has ended.

        Raises:
            NotSupported: The re-key is in another phase by now.
        """
        await self.read_phase(phase, remedy="another process has gone on meanwhile")

    def filter_left(self) -> Filter | None:
        """Return the condition for rows under older keys: entities, and rows of moves that the older model made."""
        own = self.old_kinds.filter
        return None if own is None else Or((_between(f"{self.rekeying.old.kind}{TENTATIVE}"), own))


def rekey_filter(kinds: KindSet, *, entities: bool = False) -> Filter | None:
    """Return the condition for a model's marker rows of re-keys, and with `entities` for its entities."""
    (schema,) = kinds.schemas
    terms = [_between(f"{schema.kind}{mark}") for mark in (TENTATIVE, FORWARD)]
    if not entities:
        return Or(tuple(terms))
    return None if kinds.filter is None else Or((*terms, kinds.filter))  # properties do not always tell


def _between(kind: str) -> Filter:
    """Return the condition of rows of a kind, with or without a version."""
    return filter_of_kinds(kind, f"{kind};")
