"""
What a query does not have, and what to write instead: for those who know another mapper.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NoReturn

from ..connection.async_only import give_methods
from ..errors import ModelError

_IN_PYTHON = "the service can't do this; do it in Python with the entities of await query.all()"
_INSTEAD = {
    "aggregate": _IN_PYTHON,
    "delete_all": "write await query.delete()",
    "distinct": _IN_PYTHON,
    "execute": "write await query.all()",
    "fetch": "write await query.all(), or async for entity in query",
    "fetch_all": "write await query.all()",
    "filter": "write query.where(Model.field == value)",
    "filter_by": "write query.where(Model.field == value)",
    "find": "write query.where(Model.field == value)",
    "get": "write await db.get(Model, key_field=value)",
    "group_by": _IN_PYTHON,
    "join": "the service has no joins; read the other entities with await db.get_many(keys)",
    "len": "write await query.count()",
    "offset": "write await query.page(size, cursor), which continues after page.cursor",
    "options": "write query.only(Model.field) to read only some fields",
    "order_by": "results are sorted by PartitionKey and RowKey; sort by other fields in Python",
    "scalar": "write await query.one()",
    "scalars": "write await query.all()",
    "skip": "write await query.page(size, cursor), which continues after page.cursor",
    "slice": "write query.limit(count), or await query.page(size, cursor)",
    "sort": "results are sorted by PartitionKey and RowKey; sort by other fields in Python",
    "take": "write query.limit(count)",
    "to_list": "write await query.all()",
    "update": "write async for entity in query, change it, and await db.save(entity)",
    "values": "write query.only(Model.field) to read only some fields",
}


_CHANGES_INSTEAD: dict[str, str] = dict.fromkeys(
    ("all", "fetch", "fetch_all", "list", "to_list"), "write [change async for change in changes]"
)


def _refuse(read: object, problem: str, instead: str) -> NoReturn:
    raise ModelError(f"{read!r} {problem}; write {instead}")


def _refuse_name(read: object, name: str, known: Mapping[str, str]) -> NoReturn:
    instead = f"; {known[name]}" if name in known else ""
    raise AttributeError(f"{type(read).__name__!r} object has no attribute {name!r}{instead}", name=name, obj=read)


class _NotAPlainStream:
    """Methods of a stream of changes, which is read by `async for`: another use says what to write instead."""

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError: there is no such attribute."""
        _refuse_name(self, name, _CHANGES_INSTEAD)

    def __await__(self) -> NoReturn:
        """Raise ModelError: write `async for`."""
        _refuse(self, "cannot be awaited", "async for change in changes")

    def __iter__(self) -> NoReturn:
        """Raise ModelError: write `async for`."""
        _refuse(self, "can't be used in a plain for loop", "async for change in changes")


not_a_plain_stream = partial(give_methods, _NotAPlainStream)
"""Decorates a stream of changes: `await` and plain `for` raise an error that says to write `async for`."""


class _NotAList:
    """Methods of what is read in pages: it is no list, and each use as one says what to write instead."""

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError: there is no such attribute."""
        _refuse_name(self, name, _INSTEAD)

    def __bool__(self) -> NoReturn:  # noqa: PLE0304
        """Raise ModelError: write `await query.exists()`."""
        _refuse(self, "has no truth value", "await query.exists(), or query is None")

    def __await__(self) -> NoReturn:
        """Raise ModelError: write `await query.all()`."""
        _refuse(self, "cannot be awaited", "await query.all(), await query.first() or await query.one()")

    def __iter__(self) -> NoReturn:
        """Raise ModelError: write `async for`."""
        _refuse(self, "can't be used in a plain for loop", "async for entity in query, or await query.all()")

    def __len__(self) -> NoReturn:  # noqa: PLE0303
        """Raise ModelError: write `await query.count()`."""
        _refuse(self, "has no length until it is read", "await query.count()")

    def __getitem__(self, index: object) -> NoReturn:
        """Raise ModelError: write `query.limit(count)`, or await a page."""
        _refuse(self, f"has no item [{index!r}]", "await query.first(), query.limit(count) or await query.page(size)")

    def __contains__(self, item: object) -> NoReturn:
        """Raise ModelError: write `await db.exists(key)`."""
        _refuse(self, "does not support `in`", "await db.exists(Model.key(...))")


not_a_list = partial(give_methods, _NotAList)
"""Decorates a query: using it as a list raises an error that says what to write instead."""


def check_count(what: str, count: object) -> None:
    """Refuse what is not a whole number from 1. Raises ModelError."""
    if type(count) is not int or count < 1:
        raise ModelError(f"{what}: {count!r} is rejected; give an int from 1")


def refuse_keywords(model: Any, fields: Mapping[str, object]) -> NoReturn:
    """Refuse conditions that are written as keyword arguments. Raises ModelError."""
    written = ", ".join(f"{name}={value!r}" for name, value in fields.items())
    instead = ", ".join(f"{model.__name__}.{name} == {value!r}" for name, value in fields.items())
    raise ModelError(f"where({written}) is rejected: write where({instead})")
