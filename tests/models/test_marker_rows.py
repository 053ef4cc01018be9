"""
Marker rows: what tells them from entities, and which models cannot share a table with decision rows.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tableorm import (
    BlobArchive,
    Database,
    DatabaseArchive,
    Entity,
    Mapped,
    ModelError,
    PropertyBag,
    Workflow,
    connect,
    workflow,
)
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


class InShop(Entity, partition_key="{shop}", abstract=True):
    """What models of this module are."""

    shop: Mapped[str]
    id: Mapped[str]


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

    class Order(InShop, table="MarkersFine", row_key="order_{id}"):
        elsewhere = Deferred("by_{id}")

    class Invoice(Entity, table="MarkersNumbers", partition_key="{shop}", row_key="{number}"):
        shop: Mapped[str]
        number: Mapped[int]

        elsewhere = Deferred("by_{number}")

    assert Order.__schema__.derived["elsewhere"].deferred and Invoice.__schema__.derived["elsewhere"].deferred


@pytest.mark.parametrize(("table", "row_key"), [("MarkersA", "{id}"), ("MarkersB", "~{id}"), ("MarkersC", "~o_{id}")])
def test_keys_like_those_of_decision_rows(table: str, row_key: str) -> None:
    """A model whose RowKeys can begin as those of decision rows is rejected where it declares something deferred."""
    with pytest.raises(ModelError, match=r"Order.row_key: a RowKey of '.*' can begin with '~o_', .* begin it with"):

        class Order(InShop, table=table, row_key=row_key):  # pyright: ignore[reportUnusedClass]
            elsewhere = Deferred()

    class Plain(InShop, table=table, row_key=row_key):
        pass

    assert Plain(shop="a", id="1").key.partition_key == "a"


def test_derived_keys_like_those_of_decision_rows() -> None:
    """So is a model with derived rows of such keys."""
    with pytest.raises(ModelError, match=r"Order.elsewhere: a RowKey of '\{id\}' can begin with '~o_'"):

        class Order(InShop, table="MarkersDerived", row_key="order_{id}"):  # pyright: ignore[reportUnusedClass]
            elsewhere = Deferred("{id}")


def test_models_whose_kind_does_not_tell() -> None:
    """A model without a kind, or with a function as discriminator, is rejected where something is deferred."""

    class Order(InShop, table="MarkersKinds", row_key="order_{id}"):
        elsewhere = Deferred()

    with pytest.raises(ModelError, match=r"Any is rejected in table markerskinds, where Order.elsewhere .* kind=None"):

        class Any(InShop, table="markerskinds", row_key="any_{id}", kind=None):  # pyright: ignore[reportUnusedClass]
            pass

    def tell(bag: PropertyBag) -> type[Entity]:
        raise AssertionError(bag)

    with pytest.raises(ModelError, match=r"Told is rejected .* with a function as its discriminator"):

        class Told(InShop, table="MarkersKinds", row_key="told_{id}", discriminator=tell):  # pyright: ignore[reportUnusedClass]
            pass

    assert Order.kind == "Order"


def test_the_model_that_defers_comes_last() -> None:
    """The order of the classes does not matter: the error names both."""

    class Old(InShop, table="MarkersLast", row_key="old_{id}", kind=None):
        pass

    with pytest.raises(ModelError, match=r"Old is rejected in table MarkersLast, where Order.elsewhere has decision"):

        class Order(InShop, table="MarkersLast", row_key="order_{id}"):  # pyright: ignore[reportUnusedClass]
            elsewhere = Deferred()

    assert Old.kind is None


# Workflows and archives


def with_workflow(model: type[Entity]) -> None:
    generic: Any = Workflow

    @workflow("marked")
    class Marked(generic[model]):  # type: ignore[misc]  # pyright: ignore[reportUnusedClass]
        async def step(self, db: Database) -> None: ...


def with_blob_archive(model: type[Entity]) -> None:
    BlobArchive("marked", model)


def with_database_archive(model: type[Entity]) -> None:
    DatabaseArchive("marked", model, lambda: connect("local::memory:"))


FOLLOWERS = [(with_workflow, "workflow"), (with_blob_archive, "archive"), (with_database_archive, "archive")]


@pytest.mark.parametrize(("kind", "problem"), [(None, "Old is rejected in table .*,"), ("Old", r"Old.row_key: .*,")])
@pytest.mark.parametrize(("follow", "what"), FOLLOWERS)
def test_what_follows_a_model_that_is_like_decision_rows(
    follow: Callable[[type[Entity]], None], what: str, kind: str | None, problem: str
) -> None:
    """A workflow or archive is rejected where a model of the table could be taken for a decision row."""
    table = f"Followed{follow.__name__.replace('_', '')}{kind}"

    class Order(InShop, table=table, row_key="order_{id}", write_token=True):
        pass

    class Old(InShop, table=table.upper(), row_key="{id}" if kind else "old_{id}", kind=kind):
        pass

    with pytest.raises(ModelError, match=f"{problem} where the {what} 'marked' has decision rows"):
        follow(Order)

    class Later(InShop, table=table, row_key="{id}"):
        pass

    assert Old.kind == kind and Later.kind == "Later"


@pytest.mark.parametrize(("follow", "what"), FOLLOWERS)
def test_a_model_beside_one_that_is_followed(follow: Callable[[type[Entity]], None], what: str) -> None:
    """Where a model has a workflow or archive, a model that is declared later is rejected in the same way."""
    table = f"Beside{follow.__name__.replace('_', '')}"

    class Order(InShop, table=table, row_key="order_{id}", write_token=True):
        pass

    follow(Order)
    with pytest.raises(
        ModelError, match=rf"Late is rejected .* where the {what} 'marked' has decision rows: with kind=N"
    ):

        class Late(InShop, table=table, row_key="late_{id}", kind=None):  # pyright: ignore[reportUnusedClass]
            pass

    with pytest.raises(ModelError, match=r"Named.row_key: .* begin it with other literal text, as in 'x_\{name\}'"):

        class Named(Entity, table=table, partition_key="{shop}", row_key="{name}"):  # pyright: ignore[reportUnusedClass]
            shop: Mapped[str]
            name: Mapped[str]

    assert Order.kind == "Order"


def test_a_workflow_of_an_abstract_base() -> None:
    """A workflow of an abstract base marks the tables of all its classes, also of those that are declared later."""

    class Base(Entity, partition_key="{shop}", abstract=True):
        shop: Mapped[str]

    with_workflow(Base)

    class Order(Base, table="FollowedBase", row_key="order_{id}"):
        id: Mapped[str]

    with pytest.raises(ModelError, match="where the workflow 'marked' has decision rows"):

        class Named(Base, table="FollowedBase", row_key="{name}"):  # pyright: ignore[reportUnusedClass]
            name: Mapped[str]

    assert Order.kind == "Order"
