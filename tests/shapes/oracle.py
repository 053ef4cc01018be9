"""
Random models with fields of several properties beside plain ones, some of them wide, and what a row ought to be after
each verb: kept in plain Python, by rules that know no shape. A wide model is declared twice, in two orders of its
fields, as by an older and a newer program.
"""

import asyncio
import datetime as dt
import math
import types
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import lru_cache, partial
from random import Random
from typing import Any, cast

from tableorm import (
    Database,
    EncodeError,
    Entity,
    EntityExists,
    EntityNotFound,
    Index,
    Int32,
    Mapped,
    NotLoaded,
    PreconditionFailed,
    Series,
    encrypted,
    field,
    series,
)
from tableorm.connection.connection import connection_of
from tableorm.stores import Bounds, Operation, RowQuery, TableStore, Verb
from tests.faults import Fate, FaultyStore

TABLE = "Oracle"

Values = dict[str, Any]
"""What a row has, by path: of a series each slot that is stored, such as "a[1]"."""

_SLOTS: list[tuple[Any, Any, list[Any]]] = [
    (int, 0, [0, 1, -5, 2**40]),
    (Int32, 7, [0, 7, 2**31 - 1]),
    (float, 0.5, [0.0, 1.5, 2.0, -math.inf]),
    (bool, False, [True, False]),
    (dt.datetime, dt.datetime(2020, 1, 1, tzinfo=dt.UTC), [dt.datetime(2026, 1, 1, 12, 30, tzinfo=dt.UTC)]),
    (str, "", ["", "a", "\U0001f600"]),
]


_LONG: list[tuple[Any, list[Any]]] = [
    (str, ["", "a", "x" * 32_768, "x" * 32_769, "\U0001f600" * 20_000, "a\U0001f600\u00e9" * 30_000]),
    (bytes, [b"", b"a", bytes(65_536), bytes(range(256)) * 300]),
    (list[int], [[], [1], [*range(9_000)], [*range(15_000)]]),
]


@dataclass(frozen=True)
class Shaped:
    """A series of a random model: how many slots, and the values that they may have."""

    length: int
    values: list[Any]
    default: Any


@lru_cache
def random_model(seed: int) -> tuple[list[type[Any]], dict[str, Shaped], dict[str, list[Any]]]:
    """
    Return a model with an id, two or three plain fields, one to three series and up to two long values, of which some
    are tracked, versioned, indexed or expire, and others are wide, in two forms, and some have encrypted fields; what
    the series are, and the values that the others can have.
    """
    random = Random(seed)
    annotations: dict[str, Any] = {"id": Mapped[int], "age": Mapped[int | None], "name": Mapped[str | None]}
    arguments: dict[str, dict[str, Any]] = {}
    shaped: dict[str, Shaped] = {}
    for name in random.sample("abc", random.randint(1, 3)):
        kind, default, values = random.choice(_SLOTS)
        length, default = random.randint(1, 5), random.choice([None, default])
        options: Any = {} if default is None else {"default": default}
        annotations[name] = cast("Any", Series)[kind | None if default is None else kind]
        arguments[name] = {"length": length, "name": random.choice([None, f"{name.upper()}{{i:02d}}"]), **options}
        shaped[name] = Shaped(length, values, default)
    plain: dict[str, list[Any]] = {"age": [0, 1, 9], "name": ["", "Ken"]}
    wide = seed % 2 == 0
    if not wide and random.random() < 0.3:
        annotations["expires"] = Mapped[dt.datetime | None]
        plain["expires"] = [dt.datetime(2200 + number, 1, 1, tzinfo=dt.UTC) for number in range(2)]
    compressed: dict[str, bool] = {}
    for name in random.sample("xyz", random.randint(0, 2)):
        kind, plain[name] = random.choice(_LONG)
        annotations[name] = cast("Any", Mapped)[kind | None]
        compressed[name] = random.random() < 0.5
    sealed = {name for name in ("name", *compressed) if seed % 3 == 0 and random.random() < 0.7}
    keys: dict[str, Any] = {"table": TABLE, "partition_key": "p", "row_key": f"m{seed}_{{id:06d}}", "kind": f"M{seed}"}
    orders, indexed = [[*annotations]], not wide and random.random() < 0.4
    if wide:
        orders.append(random.sample([*annotations], len(annotations)))
    else:
        keys["version"] = random.choice([1, 2])
        keys[random.choice(["write_token", "tracked"])] = random.random() < 0.7

    def declare(number: int, names: list[str]) -> type[Any]:
        count = 2 + sum(each.length for each in shaped.values()) + 16 * len(compressed)
        form = {"wide": random.randint(1, min(8, count - 1))} if wide else {}  # which takes more than one row
        name: Any = encrypted if "name" in sealed else field
        body: dict[str, Any] = {"age": field(default=None), "name": name(default=None, name="Name")}
        if "expires" in names:
            body["expires"] = field(default=None, expiry=True)
        body |= {name: series(**each) for name, each in arguments.items()}
        for name, each in compressed.items():
            body[name] = (encrypted if name in sealed else field)(default=None, chunked=True, compress=each)
        if indexed:
            body["by_age"] = Index(row_key=f"i{seed}_{{age}}_{{id}}", include=[name for name in names if name != "id"])
        body |= {"__annotations__": {name: annotations[name] for name in names}, "__module__": __name__}
        return types.new_class(f"Model{seed}In{number}", (Entity,), keys | form, lambda space: space.update(body))

    return [declare(number, names) for number, names in enumerate(orders)], shaped, plain


@dataclass
class Handle:
    """An entity, and what it ought to know: what it showed when it was last read or written, and of which version."""

    entity: Any
    base: Values
    version: int
    shown: Values = dataclass_field(default_factory=dict[str, Any])


class World:
    """One row, which many entities stand for, and the row as it ought to be."""

    def __init__(self, db: Database, seed: int, random: Random, number: int = 1) -> None:
        self.db, self.random, self.id = db, random, number
        self.models, self.shaped, self.plain = random_model(seed)
        self.model = self.models[0]
        self.row: Values | None = None
        self.unknown: dict[str, Any] = {}
        self.version = 0
        self.handles: list[Handle] = []
        self.row_key = f"m{seed}_{number:06d}"
        self.log: list[str] = []
        self.network: list[FaultyStore] = []
        if self.model.__schema__.write_token:
            connection_of(db).wrap_store(self.beneath)

    def beneath(self, store: TableStore) -> FaultyStore:
        self.network.append(FaultyStore(store))
        return self.network[0]

    @property
    def paths(self) -> list[str]:
        """The paths of all that an entity can have besides its id."""
        slots = [f"{name}[{at}]" for name, each in self.shaped.items() for at in range(each.length)]
        return [*self.plain, *slots]

    def random_value(self, path: str) -> Any:
        if path != "expires" and self.random.random() < 0.3:
            return None  # an upsert that merges could not remove the time
        if path in self.plain:
            return self.random.choice(self.plain[path])
        return self.random.choice(self.shaped[path.partition("[")[0]].values)

    def assign(self, entity: Any, shown: Values, path: str, value: Any) -> None:
        """Set a field or slot of an entity, as a program does."""
        name, _, rest = path.partition("[")
        if not rest:
            setattr(entity, name, value)
        elif value is None and self.shaped[name].default is not None:
            return  # such slots are never None
        else:
            slots = getattr(entity, name)
            slots[int(rest[:-1]) - self.random.choice([0, len(slots)])] = value
        shown.pop(path, None)
        if value is not None:
            shown[path] = value

    def new_entity(self) -> Handle:
        entity, shown = self.model(id=self.id), dict[str, Any]()
        for path in self.paths:
            self.assign(entity, shown, path, self.random_value(path))
        return Handle(entity, {}, -1, shown)

    def written(self, handle: Handle, row: Values) -> None:
        self.row = row
        self.version += 1
        handle.base, handle.version = dict(row), self.version

    # Verbs: each says what ought to happen, and does it.

    async def insert(self) -> None:
        handle = self.new_entity()
        if self.row is not None:
            await refused(EntityExists, self.db.insert(handle.entity))
            return
        await self.db.insert(handle.entity)
        self.unknown = {}
        self.written(handle, dict(handle.shown))
        self.handles.append(handle)

    async def upsert(self) -> None:
        handle, whole = self.new_entity(), self.random.random() < 0.4
        await self.db.upsert(handle.entity, mode="replace" if whole else "merge")
        if whole:
            self.unknown = {}
        # What an upsert that merges leaves is not known to its entity, which is not used again.
        self.written(handle, dict(handle.shown) if whole else {**(self.row or {}), **handle.shown})

    async def read(self) -> None:
        if self.row is None:
            await refused(EntityNotFound, self.db.get(self.model, id=self.id))
            return
        entity = await self.db.get(self.model, id=self.id)
        self.handles.append(Handle(entity, dict(self.row), self.version, dict(self.row)))

    async def change(self) -> None:
        if self.handles:
            handle = self.random.choice(self.handles)
            for path in self.random.sample(self.paths, self.random.randint(1, min(3, len(self.paths)))):
                self.assign(handle.entity, handle.shown, path, self.random_value(path))

    async def save(self) -> None:
        await self._write("save")

    async def replace(self) -> None:
        await self._write("replace", if_match=self.random.choice([None, "*"]))

    async def merge(self) -> None:
        await self._write("merge")

    async def merge_some(self) -> None:
        if not self.handles:
            return
        handle, if_match = self.random.choice(self.handles), self.random.choice([None, "*"])
        chosen = self.random.sample([*self.paths, *self.shaped], self.random.randint(1, 2))
        paths = [path for path in self.paths if path in chosen or path.partition("[")[0] in chosen]
        only = [self.expression(path, type(handle.entity)) for path in chosen]
        unsure = [path for path in paths if path not in handle.shown and (if_match or path in handle.base)]
        if not any(path in handle.shown for path in paths):
            return  # there is nothing to send
        calling = self.db.merge(handle.entity, only=only, if_match=if_match)
        if unsure:
            await refused(EncodeError, calling)
        elif self.row is None:
            self.handles.remove(handle)
            await refused(EntityNotFound, calling)
        elif if_match is None and handle.version != self.version:
            self.handles.remove(handle)
            await refused(PreconditionFailed, calling)
        else:
            await calling
            sent = {path: handle.shown[path] for path in paths if path in handle.shown}
            base = {**handle.base, **sent}
            self.written(handle, {**self.row, **sent})
            handle.base = base
            if if_match:
                self.handles.remove(handle)  # it does not know what it has written over

    async def _write(self, verb: str, **arguments: Any) -> None:
        if not self.handles:
            return
        handle, forced = self.random.choice(self.handles), arguments.get("if_match") == "*"
        known = {**handle.base, **handle.shown}
        removed = [path for path in handle.base if path not in handle.shown]
        if verb == "merge" and not handle.shown:
            return  # there is nothing to send
        calling = getattr(self.db, verb)(handle.entity, **arguments)
        if verb == "merge" and removed:
            await refused(EncodeError, calling)
            return
        if verb == "save" and handle.shown == handle.base and _same(handle.shown, handle.base):
            await calling  # nothing is sent
            return
        if self.row is None:
            self.handles.remove(handle)
            await refused((EntityNotFound, PreconditionFailed), calling)
        elif handle.version != self.version and not forced:
            self.handles.remove(handle)
            await refused(PreconditionFailed, calling)
        else:
            await calling
            row = dict(handle.shown) if verb == "replace" else {**self.row, **known}
            self.written(handle, {path: value for path, value in row.items() if path not in removed})

    async def read_a_slot(self) -> None:
        """Read one slot alone, set it or another one, and save: nothing else changes."""
        name = self.random.choice([*self.shaped])
        at, other = (self.random.randrange(self.shaped[name].length) for _ in range(2))
        query = self.db.select(self.model).where(self.model.id == self.id).only(self.expression(f"{name}[{at}]"))
        entity: Any = await query.first()
        if self.row is None:
            assert entity is None
            return
        slots = getattr(entity, name)
        assert slots[at] == self.row.get(f"{name}[{at}]", self.shaped[name].default)
        if at != other:
            try:
                slots[other]
            except NotLoaded:
                pass
            else:
                raise AssertionError("a slot that was not asked for has a value")
        value = self.random.choice(self.shaped[name].values)
        slots[other] = value
        await self.db.save(entity)
        changed = {**self.row, f"{name}[{other}]": value}
        if at != other or not _same(changed, self.row):  # what was not read is sent whatever it is
            self.written(Handle(entity, {}, -1), changed)

    async def delete(self) -> None:
        if self.row is not None and self.random.random() < 0.3:
            for network in self.network:
                network.plan()  # nothing would prove that it is gone
            await self.db.delete(self.model.key(id=self.id), if_match="*")
            self.row, self.unknown = None, {}
            self.version += 1

    async def other_program(self) -> None:
        """Another program merges a property that the model does not know."""
        if self.row is not None:
            name = self.random.choice(["other", "more"])
            self.unknown[name] = self.random.choice(["x", 5])
            keys = {"PartitionKey": "p", "RowKey": self.row_key}
            operation = Operation(Verb.MERGE, {**keys, name: self.unknown[name]}, "*")
            await (self.network[0].store if self.network else self.db.store).write(TABLE, operation)
            self.version += 1

    async def modify(self) -> None:
        if self.row is None:
            return
        path = self.random.choice(self.paths)
        value, shown = self.random_value(path), dict(self.row)
        await self.db.modify(self.model, lambda each: self.assign(each, shown, path, value), id=self.id)
        if not _same(shown, self.row):
            self.written(Handle(None, {}, -1), shown)

    async def modify_together(self) -> None:
        """Several programs change a field or slot each, at the same time."""
        if self.row is None:
            return
        shown = dict(self.row)
        changes = [(path, self.random_value(path)) for path in self.random.sample(self.paths, 3)]
        calls = (
            self.db.modify(self.model, partial(self.assign, shown=shown, path=path, value=value), id=self.id)
            for path, value in changes
        )
        await asyncio.gather(*calls)
        if not _same(shown, self.row):
            self.written(Handle(None, {}, -1), shown)

    async def transaction(self) -> None:
        """Two saves of one entity in a transaction, with what is set between them."""
        if self.row is None:
            return
        shown = dict(self.row)
        async with self.db.transaction() as tx:
            entity = await tx.get(self.model, id=self.id)
            for path in self.random.sample(self.paths, 2):
                self.assign(entity, shown, path, self.random_value(path))
                tx.save(entity)
        if not _same(shown, self.row):
            self.written(Handle(None, {}, -1), shown)

    async def bulk(self) -> None:
        handle = self.new_entity()
        async with self.db.bulk() as bulk:
            await bulk.upsert(handle.entity, mode="merge")
        self.written(handle, {**(self.row or {}), **handle.shown})

    async def condition(self) -> None:
        """Each stored slot is found by its value, and by no other."""
        path = self.random.choice([path for path in self.paths if "[" in path])
        value = self.random.choice(self.shaped[path.partition("[")[0]].values)
        found = await self.db.select(self.model).where(self.model.id == self.id, self.expression(path) == value).all()
        assert len(found) == (self.row is not None and path in self.row and _same(self.row[path], value))
        none = await self.db.select(self.model).where(self.model.id == self.id, self.expression(path).is_none()).all()
        assert len(none) == (self.row is not None and path not in self.row)

    def expression(self, path: str, model: Any = None) -> Any:
        name, _, rest = path.partition("[")
        found = getattr(model or self.model, name)
        return found[int(rest[:-1])] if rest else found

    async def step(self) -> None:
        verb = self.random.choice(_VERBS)
        self.model = self.models[self.random.randrange(2) if len(self.models) > 1 else 0]
        self.log.append(verb.__name__)
        for network in self.network:
            network.plan(*self.random.choices([Fate.FINE, Fate.LOST_REPLY], [4, 1], k=4))
        await verb(self)
        await self.check()

    async def check(self) -> None:
        """The row is what it ought to be."""
        if self.row is None:
            assert await self.db.get_or_none(self.model, id=self.id) is None
            return
        entity = await self.db.get(self.model, id=self.id)
        found = {name: getattr(entity, name) for name in self.plain}
        for name, each in self.shaped.items():
            found |= {f"{name}[{at}]": value for at, value in enumerate(getattr(entity, name))}
            assert len(getattr(entity, name)) == each.length
        wanted = {path: self.row.get(path, self.default_of(path)) for path in self.paths}
        assert found == wanted, self.log
        assert dict(entity.extra) == self.unknown, self.log
        keys = Bounds(self.row_key, f"{self.row_key}~99")
        rows = (await self.db.store.query(TABLE, RowQuery(Bounds.only("p"), keys))).rows
        stored = [name for row in rows for name in row if name in self.model.__schema__.by_property]
        opaque = self.model.__schema__.opaque
        assert all(row.get(f"{name}@odata.type") == "Edm.Binary" for row in rows for name in row if name in opaque)
        assert len({*stored}) == len(stored), self.log
        found_paths = {
            path.removesuffix("[0]") if path[0] in "xyz" else path
            for path, each in self.model.__schema__.by_path.items()
            if each.property in stored
        }
        assert {path for path in self.paths if path in found_paths} == {*self.row}, self.log

    def default_of(self, path: str) -> Any:
        name, _, rest = path.partition("[")
        return self.shaped[name].default if rest else None


def _same(one: Any, two: Any) -> bool:
    """Return whether values are equal and of one type, as 0 and False are not."""
    if isinstance(one, dict):
        ones, twos = cast("Values", one), cast("Values", two)
        return ones.keys() == twos.keys() and all(_same(ones[path], twos[path]) for path in ones)
    return type(one) is type(two) and bool(one == two)


_VERBS = (
    *(World.insert, World.upsert, World.read, World.delete, World.other_program, World.modify, World.transaction),
    *(World.modify_together, World.bulk, World.condition, World.read_a_slot, World.replace, World.merge),
    *(World.change, World.save, World.merge_some) * 2,
)


async def refused(error: Any, calling: Any) -> None:
    """The call raises the error."""
    try:
        await calling
    except error:
        return
    raise AssertionError(f"{error} was not raised")
