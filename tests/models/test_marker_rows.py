"""
Marker rows: what tells them from entities, and which models cannot share a table with decision rows.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from tableorm import Entity, Mapped, ModelError, PropertyBag
from tableorm.keys.parse import parse_template
from tableorm.keys.template import Template
from tableorm.models.derivation import Derivation
from tableorm.models.marker_rows import DECISION_KIND, FORWARD, TENTATIVE, is_marker
from tableorm.models.schema import DerivedSchema, Schema


class DeferredSchema(DerivedSchema):
    deferred = True

    def __init__(self, name: str, schema: Schema, rows: list[Template]) -> None:
        super().__init__(name, schema)
        self.rows = rows

    def row_templates(self) -> list[Template]:
        return self.rows


class Deferred(Derivation):
    """Declares something that is kept right in other partitions."""

    def __init__(self, *texts: str) -> None:
        super().__init__()
        self.texts = texts

    def _bind(self, schema: Schema, annotations: Mapping[str, Any]) -> DeferredSchema:
        rows = [parse_template(text, schema.name, "row_key", dict(annotations), schema.kind) for text in self.texts]
        return DeferredSchema(self.name, schema, rows)


@pytest.mark.parametrize(
    ("kind", "marker"),
    [
        (f"Employee{TENTATIVE}", True),
        (f"Employee{TENTATIVE}:2", True),
        (f"Employee{FORWARD}", True),
        (f"Employee#by_email{TENTATIVE}:12", True),
        (DECISION_KIND, True),
        ("Employee", False),
        ("Employee:2", False),
        ("Employee#by_email", False),
        ("Employee#tentative", False),
        (f"Employee{TENTATIVE}ly", False),
        (None, False),
        (7, False),
    ],
)
def test_kinds_of_marker_rows(kind: object, marker: bool) -> None:
    """A tentative row, a forward and a decision row are told by the end of their kind, whatever their version."""
    assert is_marker({"EntityType": kind}) is marker


def test_a_model_beside_its_own_decision_rows() -> None:
    """Where something is deferred, keys that begin with literal text are told from those of decision rows."""

    class Order(Entity, table="MarkersFine", partition_key="{shop}", row_key="order_{id}"):
        shop: Mapped[str]
        id: Mapped[str]

        elsewhere = Deferred("by_{id}")

    class Invoice(Entity, table="MarkersNumbers", partition_key="{shop}", row_key="{number}"):
        shop: Mapped[str]
        number: Mapped[int]

        elsewhere = Deferred("by_{number}")

    assert Order.__schema__.derived["elsewhere"].deferred and Invoice.__schema__.derived["elsewhere"].deferred


@pytest.mark.parametrize(("table", "row_key"), [("MarkersA", "{id}"), ("MarkersB", "~{id}"), ("MarkersC", "~o_{id}")])
def test_keys_like_those_of_decision_rows(table: str, row_key: str) -> None:
    """A model whose RowKeys can begin as those of decision rows is refused where it declares something deferred."""
    with pytest.raises(ModelError, match=r"Order.row_key: a RowKey of '.*' can begin with '~o_', .* begin it with"):

        class Order(Entity, table=table, partition_key="{shop}", row_key=row_key):  # pyright: ignore[reportUnusedClass]
            shop: Mapped[str]
            id: Mapped[str]

            elsewhere = Deferred()

    class Plain(Entity, table=table, partition_key="{shop}", row_key=row_key):
        shop: Mapped[str]
        id: Mapped[str]

    assert Plain(shop="a", id="1").key.partition_key == "a"


def test_derived_keys_like_those_of_decision_rows() -> None:
    """So is a model with derived rows of such keys."""
    with pytest.raises(ModelError, match=r"Order.elsewhere: a RowKey of '\{id\}' can begin with '~o_'"):

        class Order(Entity, table="MarkersDerived", partition_key="{shop}", row_key="order_{id}"):  # pyright: ignore[reportUnusedClass]
            shop: Mapped[str]
            id: Mapped[str]

            elsewhere = Deferred("{id}")


def test_models_whose_kind_does_not_tell() -> None:
    """A model without a kind, or with a function as discriminator, is refused where something is deferred."""

    class Order(Entity, table="MarkersKinds", partition_key="{shop}", row_key="order_{id}"):
        shop: Mapped[str]
        id: Mapped[str]

        elsewhere = Deferred()

    with pytest.raises(ModelError, match=r"Any is refused in table markerskinds, where Order.elsewhere .* kind=None"):

        class Any(Entity, table="markerskinds", partition_key="{shop}", row_key="any_{id}", kind=None):  # pyright: ignore[reportUnusedClass]
            shop: Mapped[str]
            id: Mapped[str]

    def tell(bag: PropertyBag) -> type[Entity]:
        raise AssertionError(bag)

    with pytest.raises(ModelError, match=r"Told is refused .* with a function as its discriminator"):

        class Told(Entity, table="MarkersKinds", partition_key="{shop}", row_key="told_{id}", discriminator=tell):  # pyright: ignore[reportUnusedClass]
            shop: Mapped[str]
            id: Mapped[str]

    assert Order.kind == "Order"


def test_the_model_that_defers_comes_last() -> None:
    """The order of the classes does not matter: the error names both."""

    class Old(Entity, table="MarkersLast", partition_key="{shop}", row_key="old_{id}", kind=None):
        shop: Mapped[str]
        id: Mapped[str]

    with pytest.raises(ModelError, match=r"Old is refused in table MarkersLast, where Order.elsewhere has decision"):

        class Order(Entity, table="MarkersLast", partition_key="{shop}", row_key="order_{id}"):  # pyright: ignore[reportUnusedClass]
            shop: Mapped[str]
            id: Mapped[str]

            elsewhere = Deferred()

    assert Old.kind is None
