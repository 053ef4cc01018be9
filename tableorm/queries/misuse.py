"""
What a query does not have, and what to write instead: for those who know another mapper.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import ModelError

_IN_PYTHON = "the service cannot; do it in Python with the entities of await query.all()"
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
    "options": "write query.only(Model.field) for some fields alone",
    "order_by": "results are sorted by PartitionKey and RowKey; sort by other fields in Python",
    "scalar": "write await query.one()",
    "scalars": "write await query.all()",
    "skip": "write await query.page(size, cursor), which continues after page.cursor",
    "slice": "write query.limit(count), or await query.page(size, cursor)",
    "sort": "results are sorted by PartitionKey and RowKey; sort by other fields in Python",
    "take": "write query.limit(count)",
    "to_list": "write await query.all()",
    "update": "write async for entity in query, change it, and await db.save(entity)",
    "values": "write query.only(Model.field) for some fields alone",
}


class NotAPlainStream:
    """A base for a stream of changes, which is read by `async for`: another use says what to write instead."""

    __slots__ = ()

    if not TYPE_CHECKING:  # a checker finds these mistakes by itself, and shall go on to find them
        _instead = dict.fromkeys(
            ("all", "fetch", "fetch_all", "list", "to_list"), "write [change async for change in changes]"
        )

        def __getattr__(self, name: str) -> Any:
            instead = f"; {self._instead[name]}" if name in self._instead else ""
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}{instead}", name=name, obj=self
            )

        def __await__(self) -> NoReturn:
            self._refuse("cannot be awaited")

        def __iter__(self) -> NoReturn:
            self._refuse("cannot be read by for")

        def _refuse(self, problem: str, instead: str = "async for change in changes") -> NoReturn:
            raise ModelError(f"{self!r} {problem}; write {instead}")


class NotAList(NotAPlainStream):
    """A base for what is read in pages: it is no list, and each use as one says what to write instead."""

    __slots__ = ()

    if not TYPE_CHECKING:
        _instead = _INSTEAD

        def __bool__(self) -> NoReturn:  # noqa: PLE0304
            self._refuse("has no truth value", "await query.exists(), or query is None")

        def __await__(self) -> NoReturn:
            self._refuse("cannot be awaited", "await query.all(), await query.first() or await query.one()")

        def __iter__(self) -> NoReturn:
            self._refuse("cannot be read by for", "async for entity in query, or await query.all()")

        def __len__(self) -> NoReturn:  # noqa: PLE0303
            self._refuse("has no length before it is read", "await query.count()")

        def __getitem__(self, index: object) -> NoReturn:
            self._refuse(
                f"has no item [{index!r}]", "await query.first(), query.limit(count) or await query.page(size)"
            )

        def __contains__(self, item: object) -> NoReturn:
            self._refuse("cannot be searched by in", "await db.exists(Model.key(...))")


def check_count(what: str, count: object) -> None:
    """Refuse what is not a whole number from 1. Raises ModelError."""
    if type(count) is not int or count < 1:
        raise ModelError(f"{what}: {count!r} is rejected; give a number from 1")


def refuse_keywords(model: Any, fields: Mapping[str, object]) -> NoReturn:
    """Refuse conditions that are written as keyword arguments. Raises ModelError."""
    written = ", ".join(f"{name}={value!r}" for name, value in fields.items())
    instead = ", ".join(f"{model.__name__}.{name} == {value!r}" for name, value in fields.items())
    raise ModelError(f"where({written}) is rejected: write where({instead})")
