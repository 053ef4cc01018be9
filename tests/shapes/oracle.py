"""
Random models of all that may be combined, and what a row ought to be after each verb: kept in plain Python, by rules
that know no shape. A wide model is declared twice, in two orders of its fields, as by an older and a newer program.
"""

import asyncio
import datetime as dt
import math
import types
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import lru_cache, partial
from random import Random
from typing import Any, cast

import pytest

from tableorm import (
    Blob,
    Database,
    EncodeError,
    EncryptionError,
    Entity,
    EntityExists,
    EntityNotFound,
    Index,
    Int32,
    Mapped,
    NotLoaded,
    PreconditionFailed,
    PropertyBag,
    Series,
    encrypted,
    field,
    series,
    upgrade,
)
from tableorm.connection.connection import connection_of
from tableorm.models.reserved import BLOB_FIELDS
from tableorm.stores import CLOCK, Bounds, Operation, RowQuery, TableStore, Verb
from tableorm_migrations import rewrite
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


class Data:
    """The bytes of a blob. No two are the same: whoever is given one sends it."""

    def __init__(self, data: bytes) -> None:
        self.data = data


@dataclass(frozen=True)
class Drawn:
    """
    A random model.

    Attributes:
        models: The model; of a wide one another one with its fields in another order.
        shaped: What its series are.
        plain: The values that its other fields can have; of blobs their bytes.
        blobs: Which of these are blobs.
        older: The model of an older version; None if there is none.
        base: The abstract model that it is of; None if it is of none.
    """

    models: list[type[Any]]
    shaped: dict[str, Shaped]
    plain: dict[str, list[Any]]
    blobs: list[str]
    older: type[Any] | None
    base: type[Any] | None


@lru_cache
def random_model(seed: int) -> Drawn:
    """
    Return a model with two or three plain fields, one to three series, and up to two long values and two blobs, some of
    which are encrypted. Some models are tracked, of two versions, indexed, of an abstract base, or expire, and others
    are wide, in two forms.
    """
    random = Random(seed)
    wide = seed % 2 == 0
    annotations: dict[str, Any] = {"id": Mapped[int], "age": Mapped[int | None], "name": Mapped[str | None]}
    arguments: dict[str, dict[str, Any]] = {}
    shaped: dict[str, Shaped] = {}
    plain: dict[str, list[Any]] = {"age": [0, 1, 9], "name": ["", "Ken"]}

    def is_sealed() -> bool:
        return seed % 3 == 0 and random.random() < 0.7

    make: dict[str, Any] = {"name": encrypted if is_sealed() else field}
    for name in random.sample("abc", random.randint(1, 3)):
        kind, default, values = random.choice(_SLOTS)
        length, default = random.randint(1, 5), random.choice([None, default])
        options: Any = {} if default is None else {"default": default}
        annotations[name] = cast("Any", Series)[kind | None if default is None else kind]
        named = random.choice([None, f"{name.upper()}{{i:02d}}"])
        arguments[name] = {"length": length, "name": named, "encrypted": is_sealed(), **options}
        shaped[name] = Shaped(length, values, default)
    if not wide and random.random() < 0.3:
        annotations["expires"] = Mapped[dt.datetime | None]
        plain["expires"] = [dt.datetime(2200 + number, 1, 1, tzinfo=dt.UTC) for number in range(2)]
    compressed: dict[str, bool] = {}
    for name in random.sample("xyz", random.randint(0, 2)):
        kind, plain[name] = random.choice(_LONG)
        annotations[name], make[name] = cast("Any", Mapped)[kind | None], encrypted if is_sealed() else field
        compressed[name] = random.random() < 0.5
    blobs = random.sample("pq", random.randint(0, 2))
    for name in blobs:
        annotations[name], make[name] = Mapped[Blob | None], encrypted if is_sealed() else field
        plain[name] = [b"", b"a", bytes(70_000)]
    keys: dict[str, Any] = {"row_key": f"m{seed}_{{id:06d}}", "kind": f"M{seed}"}
    orders = [[*annotations], random.sample([*annotations], len(annotations))][: 2 if wide else 1]
    included = random.choice([None, "keys", "keys" if wide else random.sample(["name", *shaped, *blobs], 2)])
    of_base, versioned = not wide and random.random() < 0.4, random.random() < 0.5
    if not wide:
        keys[random.choice(["write_token", "tracked"])] = random.random() < 0.7
    base: type[Any] | None = None
    if of_base:
        base_body: dict[str, Any] = {"__annotations__": {"place": Mapped[str], "name": annotations["name"]}}
        base_body |= {"name": make["name"](default=None, name="Name"), "__module__": __name__}
        base = types.new_class(
            f"Base{seed}", (Entity,), _KEYS | {"abstract": True}, lambda space: space.update(base_body)
        )

    def declare(title: str, names: list[str], **more: Any) -> type[Any]:
        body: dict[str, Any] = {"age": field(default=None, name="Age" if more["version"] == 1 else "age")}
        if "expires" in names:
            body["expires"] = field(default=None, expiry=True)
        body |= {name: series(**each) for name, each in arguments.items()}
        for name, each in compressed.items():
            body[name] = make[name](default=None, chunked=True, compress=each)
        body |= {name: make[name](default=None) for name in blobs}
        if included is not None and more["version"] == 2:
            body["by_age"] = Index(row_key=f"i{seed}_{{age}}_{{id}}", include=included)
        own, above = {name: annotations[name] for name in names}, base if more["version"] == 2 else None
        if above is not None:
            del own["name"]
        else:
            body["name"] = make["name"](default=None, name="Name")
            own["place"] = Mapped[str]
        body |= {"__annotations__": own, "__module__": __name__}
        bases, given = ((above,), keys) if above is not None else ((Entity,), _KEYS | keys)
        return types.new_class(title, bases, given | more, lambda space: space.update(body))

    def form() -> dict[str, Any]:
        count = 2 + sum(each.length for each in shaped.values()) + 16 * len(compressed) + 4 * len(blobs)
        return {"wide": random.randint(1, min(8, count - 1))} if wide else {}  # which takes more than one row

    models = [declare(f"Model{seed}In{at}", names, version=2, **form()) for at, names in enumerate(orders)]
    older = declare(f"Older{seed}", orders[0], version=1, **form()) if versioned else None
    for model in models:
        upgrade(model, from_version=1)(_with_age)
    return Drawn(models, shaped, plain, blobs, older, base)


_KEYS: dict[str, Any] = {"table": TABLE, "partition_key": "{place}"}


def _with_age(bag: PropertyBag) -> PropertyBag:
    if "Age" in bag:
        bag["age"] = bag.pop("Age")
    return bag


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
        self.db, self.random, self.choose, self.drawn = db, random, random.choice, random_model(seed)
        self.writer: Any = db
        self.key: dict[str, Any] = {"place": "p", "id": number}
        self.models, self.shaped, self.plain = self.drawn.models, self.drawn.shaped, self.drawn.plain
        self.model = self.models[0]
        self.row: Values | None = None
        self.unknown: dict[str, Any] = {}
        self.version = 0
        self.handles: list[Handle] = []
        self.seed = seed
        self.log: list[str] = []
        self.network: list[FaultyStore] = []
        if self.schema.write_token:
            connection_of(db).wrap_store(self.beneath)

    def beneath(self, store: TableStore) -> FaultyStore:
        self.network.append(FaultyStore(store))
        return self.network[0]

    @property
    def schema(self) -> Any:
        return self.model.__schema__

    @property
    def row_key(self) -> str:
        """The RowKey of the row."""
        return f"m{self.seed}_{self.key['id']:06d}"

    @property
    def paths(self) -> list[str]:
        """The paths of all that an entity can have besides its id."""
        slots = [f"{name}[{at}]" for name, each in self.shaped.items() for at in range(each.length)]
        return [*self.plain, *slots]

    def random_value(self, path: str) -> Any:
        if path != "expires" and self.random.random() < 0.3:
            return None  # an upsert that merges could not remove the time
        if path in self.plain:
            value = self.choose(self.plain[path])
            return Data(value) if path in self.drawn.blobs else value
        return self.choose(self.shaped[path.partition("[")[0]].values)

    def assign(self, entity: Any, shown: Values, path: str, value: Any) -> None:
        """Set a field or slot of an entity, as a program does."""
        name, _, rest = path.partition("[")
        if not rest:
            setattr(entity, name, Blob(value.data) if isinstance(value, Data) else value)
        elif value is None and self.shaped[name].default is not None:
            return  # such slots are never None
        else:
            slots = getattr(entity, name)
            slots[int(rest[:-1]) - self.choose([0, len(slots)])] = value
        shown.pop(path, None)
        if value is not None:
            shown[path] = value

    def lost_blob(self, handle: Handle, paths: Iterable[str]) -> bool:
        """Return whether an entity would write a blob that another one has taken the place of."""
        known = [path for path in self.drawn.blobs if path in paths and path in handle.shown]
        return any(handle.shown[path] is handle.base.get(path) is not (self.row or {}).get(path) for path in known)

    def new_entity(self, model: Any = None) -> Handle:
        entity, shown = (model or self.model)(**self.key), dict[str, Any]()
        for path in self.paths:
            self.assign(entity, shown, path, self.random_value(path))
        return Handle(entity, {}, -1, shown)

    def written(self, handle: Handle, row: Values) -> None:
        self.row = row
        self.version += 1
        handle.base, handle.version = dict(row), self.version

    def changed(self, row: Values) -> None:
        """Note what an entity that nobody keeps has written, if it is anything."""
        if not _same(row, self.row):
            self.written(Handle(None, {}, -1), row)

    async def stored(self) -> Any:
        return await self.db.get(self.model, **self.key)

    def query(self, *conditions: Any) -> Any:
        """Return a query of the row alone."""
        model: Any = self.model
        return self.db.select(model).where(model.place == self.key["place"], model.id == self.key["id"], *conditions)

    def plan(self, *fates: Fate) -> None:
        """Say what becomes of the next requests, if replies can be lost."""
        for network in self.network:
            network.plan(*fates)

    async def is_done(
        self, calling: Awaitable[Any], handle: Handle, paths: list[str], if_match: str | None, gone: Any
    ) -> bool:
        """Await a write of these paths, and return whether it ought to be done; if it ought not, forget the entity."""
        if self.row is None:
            error = gone
        elif handle.version != self.version and if_match is None:
            error = PreconditionFailed, EncodeError
        elif self.lost_blob(handle, paths):
            error = EncodeError
        else:
            await calling
            return True
        self.handles.remove(handle)
        await refused(error, calling)
        return False

    # Verbs: each says what ought to happen, and does it.

    async def insert(self) -> None:
        handle = self.new_entity()
        if self.row is not None:
            await refused(EntityExists, self.writer.insert(handle.entity))
            return
        await self.writer.insert(handle.entity)
        self.unknown = {}
        self.written(handle, dict(handle.shown))
        self.handles.append(handle)

    async def upsert(self) -> None:
        handle, whole = self.new_entity(), self.random.random() < 0.4
        await self.writer.upsert(handle.entity, mode="replace" if whole else "merge")
        if whole:
            self.unknown = {}
        # What an upsert that merges leaves is not known to its entity, which is not used again.
        self.written(handle, dict(handle.shown) if whole else {**(self.row or {}), **handle.shown})

    async def read(self) -> None:
        if self.row is None:
            await refused(EntityNotFound, self.stored())
            return
        entity = await self.stored()
        self.handles.append(Handle(entity, dict(self.row), self.version, dict(self.row)))

    async def change(self) -> None:
        if self.handles:
            handle = self.choose(self.handles)
            for path in self.random.sample(self.paths, self.random.randint(1, min(3, len(self.paths)))):
                self.assign(handle.entity, handle.shown, path, self.random_value(path))

    async def save(self) -> None:
        await self._write("save")

    async def replace(self) -> None:
        await self._write("replace", if_match=self.choose([None, "*"]))

    async def merge(self) -> None:
        await self._write("merge")

    async def merge_some(self) -> None:
        if not self.handles:
            return
        handle, if_match = self.choose(self.handles), self.choose([None, "*"])
        chosen = self.random.sample([*self.paths, *self.shaped], self.random.randint(1, 2))
        paths = [path for path in self.paths if path in chosen or path.partition("[")[0] in chosen]
        only = [self.expression(path, type(handle.entity)) for path in chosen]
        unsure = [path for path in paths if path not in handle.shown and (if_match or path in handle.base)]
        if not any(path in handle.shown for path in paths):
            return  # there is nothing to send
        calling = self.db.merge(handle.entity, only=only, if_match=if_match)
        if unsure:
            await refused(EncodeError, calling)
        elif await self.is_done(calling, handle, paths, if_match, (EntityNotFound, EncodeError)):
            sent = {path: handle.shown[path] for path in paths if path in handle.shown}
            base = {**handle.base, **sent}
            self.written(handle, {**(self.row or {}), **sent})
            handle.base = base
            if if_match:
                self.handles.remove(handle)  # it does not know what it has written over

    async def _write(self, verb: str, **arguments: Any) -> None:
        if not self.handles:
            return
        handle = self.choose(self.handles)
        known = {**handle.base, **handle.shown}
        removed = [path for path in handle.base if path not in handle.shown]
        if verb == "merge" and not handle.shown:
            return  # there is nothing to send
        calling = getattr(self.writer, verb)(handle.entity, **arguments)
        if verb == "merge" and removed:
            await refused(EncodeError, calling)
            return
        if verb == "save" and handle.shown == handle.base and _same(handle.shown, handle.base):
            await calling  # nothing is sent
            return
        gone = EntityNotFound, PreconditionFailed, EncodeError
        if await self.is_done(calling, handle, self.paths, arguments.get("if_match"), gone):
            row = dict(handle.shown) if verb == "replace" else {**(self.row or {}), **known}
            self.written(handle, {path: value for path, value in row.items() if path not in removed})

    async def read_a_slot(self) -> None:
        """Read one slot alone, set it or another one, and save: nothing else changes."""
        name = self.choose([*self.shaped])
        at, other = (self.random.randrange(self.shaped[name].length) for _ in range(2))
        entity: Any = await self.query().only(self.expression(f"{name}[{at}]")).first()
        if self.row is None:
            assert entity is None
            return
        slots = getattr(entity, name)
        assert slots[at] == self.row.get(f"{name}[{at}]", self.shaped[name].default)
        if at != other:
            with pytest.raises(NotLoaded):
                slots[other]
        value = self.choose(self.shaped[name].values)
        slots[other] = value
        await self.db.save(entity)
        changed = {**self.row, f"{name}[{other}]": value}
        if at != other or not _same(changed, self.row):  # what was not read is sent whatever it is
            self.written(Handle(None, {}, -1), changed)

    async def delete(self) -> None:
        if self.row is not None and self.random.random() < 0.3:
            self.plan()  # nothing would prove that it is gone
            await self.writer.delete(self.model.key(**self.key), if_match="*")
            self.row, self.unknown = None, {}
            self.version += 1

    async def other_program(self) -> None:
        """Another program merges a property that the model does not know."""
        if self.row is not None:
            name = self.choose(["other", "more"])
            self.unknown[name] = self.choose(["x", 5])
            keys = {"PartitionKey": self.key["place"], "RowKey": self.row_key}
            operation = Operation(Verb.MERGE, {**keys, name: self.unknown[name]}, "*")
            await (self.network[0].store if self.network else self.db.store).write(TABLE, operation)
            self.version += 1

    async def modify(self) -> None:
        if self.row is None:
            return
        path = self.choose(self.paths)
        value, shown = self.random_value(path), dict(self.row)
        await self.db.modify(self.model, lambda each: self.assign(each, shown, path, value), **self.key)
        self.changed(shown)

    async def modify_together(self) -> None:
        """Several programs change a field or slot each, at the same time."""
        if self.row is None:
            return
        shown = dict(self.row)
        changes = [(path, self.random_value(path)) for path in self.random.sample(self.paths, 3)]
        calls = (
            self.db.modify(self.model, partial(self.assign, shown=shown, path=path, value=value), **self.key)
            for path, value in changes
        )
        await asyncio.gather(*calls)
        self.changed(shown)

    async def transaction(self) -> None:
        """Two saves of one entity in a transaction, with what is set between them."""
        if self.row is None:
            return
        shown = dict(self.row)
        async with self.db.transaction() as tx:
            entity = await tx.get(self.model, **self.key)
            for path in self.random.sample(self.paths, 2):
                self.assign(entity, shown, path, self.random_value(path))
                tx.save(entity)
        self.changed(shown)

    async def bulk(self) -> None:
        """One of the verbs by a bulk, which does what it does by itself."""
        verb = World.insert
        if self.row is not None:
            verb = self.choose([World.insert, World.upsert, World.save, World.save, World.replace, World.delete])
            self.handles.clear()
            await self.read()
            await self.change()
        self.log.append(verb.__name__)
        self.writer = _ByBulk(self.db)
        await verb(self)
        self.writer = self.db

    async def rewrite(self) -> None:
        """Nothing changes but how the row is stored."""
        report = await rewrite(self.db, self.model)
        assert not report.failures, (self.log, report)
        self.version += report.written

    async def condition(self) -> None:
        """Each stored slot is found by its value, and by no other."""
        path = self.choose([path for path in self.paths if "[" in path])
        value = self.choose(self.shaped[path.partition("[")[0]].values)
        found, none = self.query(self.expression(path) == value), self.query(self.expression(path).is_none())
        if self.schema.by_path[path].property in self.schema.opaque:
            await refused(EncryptionError, found.all())
            return
        row = self.row or {}
        assert len(await found.all()) == (path in row and _same(row[path], value))
        assert len(await none.all()) == (self.row is not None and path not in row)

    async def insert_by_an_older_program(self) -> None:
        """It is upgraded when it is read, and the next save or a rewrite writes the newer version."""
        if self.row is None and self.drawn.older is not None:
            handle = self.new_entity(self.drawn.older)
            if not self.drawn.older.__schema__.write_token:
                self.plan()  # nothing would prove that it was written
            await self.db.insert(handle.entity)
            self.unknown = {}
            self.written(handle, dict(handle.shown))
            await self.check(upgraded=True)
            if self.random.random() < 0.5:
                await self.rewrite()
            else:
                await self.db.save(await self.stored())
                self.version += 1

    async def move(self) -> None:
        """Under another key of the partition, or into another partition, where nobody finds it under the older one."""
        if self.row is None:
            return
        entity, older = await self.stored(), dict(self.key)
        if self.schema.split is not None or not self.schema.tracked or self.random.random() < 0.5:
            self.key["id"] += 500
        else:
            self.key["place"] = "q" if self.key["place"] == "p" else "p"
            self.plan()  # what is left to workers has tests of its own
        await self.db.move(entity, **{name: value for name, value in self.key.items() if value != older[name]})
        assert await self.db.get_or_none(self.model, **older) is None
        self.handles.clear()
        self.version += 1

    async def race(self) -> None:
        """Of several programs that insert the row, or save what they have read, one is not rejected."""
        if self.row is None:
            handles = [self.new_entity() for _ in range(3)]
            calls: list[Any] = [self.db.insert(each.entity) for each in handles]
        else:
            entities = [await self.stored() for _ in range(3)]
            handles = [Handle(entity, dict(self.row), self.version, dict(self.row)) for entity in entities]
            for each in handles:
                each.entity.age = self.choose([2, 3])
                each.shown["age"] = each.entity.age
                for path in self.random.sample(self.paths, 2):
                    if path != "age":
                        self.assign(each.entity, each.shown, path, self.random_value(path))
            calls = [self.db.save(each.entity) for each in handles]
        results = await asyncio.gather(*calls, return_exceptions=True)
        errors = [each for each in results if isinstance(each, BaseException)]
        assert {type(each) for each in errors} <= {EntityExists, PreconditionFailed}, errors
        done = [each for each, result in zip(handles, results, strict=True) if result not in errors]
        won = [each for each in done if self.row is None or not _same(each.shown, self.row)]  # others send nothing
        assert len(won) == 1 or (not won and done == handles), (self.log, results)
        for each in won:
            self.unknown = {} if self.row is None else self.unknown
            self.written(each, dict(each.shown))

    async def by_index(self) -> None:
        """The index finds the entity by its age, with all that an entry holds, or the whole of it."""
        if self.row is None or not hasattr(self.model, "by_age"):
            return
        age, index = self.row.get("age"), self.model.by_age
        for value in (0, 1, 9):
            entries = self.db.select(index).where(self.model.place == self.key["place"], self.model.age == value)
            own = [each for each in await entries.all() if each.id == self.key["id"]]
            assert len(own) == (value == age), self.log
            for each in own:
                whole = await self.stored()
                for name in [name for name in (*self.plain, *self.shaped) if name in each.__dict__]:
                    assert await _seen(getattr(each, name)) == await _seen(getattr(whole, name)), self.log

    async def of_base(self) -> None:
        """A query of the base finds it."""
        if self.drawn.base is not None:
            base: Any = self.drawn.base
            found: list[Any] = await self.db.select(base).where(base.place == self.key["place"]).all()
            own = [each for each in found if type(each) is self.model and each.id == self.key["id"]]
            assert [each.name for each in own] == ([] if self.row is None else [self.row.get("name")])

    def expression(self, path: str, model: Any = None) -> Any:
        name, _, rest = path.partition("[")
        found = getattr(model or self.model, name)
        return found[int(rest[:-1])] if rest else found

    async def step(self) -> None:
        verb = self.choose(_VERBS)
        self.model = self.models[self.random.randrange(2) if len(self.models) > 1 else 0]
        self.log.append(verb.__name__)
        self.plan(*self.random.choices([Fate.FINE, Fate.LOST_REPLY], [4, 1], k=4))
        await verb(self)
        await self.check()

    async def check(self, *, upgraded: bool = False) -> None:
        """The row is what it ought to be, also if an older program has written it and it is upgraded."""
        if self.row is None:
            assert await self.db.get_or_none(self.model, **self.key) is None
            return
        entity = await self.stored()
        found = {name: await _seen(getattr(entity, name)) for name in self.plain}
        for name, each in self.shaped.items():
            found |= {f"{name}[{at}]": value for at, value in enumerate(getattr(entity, name))}
            assert len(getattr(entity, name)) == each.length
        wanted = {path: await _seen(self.row.get(path, self.default_of(path))) for path in self.paths}
        assert found == wanted, self.log
        assert dict(entity.extra) == self.unknown, self.log
        if upgraded:
            return
        keys = Bounds(self.row_key, f"{self.row_key}~99")
        rows = (await self.db.store.query(TABLE, RowQuery(Bounds.only(self.key["place"]), keys))).rows
        stored = [name for row in rows for name in row if name in self.schema.by_property]
        sealed = [row.get(f"{name}@odata.type") for row in rows for name in row if name in self.schema.opaque]
        assert {*sealed} <= {"Edm.Binary"}
        assert len({*stored}) == len(stored), self.log
        found_paths = {
            path.removesuffix("[0]").removesuffix(".address") if path[0] in "xyzpq" else path
            for path, each in self.schema.by_path.items()
            if each.property in stored
        }
        assert {path for path in self.paths if path in found_paths} == {*self.row}, self.log

    async def finish(self) -> None:
        """What is derived is right, and there is no blob but those of the row."""
        CLOCK.advance(dt.timedelta(hours=2))  # so that a worker takes what is left to it, and an audit every upload
        try:
            async with self.db.worker(self.model) as worker:
                await worker.drain()
            assert (await self.db.audit(self.model)).clean, self.log
        finally:
            CLOCK.reset()
        there = BLOB_FIELDS in await self.db.blobs.list_containers()
        stored = (await self.db.blobs.list_blobs(BLOB_FIELDS)).blobs if there else []
        assert len(stored) == sum(isinstance(value, Data) for value in (self.row or {}).values()), self.log

    def default_of(self, path: str) -> Any:
        name, _, rest = path.partition("[")
        return self.shaped[name].default if rest else None


class _ByBulk:
    """The verbs of a database, each by a bulk of its own, and with the error of its write."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[None]]:
        async def write(subject: object, **arguments: Any) -> None:
            async with self._db.bulk(errors="report") as bulk:
                await getattr(bulk, verb)(subject, **arguments)
            for failure in bulk.report.failed:
                raise failure.error

        return write


async def _seen(value: Any) -> Any:
    """Return what is compared of a value: of a blob its bytes."""
    return value.data if isinstance(value, Data) else await value.read() if isinstance(value, Blob) else value


def _same(one: Any, two: Any) -> bool:
    """Return whether values are equal and of one type, as 0 and False are not."""
    if isinstance(one, dict):
        ones, twos = cast("Values", one), cast("Values", two)
        return ones.keys() == twos.keys() and all(_same(ones[path], twos[path]) for path in ones)
    return type(one) is type(two) and bool(one == two)


_VERBS = (
    *(World.insert, World.upsert, World.read, World.delete, World.other_program, World.modify, World.transaction),
    *(World.modify_together, World.condition, World.read_a_slot, World.replace, World.merge),
    *(World.insert_by_an_older_program, World.rewrite, World.move, World.race, World.by_index, World.of_base),
    *(World.change, World.save, World.merge_some, World.bulk) * 2,
)


async def refused(error: Any, calling: Awaitable[Any]) -> None:
    """The call raises the error."""
    with pytest.raises(error):
        await calling
