"""
Queries for entities of models, by conditions on their fields.
"""

from collections.abc import AsyncIterator
from typing import Any, Never, Self, TypeVar

import attrs

from ..errors import ModelError
from ..expressions import Expression, Field
from .arrow import arrow_batches
from .misuse import refuse_keywords
from .planning.index_following import unverified_kinds
from .projection import Projection
from .query import Query

__all__ = ["Select"]

E_co = TypeVar("E_co", covariant=True)


class Select(Query[E_co]):
    """
    A query for entities of models, made by `db.select(Model)`.

    It is immutable: each method returns a new query, and nothing is sent before it is read.
    """

    def where(self, *conditions: Expression, **fields: Never) -> Self:
        """
        Add conditions. An entity is found if all of them hold, and those that were given before.

        Raises:
            ModelError: An argument is not a condition, as `Employee.age >= 30` is one; `fields` never are.
        """
        if fields:
            refuse_keywords(self._models[0], fields)
        for condition in conditions:
            if not isinstance(condition, Expression):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ModelError(
                    f"{condition!r} is not a condition; compare a field of the class, as in Employee.age >= 30"
                )
        return attrs.evolve(self, where=self._where + conditions)

    def only(self, *fields: Field[Any]) -> Self:
        """
        Load only these fields, and those in the key. Reading another field raises `NotLoaded`.

        An entity that has to be upgraded from an older version is read in full.

        Raises:
            ModelError: An argument is not a field of the models, or the query brings bags.
        """
        given: tuple[Any, ...] = fields
        for each in given:
            if not isinstance(each, Field):
                named = [s.primary or s for s in self._kinds.schemas if isinstance(each, str) and each in s.fields]
                example = f"{named[0].name}.{each}" if named else "Employee.age"
                raise ModelError(f"only({each!r}) is refused: give fields of the class, as in only({example})")
        if self._kinds.bags:
            raise ModelError("only() is refused where the query brings bags: a bag is all that a row has")
        Projection.of(self._kinds, fields)
        return attrs.evolve(self, only=(self._only or ()) + fields)

    def arrow(self, size: int = 10_000) -> AsyncIterator[Any]:
        """
        Yield the entities as Arrow record batches, `pyarrow.RecordBatch`, for pandas, polars or DuckDB. Each field is a
        column: a datetime a timestamp in UTC, an enum its value, a series a list, and other values their JSON text. If
        nothing is found, one batch without rows tells the columns. It needs pyarrow, which `tableorm[arrow]` installs.

            table = pyarrow.Table.from_batches([batch async for batch in db.select(Employee).arrow()])

        Args:
            size: How many entities a batch has at most.

        Raises:
            ModelError: The query brings bags, or models of which a field has several types.
            NotSupported: pyarrow is not installed.
            ScanRefused: The query would visit every partition, or a range of them.
        """
        if self._kinds.bags:
            raise ModelError(f"{self}.arrow() is refused: the fields of bags are not known; query models")
        only = None if self._only is None else {each.name for each in self._only}
        return arrow_batches(self, self._kinds.schemas, only, size, f"{self}.arrow()")

    def verify(self, verified: bool) -> Self:  # noqa: FBT001 - as in verify(False)
        """
        Tell whether the entity of each entry of an eventual index is read, as it is by default.

        `verify(False)` reads the entries alone, for entities as they were some time ago: they may have changed or gone
        since, and have no ETag. The first write of one reads the row, and is refused if that disagrees with the entry.

        Raises:
            ModelError: The query does not read an eventual index, or one whose entries hold keys alone.
        """
        if verified is not True and verified is not False:
            raise ModelError(f"verify({verified!r}) is refused: give True or False")
        if not verified:
            unverified_kinds(self._kinds)  # refuses what has none
        return attrs.evolve(self, verified=verified)
