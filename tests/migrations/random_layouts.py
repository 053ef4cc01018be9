"""
Re-keys that nobody thought of: two models of the same entities, made at run time, with key templates of any fields.
"""

import datetime as dt
import itertools
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs
from hypothesis import assume
from hypothesis import strategies as st

from tableorm import Database, Entity, Index, Int32, Mapped, ModelError, MovedFrom, TemplateError, field
from tableorm.connection.connection import connection_of
from tableorm.models.entity import schema_of
from tableorm.models.marker_rows import MARKER_HEADS
from tableorm.stores import Row
from tests.queries.random_worlds import IN_KEYS, key_templates
from tests.rekeys import rows_of
from tests.rows import insert_row

__all__ = [
    "FOREIGN",
    "IN_KEYS",
    "Layout",
    "Spec",
    "Values",
    "count_write",
    "extras",
    "insert_foreign",
    "layouts",
    "make_layout",
    "read_rows",
    "rows_of_entities",
    "specs",
]

Values = dict[str, Any]
"""What an entity has, by the names of the fields of the older model."""

_SMALL: Any = Int32

DATA: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "count": (_SMALL | None, st.none() | st.integers(-2, 3)),
    "big": (int, st.sampled_from([-1, 0, 7, 2**31, 2**53 + 1, 2**62])),
    "text": (str | None, st.none() | st.sampled_from(["", "a", "b_", "é/^"])),
    "done": (dt.datetime | None, st.none() | st.sampled_from([dt.datetime(2024, 2, 29, 1, 2, 3, 456_789, dt.UTC)])),
    "ratio": (float | None, st.none() | st.sampled_from([0.0, 1.5, -2.5])),
    "tail": (str | None, st.none() | st.sampled_from(["N1", "N2/"])),
}
"""Fields that only an index or the newer key holds: type, and values."""

DEFAULTS: Values = {"big": 7}

EXTRAS: dict[str, list[Row]] = {
    "Gate": [{"Gate": "B1"}, {"Gate": ""}],
    "Seats": [{"Seats": 5}, {"Seats": "5", "Seats@odata.type": "Edm.Int64"}],
    "Miles": [{"Miles": "9007199254740993", "Miles@odata.type": "Edm.Int64"}, {"Miles": 1.5}],
    "Open": [{"Open": True}],
    "When": [{"When": "2024-02-29T01:02:03.1234567Z", "When@odata.type": "Edm.DateTime"}],
    "Badge": [{"Badge": "c9da6455-213d-42c9-9a79-3e9149a57833", "Badge@odata.type": "Edm.Guid"}],
    "Photo": [{"Photo": "AAEC/w==", "Photo@odata.type": "Edm.Binary"}],
}
"""Properties that neither model knows, as they are stored."""

FOREIGN: dict[tuple[str, str], Row] = {
    ("foreign", "foreign1"): {
        "PartitionKey": "foreign",
        "RowKey": "foreign1",
        "EntityType": "Foreign",
        "text": "left alone",
    },
    ("foreign", "foreign2"): {"PartitionKey": "foreign", "RowKey": "foreign2", "stamp": 5},
}
"""Rows of other programs in the tables of both models."""

UNKNOWN = "unknown"
"""What an entity without a tail has by the newer model, whose key has one."""

SHARDS = 3

_writes = itertools.count(1)
_made: dict["Spec", "Layout | ModelError | TemplateError"] = {}


def count_write() -> int:
    """Return a number that no write has had."""
    return next(_writes)


@attrs.frozen(kw_only=True)
class Spec:
    """
    What two models are made of.

    Args:
        fields: The fields that keys may have, in any order.
        older: Partition and row template of the older model.
        newer: Those of the newer one.
        functions: Whether functions say how one becomes the other; otherwise fields are copied by their names.
        same_table: Whether both are in one table.
        by_keys: Which of the two models tell their kind by the row key.
        indexed: Which of them have an index, of which field.
        renamed: Whether the newer model stores a field under another name.
        widened: Whether the newer model stores a number in more bits.
        on_write: Which of them fill a field at each write.
    """

    fields: tuple[str, ...]
    older: tuple[str, str]
    newer: tuple[str, str]
    functions: bool
    same_table: bool
    by_keys: tuple[bool, bool]
    indexed: tuple[str, str]
    renamed: bool
    widened: bool
    on_write: tuple[bool, bool]


@attrs.frozen(kw_only=True, eq=False)
class Layout:
    """
    Two models of the same entities.

    Args:
        spec: What they are made of.
        old: The older model.
        new: The newer one, with `moved_from=`.
        fields: Values for each field of the older model.
        renew: Returns what the values are by the newer model.
    """

    spec: Spec
    old: type[Any]
    new: type[Any]
    fields: Mapping[str, st.SearchStrategy[Any]]
    renew: Callable[[Values], Values]

    def __repr__(self) -> str:
        return f"Layout({self.spec})"

    def keys_of(self, values: Values) -> tuple[tuple[str, str], tuple[str, str]]:
        """Return the older and the newer key of an entity."""
        return schema_of(self.old).make_keys(values), schema_of(self.new).make_keys(self.renew(values))

    def may_be(self, values: Values) -> bool:
        """Return whether there may be such an entity: no RowKey of it begins as those of marker rows do."""
        return not any(row_key.startswith(tuple(MARKER_HEADS)) for _, row_key in self.keys_of(values))

    @property
    def changeable(self) -> tuple[str, ...]:
        """The fields of the older model that its key does not have."""
        return tuple(name for name in self.fields if name not in schema_of(self.old).key_names)

    @property
    def tables(self) -> tuple[str, str]:
        """The tables of the older and the newer model."""
        return schema_of(self.old).table_name(), schema_of(self.new).table_name()

    def entities(self) -> st.SearchStrategy[Values]:
        """Return values of whole entities."""
        return st.fixed_dictionaries(dict(self.fields)).filter(self.may_be)


def rows_of_entities(model: type[Any], entities: Iterable[tuple[Values, Row]]) -> dict[tuple[str, str], Row]:
    """
    Return the rows of entities and their index entries, by PartitionKey and RowKey, without what the mapper notes.

    Args:
        model: Their model.
        entities: The fields of each by that model, and what it has besides, as it is stored.
    """
    schema, rows = schema_of(model), dict[tuple[str, str], Row]()
    for values, extra in entities:
        row, _ = schema.encode(values, *schema.make_keys(values))
        rows[row["PartitionKey"], row["RowKey"]] = {**row, **extra}
        for derived in schema.derived.values():
            entries: Any = derived.row_schema
            if all(values[name] is not None for name in entries.needed):
                keys = entries.make_keys(values)
                entry, _ = entries.encode(values, *keys)
                rows[keys] = {**entry, **extra, "_of": row["RowKey"]}
    return rows


async def read_rows(db: Database, table: str, *notes: str) -> dict[tuple[str, str], Row]:
    """Return the rows of a table as they are stored, but for what the mapper notes of them, and some properties."""
    left_out = {"odata.etag", "Timestamp", "_w", "_ix", *notes}
    return {
        (row["PartitionKey"], row["RowKey"]): {name: value for name, value in row.items() if name not in left_out}
        for row in await rows_of(connection_of(db), table)
    }


async def insert_foreign(db: Database, tables: Iterable[str]) -> None:
    """Insert rows of other programs into tables."""
    for table in tables:
        for row in FOREIGN.values():
            await insert_row(db, table, row)


def extras() -> st.SearchStrategy[Row]:
    """Return properties that neither model knows; of most entities none."""
    some = st.lists(st.sampled_from([each for many in EXTRAS.values() for each in many]), max_size=3)
    none: Row = {}
    return st.just(none) | some.map(_join_rows)


def _join_rows(rows: list[Row]) -> Row:
    found: dict[str, Row] = {next(iter(row)): row for row in rows}
    return {name: value for row in found.values() for name, value in row.items()}


def _domain(name: str) -> list[Any]:
    """Return the few values of a field of the older key that the newer one lacks."""
    domains: dict[str, list[Any]] = {
        "first": ["a", "b_/"],
        "second": ["", "x"],
        "number": [1, 999],
        "small": [0, 5],
        "day": [dt.date(2023, 12, 31), dt.date(2024, 2, 1)],
        "at": [dt.datetime(2024, 2, 29, tzinfo=dt.UTC), dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)],
    }
    strategy: Any = IN_KEYS[name][1]
    return domains[name] if name in domains else list(getattr(strategy, "elements", [False, True]))


@st.composite
def specs(draw: st.DrawFn, *, guarded: bool = True) -> Spec:
    """Draw what two models are made of; without `guarded` in one table, where rows of both may have one key."""
    names = draw(st.lists(st.sampled_from(list(IN_KEYS)), min_size=2, max_size=4, unique=True))
    functions, same_table = draw(st.booleans()), not guarded or draw(st.sampled_from([False, False, True]))
    by_keys = draw(st.tuples(*[st.sampled_from([False, False, True])] * 2))
    older = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
    left = [name for name in names if name not in older]
    lacking = draw(st.lists(st.sampled_from(older), max_size=2, unique=True)) if functions else []
    own = [name for name in older if name not in lacking] + draw(st.permutations(left))[:1]
    own += draw(st.sampled_from([[], ["tail"], ["shard"]])) if functions else []
    newer = draw(st.permutations(own or left or ["tail"]))

    def templates(fields: list[str], mark: str, *, by_key: bool) -> st.SearchStrategy[tuple[str, str]]:
        head = ("{kind}_" if by_key else "") + (mark if same_table and guarded else "")

        @st.composite
        def two(draw: st.DrawFn) -> tuple[str, str]:
            cut = draw(st.integers(0, len(fields)))
            parts = fields[:cut], fields[cut:]
            if draw(st.booleans()):
                partition, row = (draw(key_templates(part)) for part in parts)
            else:
                partition, row = ("_".join(f"{{{each}{_form(draw, each)}}}" for each in part) for part in parts)
            return partition or "all", head + row or "all"

        return two()

    functions = functions or "tail" in newer
    return Spec(
        fields=tuple(names),
        older=draw(templates(older, "o", by_key=by_keys[0])),
        newer=draw(templates(list(newer), "n", by_key=by_keys[1])),
        functions=functions,
        same_table=same_table,
        by_keys=by_keys,
        indexed=draw(st.tuples(*[st.sampled_from(["", "", "text", "big"])] * 2)),
        renamed=draw(st.booleans()),
        widened=draw(st.booleans()),
        on_write=draw(st.tuples(st.booleans(), st.booleans())),
    )


def _form(draw: st.DrawFn, name: str) -> str:
    return draw(st.sampled_from(IN_KEYS[name][2])) if name in IN_KEYS else ""


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Draw two models that can be re-keyed online."""
    made = make_layout(draw(specs()))
    assume(isinstance(made, Layout))
    assert isinstance(made, Layout)
    return made


def make_layout(spec: Spec) -> Layout | ModelError | TemplateError:
    """Return the two models; or the error by which one of them is rejected. The same each time."""
    if spec not in _made:
        try:
            _made[spec] = _make_layout(spec, len(_made))
        except (ModelError, TemplateError) as error:
            _made[spec] = error
    return _made[spec]


def _make_layout(spec: Spec, number: int) -> Layout:
    key_types: Values = {name: IN_KEYS[name][0] for name in spec.fields}
    annotations = key_types | {name: annotation for name, (annotation, _) in DATA.items()}
    old = _make_model(spec, 0, f"Older{number}", f"RandomOlder{number}", annotations)
    newer = dict(annotations)
    if spec.widened:
        newer["count"] = int | None
    has_tail = any("{tail" in each for each in spec.newer)
    has_shard = any("{shard" in each for each in spec.newer)
    if has_tail:
        newer["tail"] = str
    if has_shard:
        newer["shard"] = int
    lacking = [name for name in schema_of(old).key_fields if not any(f"{{{name}" in each for each in spec.newer)]

    def renew(values: Values) -> Values:
        found = dict(values)
        if has_tail:
            found["tail"] = values["tail"] or UNKNOWN
        if has_shard:
            found["shard"] = _shard_of(values[spec.fields[0]])
        return found

    def to_new(entity: Any) -> Any:
        return new(**renew({name: getattr(entity, name) for name in schema_of(old).fields}))

    def to_old(entity: Any) -> Any:
        values = {name: getattr(entity, name) for name in schema_of(old).fields}
        if has_tail and values["tail"] == UNKNOWN:
            values["tail"] = None
        return old(**values)

    def old_keys(**given: Any) -> list[Values]:
        own = {name: value for name, value in given.items() if name in schema_of(old).key_fields}
        return [own | dict(zip(lacking, each, strict=True)) for each in itertools.product(*map(_domain, lacking))]

    functions: Values = {"to_new": to_new, "to_old": to_old} if spec.functions else {}
    if lacking:
        functions["old_keys"] = old_keys
    moved_from: Any = MovedFrom(old, **functions)
    table = f"RandomOlder{number}" if spec.same_table else f"RandomNewer{number}"
    new = _make_model(spec, 1, f"Newer{number}", table, newer, moved_from=moved_from)
    values = {name: st.sampled_from(_domain(name)) if name in lacking else IN_KEYS[name][1] for name in spec.fields}
    values |= {name: strategy for name, (_, strategy) in DATA.items()}
    return Layout(spec=spec, old=old, new=new, fields=values, renew=renew)


def _shard_of(value: Any) -> int:
    """Return what a function computes of a field for the newer key."""
    moment = value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value
    return sum(map(ord, f"{moment}")) % SHARDS


def _make_model(spec: Spec, side: int, name: str, table: str, annotations: Values, **keywords: Any) -> type[Any]:
    """Return one of the two models."""
    partition, row = (spec.older, spec.newer)[side]
    mapped: Any = Mapped  # of types that only running tells
    body: Values = {"__module__": __name__}
    body["__annotations__"] = {each: mapped[annotation] for each, annotation in annotations.items()}
    body["__annotations__"] |= {"stamp": Mapped[int], "born": mapped[int | None]}
    for each in annotations:
        if each in DEFAULTS:
            body[each] = field(default=DEFAULTS[each])
        elif each in DATA and annotations[each] == DATA[each][0]:
            body[each] = field(default=None)
    if side and spec.widened:
        body["count"] = field(default=None)
    if side and spec.renamed:
        body["big"] = field(default=DEFAULTS["big"], name="TheBig")
    body["stamp"] = field(default=0, on_write=count_write if spec.on_write[side] else None)
    body["born"] = field(default=None, on_insert=count_write)
    indexed = spec.indexed[side]
    if indexed:
        body["by_data"] = Index(row_key=f"~i{side}_{{{indexed}}}_{row.replace('{kind}', '')}")
    keywords |= {"table": table, "tracked": True, "partition_key": partition, "row_key": row}
    if spec.by_keys[side]:
        keywords["discriminator"] = "row_key"
    return types.new_class(name, (Entity,), keywords, lambda namespace: namespace.update(body))
