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

__all__ = ["RawSelect"]


class RawSelect(Query[PropertyBag]):
    """
    A query for rows of any kind, as property bags, made by `db.select_raw(table)`.

    It is immutable: each method returns a new query, and nothing is sent before it is read.
    """

    def where(self, text: str, *values: Value) -> Self:
        """
        Add a filter in the service's own language: `where("PartitionKey eq {} and Age ge {}", "Sales", 30)`.

        Conditions on PartitionKey and RowKey become requests for points and ranges, as those on key fields do.

        Args:
            text: The filter in OData; each `{}` stands for a value, without quotes.
            values: The values of the placeholders, in order: str, bool, int, float, UUID, bytes, or an aware datetime.
                They become constants of the filter, never text of it. A datetime stands for its whole microsecond.

        Raises:
            ModelError: The text is not a filter, or the values do not fit it; the message says where.
        """
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(
                f"select_raw({self._kinds.table!r}).where({text!r}) is refused: give a filter as text, such as "
                "where('Age ge {}', 30), or use db.select(Model)"
            )
        try:
            found = format_filter(text, *values)
        except FilterSyntaxError as error:
            raise ModelError(f"select_raw({self._kinds.table!r}).where(): {error}") from error
        return attrs.evolve(self, where=(*self._where, condition_of(found)))

    def _head(self) -> str:
        return f"select_raw({self._kinds.table!r})"
