"""
Row stages: how rows of a model are stored otherwise than its fields say, such as with some properties encrypted.

A model has the stages that stand in its class body. Everything between the two ends works with rows as the model
says: a stage seals an operation when it is sent, and unseals a row when an entity is made of it. Who names no model
sees rows as they are stored: property bags, filters on properties, other programs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..stores import Operation, Row, RowAddress
from .property_types import FieldInfo
from .reserved import ENTITY_TYPE, FIRST_OF_SEVERAL


class RowStage:
    """
    One stage of the rows of a model, declared in its class body. The stages of a base come before those of its classes;
    rows are unsealed in the opposite order.

    A stage turns one row into one row, each property by itself: an operation may have some of a row's properties, and
    so may a row that is read. What is derived from entities never holds opaque properties; their keys, their kind and
    what tableorm keeps in a row are not for stages.

    Attributes:
        opaque: The properties that the store does not hold as the fields say, so that it cannot be asked about them.
        prepares: Whether rows have to be prepared before they are unsealed.
    """

    opaque: frozenset[str] = frozenset()
    prepares = False

    def bind(self, fields: Mapping[str, FieldInfo]) -> "RowStage":
        """
        Return the stage of a model: another object for each, since classes inherit what their bases declare.

        Args:
            fields: The fields of the model.

        Raises:
            ModelError: The stage does not fit them.
        """
        raise NotImplementedError

    def check(self, schema: Any) -> None:
        """
        Take note of the model, when all of it is known.

        Args:
            schema: The `Schema` of the model, which this module is below.

        Raises:
            ModelError: The stage does not fit the model.
        """

    def seal(self, operation: Operation) -> Operation:
        """Return an insert, merge or replace as it is sent. The operation itself must not be changed."""
        raise NotImplementedError

    async def prepare(self, db: Any, table: str, rows: Sequence[Row], select: tuple[str, ...] | None) -> None:
        """
        Do what must be done before rows can be unsealed, such as to fetch keys. It is called for each page of rows, if
        the stage `prepares`.

        Args:
            db: The `Connection` that has read them, which this module is below.
            table: Name of the table.
            rows: Rows of the model as they are stored.
            select: The properties that were read; None for all.

        Raises:
            TableOrmError: It cannot be done.
        """

    def unseal(self, row: Row) -> Row:
        """
        Return a row as the model says. Some properties may not have been read, and those that a projection did not find
        may be None. The row itself must not be changed.

        Raises:
            ValueError: It was not sealed by the stage.
        """
        raise NotImplementedError


class KeyedStage(RowStage):
    """
    A row stage that has to wait for something before it can seal, such as for a key. A model has one at most.

    What is sent is sealed by `seal_with_key`; `seal` makes operations of the same form, which are measured and
    explained, and never sent. The entries of a covering index that hold opaque properties are sealed too.
    """

    prepares = True

    async def seal_with_key(self, db: Any, operation: Operation, origin: RowAddress, stored: Row | None) -> Operation:
        """
        Return an insert, merge or replace as it is sent.

        Args:
            db: The `Connection` that sends it, which this module is below.
            operation: The operation, which must not be changed.
            origin: Where the row of the entity is; for another row one that is derived from that.
            stored: What is known of the row of the entity, as it was unsealed; None if nothing is.

        Raises:
            TableOrmError: It cannot be sealed.
        """
        raise NotImplementedError

    def note_seen(self, infos: Iterable[FieldInfo]) -> None:
        """Take note of fields that are read for other rows, which hold their values as they are."""
        raise NotImplementedError

    def hides(self, name: str, db: Any = None) -> bool:
        """Return whether no condition can be about a property; in a `Connection`, since that may seal more of them."""
        raise NotImplementedError

    def is_sealed(self, row: Row) -> bool:
        """Return whether a row that was unsealed was sealed as it would be now, so that it need not be written anew."""
        raise NotImplementedError

    def noted(self, sealed: Row, stored: Row | None) -> str:
        """Return what the row of an entity that was written has as `OPENED`; `stored` is as of `seal_with_key`."""
        raise NotImplementedError


class SplitStage(RowStage):
    """
    A row stage that stores an entity in several rows of its partition; a model has one at most.

    The first row has the key of the entity, and its ETag is that of the entity. Whoever changes any of the others must
    write the first one too, under its ETag. The others are further rows: their kind is that of the model with
    `PART` behind it.

    Attributes:
        elsewhere: The properties that a further row may hold, so that the store cannot be asked about them.
        most_rows: How many rows an entity has at most.
        kind: The kind of the model.
    """

    elsewhere: frozenset[str] = frozenset()
    most_rows: int
    kind: str

    def split(self, operation: Operation, stored: Row | None) -> list[Operation]:
        """
        Return the operations of an operation on an entity: that on its first row comes first, with its condition.

        Args:
            operation: The operation.
            stored: What is known of the entity, as `join` returned it or as it was written last; None if nothing is.
        """
        raise NotImplementedError

    def noted(self, row: Row, stored: Row | None) -> Row:
        """Return the row of an entity that was written, as `join` would return it; `stored` is what `split` got."""
        raise NotImplementedError

    def owner_of(self, row_key: str) -> str:
        """Return the RowKey of the entity that a further row belongs to."""
        raise NotImplementedError

    def last_key(self, row_key: str) -> str:
        """Return the last RowKey that rows of an entity can have."""
        raise NotImplementedError

    def is_in_first(self, select: tuple[str, ...] | None) -> bool:
        """Return whether the first row alone has all of these properties; None stands for all that there are."""
        raise NotImplementedError

    def asks_for(self, select: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Return the properties to ask the store for: these, and those that `join` needs; None for all."""
        raise NotImplementedError

    def join(self, first: Row, others: Sequence[Row]) -> Row | None:
        """
        Return the row of an entity with all of its properties; None if these rows are not of one moment.

        Args:
            first: Its first row.
            others: The further rows that were found, in any order.
        """
        raise NotImplementedError

    def further_keys(self, row: Row) -> list[str]:
        """Return the RowKeys of the further rows that a row was joined of."""
        raise NotImplementedError

    def hint(self) -> str:
        """Return what to do if a row is too large."""
        raise NotImplementedError


def as_first(row: Row) -> Row:
    """Return a row with a kind that says that it is the first of several."""
    kind = row[ENTITY_TYPE]
    return {**row, ENTITY_TYPE: (kind if ":" in kind else f"{kind}:1") + FIRST_OF_SEVERAL}


def as_one(row: Row) -> Row:
    """Return the first row of an entity with the kind and version that the model says."""
    kind = row.get(ENTITY_TYPE)
    if not isinstance(kind, str) or not kind.endswith(FIRST_OF_SEVERAL):
        return row
    return {**row, ENTITY_TYPE: kind.removesuffix(FIRST_OF_SEVERAL).removesuffix(":1")}


FIELD_STAGES: list[Callable[[Mapping[str, FieldInfo]], RowStage | None]] = []
"""What makes the row stages that fields ask for, by the fields of a model. Modules in `shapes` add theirs."""

STAGE_KEYWORDS: dict[str, Callable[[str, Any], RowStage]] = {}
"""By class keyword, what makes a row stage of the name of a model and the value. Modules in `shapes` add theirs."""
