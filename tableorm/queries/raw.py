"""
Raw queries: the rows of a table as bags, by conditions in the service's own filter language.
"""

from typing import Self

import attrs

from ..errors import ModelError
from ..expressions import condition_of
from ..models.property_bag import PropertyBag
from ..protocol.edm import Value
from ..protocol.filter_text import FilterSyntaxError, format_filter
from .query import Query


class RawSelect(Query[PropertyBag]):
    """
    A query for rows of any kind, as property bags, made by `db.select_raw(table)`.

    It is immutable: each method returns a new query. Nothing is sent until you read its results.
    """

    def where(self, text: str, *values: Value) -> Self:
        """
        Add a filter in OData, the service's own language.

            rows = db.select_raw("Staff").where(
                "PartitionKey eq {} and Age ge {}", "Sales", 30
            )

        Like conditions on key fields, conditions on PartitionKey and RowKey become point and range requests.

        Args:
            text: The filter. Each `{}` is replaced by a value; don't put quotes around it.
            values: The values for the placeholders, in order: str, bool, int, float, UUID, bytes, or an aware datetime.
                They become constants of the filter and are never parsed as part of it. A datetime matches its whole
                microsecond.

        Raises:
            ModelError: This is not a valid filter, or the values don't match it; the message says where.
        """
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(
                f"select_raw({self._kinds.table!r}).where({text!r}) is rejected: give a filter as a string, as in "
                "where('Age ge {}', 30), or use db.select(Model)"
            )
        try:
            found = format_filter(text, *values)
        except FilterSyntaxError as error:
            raise ModelError(f"select_raw({self._kinds.table!r}).where(): {error}") from None
        return attrs.evolve(self, where=(*self._where, condition_of(found)))

    def _head(self) -> str:
        return f"select_raw({self._kinds.table!r})"
