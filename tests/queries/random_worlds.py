"""
Models that nobody thought of: key templates of any fields and formats, their entities, and what can be compared.
"""

import datetime as dt
import types
from typing import Any
from uuid import UUID

from hypothesis import assume
from hypothesis import strategies as st

from tableorm import Entity, Int32, Mapped, ModelError, RowKey, TemplateError, field
from tableorm.models.entity import schema_of
from tableorm.protocol.edm import utf16_key
from tests.queries.worlds import (
    BIG,
    COUNTS,
    DAYS,
    MOMENTS,
    NUMBERS,
    TEXTS,
    UUIDS,
    Color,
    Column,
    Level,
    Pair,
    World,
    maybe,
    stored,
    system,
)

IN_KEYS: dict[str, tuple[Any, st.SearchStrategy[Any], tuple[str, ...]]] = {
    "first": (str, TEXTS, ("", "", ":lower", ":spread(3)")),
    "second": (str, TEXTS, ("", "", ":spread(12)")),
    "number": (int, NUMBERS, ("", ":03d", ":05d", ":04d_desc", ":03x")),
    "small": (Int32, NUMBERS, ("", ":04d")),
    "day": (dt.date, DAYS, ("", ":%Y%m", ":%Y%m%d", ":%d.%m.%Y")),
    "at": (
        dt.datetime,
        MOMENTS,
        (":ticks", ":ticks_desc", ":epoch_us_desc", ":iso6", ":%Y%m%d", ":%Y-%m-%dT%H%M%S%f", ":%H"),
    ),
    "badge": (UUID, UUIDS, ("", ":N_upper", ":B_desc")),
    "flag": (bool, st.booleans(), ("", ":True")),
    "color": (Color, st.sampled_from(Color), ("",)),
    "level": (Level, st.sampled_from(Level), ("", ":03d", ":03d_desc")),
}
"""Fields that a key can hold: type, values, and formats."""

STORED: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "count": (Int32, COUNTS),
    "big": (int, BIG),
    "text": (str, TEXTS),
    "done": (dt.datetime, MOMENTS),
}
"""Fields that no key holds."""

LITERALS = st.sampled_from(["", "_", "-", "x", "~", "p_", "'", "é", "\uffff", " "])

_known: dict[tuple[str, str], type[Any]] = {}


@st.composite
def key_templates(draw: st.DrawFn, names: list[str]) -> str:
    """Return the text of a template of these fields; perhaps one that is rejected."""
    text = draw(LITERALS)
    for number, name in enumerate(names):
        if number:
            text += draw(LITERALS)
        formats = IN_KEYS[name][2] if name in IN_KEYS else ("",)
        text += f"{{{name}{draw(st.sampled_from(formats))}}}"
    return text + draw(LITERALS) or "all"


def _model(partition_key: str, row_key: str) -> type[Any]:
    """The model with these templates; the same each time, so that queries of it can be pickled."""
    model = _known.get((partition_key, row_key))
    if model is None:
        name = f"Random{len(_known)}"
        used = [each for each in IN_KEYS if f"{{{each}" in partition_key + row_key]
        body: dict[str, Any] = {each: field(default=None) for each in STORED}
        mapped: Any = Mapped  # of types that only running tells
        body["__annotations__"] = {each: mapped[IN_KEYS[each][0]] for each in used} | {
            each: mapped[annotation | None] for each, (annotation, _) in STORED.items()
        }
        body["__module__"] = __name__
        kind = name if len(_known) % 3 else None
        keywords = {"table": name, "partition_key": partition_key, "row_key": row_key, "kind": kind}
        model = types.new_class(name, (Entity,), keywords, lambda namespace: namespace.update(body))
        globals()[name] = _known[partition_key, row_key] = model
    return model


def _column(model: Any, name: str, values: st.SearchStrategy[Any]) -> Column:
    """A field of any format: text compares by its stored form where a key holds it in full."""
    template, _ = schema_of(model).key_holders.get(name, (None, None))
    form = None if template is None else template.full_format(name)
    if template is None or form is None or not form.free:
        return stored(model, name, values)

    def pair(entity: Any, value: Any) -> Pair:
        own, other = template.value_text(name, getattr(entity, name)), template.value_text(name, value)
        return utf16_key(own), utf16_key(other)

    return Column(getattr(model, name), values, pair, lambda entity: getattr(entity, name))


@st.composite
def random_worlds(draw: st.DrawFn) -> World:
    """A model of one to four key fields, anywhere in its keys, perhaps in both, and some that no key holds."""
    names = draw(st.lists(st.sampled_from(list(IN_KEYS)), min_size=1, max_size=4, unique=True))
    cut = draw(st.integers(0, len(names)))
    partition, row = names[:cut], names[cut:]
    if draw(st.integers(0, 5)) == 0:
        row = list(dict.fromkeys([*row, draw(st.sampled_from(names))]))
    try:
        model = _model(draw(key_templates(partition)), draw(key_templates(row)))
    except (ModelError, TemplateError):
        assume(False)
        raise
    kinds: dict[str, st.SearchStrategy[Any]] = {name: IN_KEYS[name][1] for name in names}
    entities: st.SearchStrategy[Any] = st.builds(
        model, **kinds, **{name: maybe(values) for name, (_, values) in STORED.items()}
    )
    columns = [_column(model, name, values) for name, values in kinds.items()]
    columns += [stored(model, name, values) for name, (_, values) in STORED.items()]
    columns.append(system(RowKey, TEXTS))
    return World((model,), entities, tuple(columns))
