"""
Queries for entities of models, by conditions on their fields.
"""

from collections.abc import AsyncIterator
from typing import Any, Never, Self, TypeVar

from ..errors import ModelError
from ..expressions import Expression, Field
from .arrow import arrow_batches
from .misuse import refuse_keywords
from .planning.index_following import unverified_kinds
from .projection import Projection
from .query import Query

E_co = TypeVar("E_co", covariant=True)


class Select(Query[E_co]):
    """
    A query for entities, made by `db.select(Model)`.

    It is immutable: each method returns a new query. Nothing is sent until you read its results.
    """

    def where(self, *conditions: Expression, **fields: Never) -> Self:
        """
        Add conditions. A result must satisfy all of them, including those of earlier calls.

            query.where(Employee.department == "Sales", Employee.age >= 30)

        Raises:
            ModelError: An argument is not a condition such as `Employee.age >= 30`; keyword arguments never are.
        """
        if fields:
            refuse_keywords(self._models[0], fields)
        for condition in conditions:
            if not isinstance(condition, Expression):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ModelError(
                    f"{condition!r} is not a condition; compare a field of the class, as in Employee.age >= 30"
                )
        return self._with(_where=self._where + conditions)

    def only(self, *fields: Field[Any]) -> Self:
        """
        Load only these fields and those of the key. Reading any other field raises `NotLoaded`.

            query.only(Employee.name, Employee.age)

        An entity that has to be upgraded from an older version is read in full.

        Raises:
            ModelError: An argument is not a field of the models, or the query returns bags.
        """
        given: tuple[Any, ...] = fields
        for each in given:
            if not isinstance(each, Field):
                named = [s.primary or s for s in self._kinds.schemas if isinstance(each, str) and each in s.fields]
                example = f"{named[0].name}.{each}" if named else "Employee.age"
                raise ModelError(f"only({each!r}) is rejected: give fields of the class, as in only({example})")
        if self._kinds.bags:
            raise ModelError("only() is rejected for bags, which always hold the whole row; remove only()")
        Projection.of(self._kinds, fields)
        return self._with(_only=(self._only or ()) + fields)

    def arrow(self, size: int = 10_000) -> AsyncIterator[Any]:
        """
        Yield the results as Arrow record batches (`pyarrow.RecordBatch`), for pandas, Polars or DuckDB.

            batches = [batch async for batch in db.select(Employee).arrow()]
            table = pyarrow.Table.from_batches(batches)

        Each field becomes a column: a datetime becomes a timestamp in UTC, an enum its value, a series a list, and any
        other value its JSON. Without results, a single empty batch still has the columns. This needs pyarrow, which
        `tableorm[arrow]` installs.

        Args:
            size: The maximum number of entities in a batch.

        Raises:
            ModelError: The query returns bags, or models in which a field has different types.
            NotSupported: pyarrow is not installed.
            ScanRefused: The query would visit every partition, or a range of them.
        """
        if self._kinds.bags:
            raise ModelError(f"{self}.arrow() is rejected: the fields of bags are not known; query models")
        only = None if self._only is None else {each.name for each in self._only}
        return arrow_batches(self, self._kinds.schemas, only, size, f"{self}.arrow()")

    def verify(self, verified: bool) -> Self:  # noqa: FBT001 - as in verify(False)
        """
        Choose whether the entity of each entry of an eventual index is read, which is the default.

            query = db.select(Employee.by_city).where(Employee.city == "Lund").verify(False)

        `verify(False)` reads only the entries, for entities as they were some time ago: they may have changed or been
        deleted since, and have no ETag. The first write of such an entity reads its row, and is rejected if the row
        disagrees with the entry.

        Raises:
            ModelError: The query does not read an eventual index, or the index holds keys only.
        """
        if verified is not True and verified is not False:
            raise ModelError(f"verify({verified!r}) is rejected: give True or False")
        if not verified:
            unverified_kinds(self._kinds)  # refuses what has none
        return self._with(_verified=verified)
