"""
The home of entities that a model takes over from an older one: at their newer keys, or still at their older ones.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..connection.connection import Connection
from ..connection.rows import read_row
from ..errors import NotSupported, ScanRefused, TableNotFound
from ..models.entity import Entity
from ..models.key import Key
from ..models.kinds import KindSet
from ..models.marker_rows import is_marker
from ..queries.home import QueriedHome
from ..queries.select import Select
from ..stores import Row, RowAddress
from ..writes.commit import commit
from ..writes.explain import WriteExplanation
from ..writes.home import names_of
from ..writes.plan import Change, PlannedWrite
from .explain import explain_in_phase
from .older import write_older
from .phases import current_phase
from .reads import find_row, has_older_keys
from .rekeying import Rekeying
from .select import RekeyedSelect
from .steps import bring_home, prepare_write


class RekeyedHome(Rekeying, QueriedHome):
    """The home of entities that a model takes over from an older one. It takes the arguments of `Rekeying`."""

    def __init__(self, **given: Any) -> None:
        Rekeying.__init__(self, **given)
        QueriedHome.__init__(self, commit)

    # Writers

    async def write_instead(self, db: Connection, change: Change) -> bool:
        """See `Home`."""
        return await write_older(db, self, change)

    async def read(self, db: Connection, at: Change | Key[Any], fields: Mapping[str, Any] | None = None) -> Row | None:
        """See `Home`. In the phase in which entities are moved, one that has its older key gets its newer one first."""
        place, name = RowAddress.of(at), names_of(at)[1]
        try:
            row = await read_row(db, place, name=name)
        except TableNotFound:
            if not await has_older_keys(db, self):
                raise
            row = None
        if row is None or is_marker(row):
            own = at.subject.__dict__ if isinstance(at, Change) and isinstance(at.subject, Entity) else fields
            if await bring_home(db, self, place, own):
                row = await read_row(db, place, name=name)
            elif await has_older_keys(db, self):
                found = await find_row(db, self, place, own)
                row = None if found is None else found.row
        return row if row is None or not is_marker(row) else await self._read_confirmed(db, at, row)

    async def prepare(self, db: Connection, write: PlannedWrite) -> PlannedWrite:
        """See `Home`."""
        await prepare_write(db, self, write)
        return await super().prepare(db, write)

    # Readers

    async def find(
        self, db: Connection, kinds: KindSet, name: str, address: RowAddress, fields: Mapping[str, Any]
    ) -> Row | None:
        """See `QueriedHome`."""
        if len(kinds.schemas) > 1 and not (await current_phase(db, self)).is_over:
            raise NotSupported(
                f"get of {name} is rejected: until the {self} is complete, entities of {self.new.name} may have "
                f"older keys; read {self.new.name} itself until `tableorm migrate seal` was run"
            )
        found = await find_row(db, self, address, fields or None)
        return None if found is None else found.row

    async def has_all_entries(self, db: Connection) -> bool:
        """See `QueriedHome`."""
        return (await current_phase(db, self)).is_over

    async def first(self, query: Select[Any], index: str) -> Any:
        """See `QueriedHome`."""
        try:
            return await query.first()
        except ScanRefused as error:
            raise NotSupported(f"get of {index} is rejected until `tableorm migrate seal` was run: {error}") from None

    def select(self, db: Connection, kinds: KindSet, models: tuple[Any, ...]) -> Select[Any]:
        """See `QueriedHome`."""
        return RekeyedSelect[Any](db, kinds, models)

    def explain(self, db: Connection, changes: Sequence[Change]) -> WriteExplanation:
        """See `QueriedHome`."""
        return explain_in_phase(db, self, changes)
