"""
Entities that change seldom, kept in memory for some time: read again when that is over, or this program writes them.
"""

import asyncio
import copy
import math
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Generic, Literal, TypeVar

import attrs

from ..connection.connection import Connection
from ..connection.tasks import take_error
from ..errors import DecodeError, EntityNotFound, ModelError, WrongKind, shown
from ..models.entity import Entity, schema_of
from ..models.key import Key
from ..models.visibility import is_live
from ..protocol.codes import Code
from ..queries.misfits import check_policy, settle_error
from ..stores import CLOCK, RowAddress, StoreRequest, utc_now
from ..writes.subject import key_from

E = TypeVar("E", bound=Entity)

_NANOSECONDS = 1_000_000_000


@attrs.frozen(eq=False)
class _Kept:
    """An entity, or None if there is none, and when it was asked for."""

    entity: Any
    since: int


_ALL = None
"""What stands in place of an address for a read of all entities."""


@attrs.define(eq=False)
class _Read:
    """
    A read that is under way.

    Attributes:
        since: When it was asked for.
        written: Where this program has written since: what it brings of that may be old.
        task: Returns the entities by their addresses, in key order, and errors in place of those that do not fit.
    """

    since: int
    written: set[RowAddress] = attrs.field(factory=set[RowAddress])
    task: asyncio.Task[dict[RowAddress, Any]] = attrs.field(init=False)


class CachedEntities(Generic[E]):
    """
    A cache for entities of a model, made by `db.cached(Department, ttl=60)`.

    It also remembers that an entity doesn't exist. Concurrent callers for the same entity share one read, and everyone
    gets a separate copy. Rows that this program writes through the same database are read again; writes of other
    programs are seen once `ttl` is over.

    Args:
        db: The connection.
        model: The model.
        ttl: How long an entity is kept, in seconds, from the moment when it is requested.
        max_entities: How many entities to keep at most.
    """

    def __init__(self, db: Connection, model: type[E], ttl: float, max_entities: int) -> None:
        schema = schema_of(model)
        if type(ttl) not in (int, float) or not 0 < ttl < math.inf:
            raise ModelError(f"cached({schema.name}, ttl={shown(ttl)}) is rejected: give seconds above 0")
        if type(max_entities) is not int or max_entities < 1:
            raise ModelError(f"cached(max_entities={shown(max_entities)}) is rejected: give a number from 1")
        self._db, self.model, self._schema = db, model, schema
        self._ttl, self._most = ttl * _NANOSECONDS, max_entities
        self._kept: OrderedDict[RowAddress, _Kept] = OrderedDict()
        self._all: tuple[int, list[RowAddress]] | None = None
        self._joined: dict[RowAddress | None, _Read] = {}
        """The read that others may wait for, by what they ask for: this program has not written that since it began."""
        self._under_way: set[_Read] = set()
        """The reads of which something may be kept."""
        self._mutable = any(info.type.json_text or info.shape for info in schema.fields.values()) or schema.abstract
        db.listen(self._note_write)  # before anything is read: a write that is under way then is heard when it ends

    def __repr__(self) -> str:
        return f"<cached {self._schema.name}, {len(self._kept)} entities>"

    async def get(self, key: Key[E] | None = None, /, **fields: Any) -> E:
        """
        Return an entity by its key, or by its key fields.

            department = await departments.get(name="Sales")

        Raises:
            EntityNotFound: There is no such entity.
            TableOrmError: Whatever `Database.get` raises.
        """
        wanted: Key[Any] = key_from(self._db.boundary, self.model if key is None else key, fields)
        (entity,) = await self.get_many([wanted])
        if entity is None:
            raise EntityNotFound(f"there is no {wanted}", Code.RESOURCE_NOT_FOUND, wanted)
        return entity

    async def get_many(
        self,
        keys: Iterable[Key[E]],
        *,
        misfits: Literal["raise", "skip"]
        | Callable[[DecodeError | WrongKind], object]
        | dict[Key[Any], DecodeError | WrongKind] = "raise",
    ) -> list[E | None]:
        """
        Return entities by their keys, in the same order; None where there is none.

            keys = [Department.key(name=name) for name in ("Sales", "HR")]
            found = await departments.get_many(keys)

        Args:
            keys: The keys.
            misfits: What happens with a row that can't be read, as in `Database.get_many`.

        Raises:
            ModelError: A key is of another model.
            TableOrmError: Whatever `Database.get_many` raises.
        """
        if not isinstance(misfits, dict):
            check_policy(f"get_many(misfits={misfits!r})", misfits)
        given = list(keys)
        wanted = [self._address_of(key) for key in given]
        await self._listen()
        now = CLOCK.time_ns()
        found: dict[RowAddress, Any] = {}
        missing: list[RowAddress] = []
        waiting: dict[RowAddress, _Read] = {}
        for address in dict.fromkeys(wanted):
            kept = self._kept.get(address)
            if kept is not None and self._is_fresh(kept.since, now):
                self._kept.move_to_end(address)
                found[address] = kept.entity
            elif (read := self._find_read(address, now)) is not None:
                waiting[address] = read
            else:
                missing.append(address)
        if missing:
            waiting |= dict.fromkeys(missing, self._start(missing, self._read, now))
        for address, read in waiting.items():
            found[address] = (await asyncio.shield(read.task))[address]
        for key, address in dict(zip(given, wanted, strict=True)).items():
            entity = found[address]
            if isinstance(entity, Entity) and not isinstance(entity, key.model):
                kind: str | None = entity.__schema__.kind
                message = f"the row of {key} is not of its model, but of {type(entity).__name__}"
                entity = found[address] = WrongKind(message, key, kind)
            if isinstance(entity, Exception):
                settle_error(misfits, entity, key)
        return [self._given(found[address]) for address in wanted]

    async def all(self) -> list[E]:
        """
        Return all entities of the model, in key order. This reads every partition of the model, once per `ttl`.

            for department in await departments.all(): ...

        Raises:
            TableOrmError: Whatever a query's `all` raises.
        """
        await self._listen()
        now = CLOCK.time_ns()
        whole = self._all
        if whole is not None and self._is_fresh(whole[0], now) and all(each in self._kept for each in whole[1]):
            found: Iterable[Any] = [self._kept[each].entity for each in whole[1]]
        else:
            read = self._find_read(_ALL, now) or self._start([_ALL], self._read_all, now)
            found = (await asyncio.shield(read.task)).values()
        return [entity for each in found if (entity := self._given(each)) is not None]

    def clear(self) -> None:
        """Forget everything, so that it is read again."""
        self._kept.clear()
        self._all = None
        self._under_way.clear()
        self._joined.clear()

    # Inside

    def _address_of(self, key: Key[Any]) -> RowAddress:
        if not issubclass(getattr(key, "model", int), self.model):
            raise ModelError(f"{self} has no {shown(key)}: give keys of {self._schema.name}")
        self._db.boundary.check(key)
        return _address_of(key.table, key.partition_key, key.row_key)

    def _is_fresh(self, since: int, now: int) -> bool:
        return since <= now < since + self._ttl

    def _given(self, entity: Any) -> Any:
        """Return what a caller gets of an entity: a copy, or None if it is none any more."""
        if (
            entity is None
            or isinstance(entity, Exception)
            or (entity.__schema__.expiry is not None and not is_live(entity, utc_now()))
        ):
            return None
        return copy.deepcopy(entity) if self._mutable else entity.evolve()

    def _find_read(self, address: RowAddress | None, now: int) -> _Read | None:
        """Return a read that is under way and brings what a caller may get."""
        read = self._joined.get(address)
        return read if read is not None and self._is_fresh(read.since, now) else None

    def _start(
        self,
        addresses: Sequence[Any],
        work: Callable[[_Read, Sequence[Any]], Coroutine[Any, Any, dict[RowAddress, Any]]],
        now: int,
    ) -> _Read:
        """Begin a read, which goes on if its callers are cancelled: others may wait for it too."""
        read = _Read(now)

        def end(task: asyncio.Task[Any]) -> None:
            take_error(task)
            self._under_way.discard(read)
            for address in addresses:
                if self._joined.get(address) is read:
                    del self._joined[address]

        read.task = asyncio.create_task(work(read, addresses))
        read.task.add_done_callback(end)
        self._under_way.add(read)
        self._joined |= dict.fromkeys(addresses, read)
        return read

    async def _read(self, read: _Read, addresses: Sequence[RowAddress]) -> dict[RowAddress, Any]:
        keys = [Key(self.model, each.table, each.partition_key, each.row_key) for each in addresses]
        misfits: dict[Key[Any], DecodeError | WrongKind] = {}
        entities = await self._db.reader.get_many(keys, misfits=misfits)
        found = {
            address: misfits.get(key, entity) for address, key, entity in zip(addresses, keys, entities, strict=True)
        }
        self._keep(found, read)
        return found

    async def _read_all(self, read: _Read, _: Sequence[None]) -> dict[RowAddress, Any]:
        entities: list[Any] = await self._db.reader.select(self.model).allow_scan().all()
        keys = [entity.key for entity in entities]
        found = {
            _address_of(key.table, key.partition_key, key.row_key): entity
            for key, entity in zip(keys, entities, strict=True)
        }
        self._keep(found, read)
        if read in self._under_way and not read.written and len(found) <= self._most:
            self._all = read.since, [*found]
        return found

    def _keep(self, found: dict[RowAddress, Any], read: _Read) -> None:
        for address, entity in found.items() if read in self._under_way else ():
            before = self._kept.get(address)
            newer = before is not None and before.since > read.since
            if address not in read.written and not newer and not isinstance(entity, Exception):
                self._kept[address] = _Kept(entity, read.since)
                self._kept.move_to_end(address)
                if len(self._kept) > self._most:
                    self._kept.popitem(last=False)

    async def _listen(self) -> None:
        """Be told of writes. A database that was opened again begins with nothing."""
        self._db.require_open()
        if self._db.listen(self._note_write):
            self.clear()

    def _note_write(self, request: StoreRequest) -> None:
        """Take note of a request that has ended, whether it has written or not."""
        schema = self._schema
        if request.method == "delete_table" or schema.split is not None or schema.home is not None:
            self.clear()  # an entity may be in other rows than that of its key
            return
        if schema.only_table is not None and request.table.lower() != schema.only_table.lower():
            return
        for operation in request.operations:
            address = _address_of(request.table, operation.row["PartitionKey"], operation.row["RowKey"])
            self._kept.pop(address, None)
            self._joined.pop(address, None)
            for read in self._under_way:
                read.written.add(address)
        if request.operations:
            self._all = None
            self._joined.pop(_ALL, None)


def _address_of(table: str, partition_key: str, row_key: str) -> RowAddress:
    """Return where a row is; the names of two tables differ in more than letter case."""
    return RowAddress(table.lower(), partition_key, row_key)


def caches_by_model(
    db: Connection, given: "CachedEntities[Any] | Sequence[CachedEntities[Any]]"
) -> dict[type[Any], CachedEntities[Any]]:
    """Return caches by their models. Raises ModelError if one is of another database, or none."""
    several = [*given] if isinstance(given, Iterable) else [given]
    for each in several:
        if not isinstance(each, CachedEntities):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(f"load(cache={shown(each)}) is rejected: give what db.cached(...) has made")
        if each._db is not db:  # pyright: ignore[reportPrivateUsage]
            raise ModelError(f"load(cache={each}) is rejected: it is of another database or scope, which has its own")
    return {each.model: each for each in several}
