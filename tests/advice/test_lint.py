"""
Lint: each rule fires on a model that it is about, and on nothing that is as it ought to be.
"""

import datetime as dt
import enum
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from examples.flights import models as flights
from examples.notes import models as notes
from examples.shop import models as shop
from tableorm import Count, Entity, Feed, Index, IndexList, Mapped, ModelError, Sum, field, utc_now
from tableorm.advice import RULES, lint

DAY = dt.timedelta(days=1)


class Grade(enum.Enum):
    """A type with few values."""

    LOW = "low"
    HIGH = "high"


class Numbered(Entity, abstract=True):
    shop: Mapped[str]
    number: Mapped[int]


class Expiring(Entity, abstract=True):
    expires: Mapped[dt.datetime | None] = field(default=None, expiry=True)


class GrowingDay(Entity, table="LintDays", partition_key="{day:%Y%m%d}", row_key="login_{user}"):
    day: Mapped[dt.date]
    user: Mapped[str]


class GrowingMoment(Entity, table="LintMoments", partition_key="log_{at:ticks_desc}", row_key="line"):
    at: Mapped[dt.datetime]


class OnePartition(Entity, table="LintOne", partition_key="all", row_key="item_{id:06d}"):
    id: Mapped[int]


class OneNamed(Entity, table="LintOne", partition_key="reference", row_key="country_{code}"):
    code: Mapped[str]


class Unpadded(Numbered, table="LintUnpadded", partition_key="{shop}", row_key="order_{number}"):
    pass


class UnpaddedIndex(Numbered, table="LintUnpaddedIndex", partition_key="{shop}", row_key="order_{number:06d}"):
    price: Mapped[int]
    by_price = Index(row_key="price_{price}_{number:06d}", include="all")


class KeysOnly(Numbered, table="LintKeysOnly", partition_key="{shop}", row_key="order_{number:06d}"):
    state: Mapped[str]
    by_state = Index(row_key="state_{state}_{number:06d}", include="keys")


class Hall(Numbered, table="LintTotals", partition_key="{shop}", row_key="hall_{number:06d}"):
    """An eventual index reads the entity, with what is maintained in it; and so does one that has keys alone."""

    city: Mapped[str]
    visits: Mapped[int] = field(default=0, maintained=True)
    by_city = Index(row_key="halls_by_city_{city}_{number:06d}", include="all")
    by_number = Index(row_key="halls_by_number_{city}_{number:06d}", include="keys")
    everywhere = Index(
        partition_key="{city}", row_key="visits_{shop}_{number:06d}", consistency="eventual", include="all"
    )


class FewValues(Numbered, table="LintFewValues", partition_key="{shop}", row_key="order_{number:06d}"):
    paid: Mapped[bool]
    grade: Mapped[Grade]
    by_grade = IndexList(row_key="paid_{paid}_grade_{grade}")


class Total(Entity, table="LintTotals", partition_key="{shop}", row_key="total"):
    shop: Mapped[str]
    orders: Mapped[int] = field(default=0, maintained=True)


class FixedTotal(Entity, table="LintFixed", partition_key="all", row_key="total_{name}"):
    name: Mapped[str]
    amount: Mapped[int] = field(default=0, maintained=True)


class HotSum(Entity, table="LintFixed", partition_key="all", row_key="sale_{number:06d}"):
    number: Mapped[int]
    amount: Mapped[int]
    amounts = Sum("amount", lambda: FixedTotal.amount, name="sales")


class MixedReview(Entity, table="LintMixed", partition_key="{shop}", row_key="{number:06d}"):
    shop: Mapped[str]
    number: Mapped[int]


class MixedOrder(Entity, table="LintMixed", partition_key="{shop}", row_key="order_{number:06d}"):
    shop: Mapped[str]
    number: Mapped[int]


class ExpiringLogin(Entity, table="LintLogins", partition_key="{user}", row_key="login_{at:ticks_desc}_{id}"):
    user: Mapped[str]
    at: Mapped[dt.datetime]
    id: Mapped[str]
    expires: Mapped[dt.datetime | None] = field(default=None, expiry=True, on_insert=lambda: utc_now() + 30 * DAY)
    by_expiry = Index(partition_key="expiry", row_key="{expires:ticks}_{user}_{at:ticks}_{id}", consistency="eventual")


class ExpiringReading(
    Expiring, table="LintReadings", partition_key="{sensor}_{day:%Y%m}", row_key="hour_{hour:02d}_{day}"
):
    sensor: Mapped[str]
    day: Mapped[dt.date]
    hour: Mapped[int]


class ExpiringSession(Entity, table="LintSessions", partition_key="{user}", row_key="session_{begun:ticks}"):
    """Each write prolongs its life."""

    user: Mapped[str]
    begun: Mapped[dt.datetime]
    expires: Mapped[dt.datetime | None] = field(default=None, expiry=True, on_write=lambda: utc_now() + DAY)


class ExpiringSeat(Expiring, table="LintSeats", partition_key="{show}", row_key="seat_{seat:04d}_{day}"):
    """It is in the order of seats, and is held for some minutes."""

    show: Mapped[str]
    seat: Mapped[int]
    day: Mapped[dt.date]


class ExpiringOffer(Expiring, table="LintOffers", partition_key="{shop}", row_key="offer_{at:ticks}"):
    """No code is given twice in all periods."""

    shop: Mapped[str]
    at: Mapped[dt.datetime]
    code: Mapped[str]
    by_code = Index(row_key="code_{code}", unique=True, include="keys")


class ExpiringByDay(Expiring, table="LintDaily{at:%Y%m%d}", partition_key="{user}", row_key="login_{at:ticks}"):
    """It has a table for each day already."""

    user: Mapped[str]
    at: Mapped[dt.datetime]


class ExpiringCounter(Expiring, table="LintCounters", partition_key="{page}", row_key="visits_{at:ticks}"):
    """Others are counted in it, whatever the period."""

    page: Mapped[str]
    at: Mapped[dt.datetime]
    visits: Mapped[int] = field(default=0, maintained=True)


class GoodOrder(Numbered, table="LintTotals", partition_key="{shop}", row_key="order_{number:06d}"):
    """A model as the guide's examples are."""

    email: Mapped[str]
    at: Mapped[dt.datetime]
    by_email = Index(row_key="email_{email}", unique=True, include="keys")
    by_time = Index(row_key="at_{at:ticks_desc}_{number:06d}", include=("email",))
    counted = Count(lambda: Total.orders, shop="{shop}")


def make_wide(fields: int, kind: str, indexes: int = 0, *, feed: bool = False) -> Any:
    """Return a model with so many fields of a type, so many indexes, and perhaps a change feed."""
    lines = [
        f"class Wide{fields}(Entity, table='LintWide{fields}', partition_key='{{shop}}', row_key='wide_{{id:06d}}'):"
    ]
    lines += ["shop: Mapped[str]", "id: Mapped[int]"]
    lines += [f"f{number}: Mapped[{kind} | None] = field(default=None)" for number in range(fields)]
    lines += [f"i{n} = Index(row_key='i{n:02d}_{{f0}}_{{id:06d}}', include='all')" for n in range(indexes)]
    lines += ["changes = Feed(keep=week)"] * feed
    space: dict[str, Any] = {"Entity": Entity, "Mapped": Mapped, "field": field, "Index": Index, "Grade": Grade}
    space |= {"Feed": Feed, "week": dt.timedelta(days=7)}
    exec("\n    ".join(lines), space)
    return space[f"Wide{fields}"]


CASES: dict[str, list[tuple[type[Entity], str]]] = {
    "growing-partition-key": [(GrowingDay, "GrowingDay.partition_key"), (GrowingMoment, "GrowingMoment.partition_key")],
    "one-partition": [(OnePartition, "OnePartition.partition_key")],
    "unpadded-number": [(Unpadded, "Unpadded.row_key"), (UnpaddedIndex, "UnpaddedIndex.by_price")],
    "keys-only-index": [(KeysOnly, "KeysOnly.by_state")],
    "index-without-maintained": [(Hall, "Hall.by_city")],
    "list-of-few-values": [(FewValues, "FewValues.by_grade")],
    "hot-aggregate": [(HotSum, "HotSum.amounts")],
    "many-writes": [
        (make_wide(2, "str", indexes=40), "Wide2"),
        (make_wide(3, "str", indexes=39, feed=True), "Wide3"),
    ],
    "many-properties": [(make_wide(239, "int"), "Wide239")],
    "expiry-without-periods": [
        (ExpiringLogin, "ExpiringLogin.expires"),
        (ExpiringReading, "ExpiringReading.expires"),
    ],
    "large-entity": [(make_wide(16, "str"), "Wide16"), (make_wide(17, "bytes"), "Wide17")],
}


@pytest.mark.parametrize(
    ("code", "model", "subject"), [(code, *case) for code, cases in CASES.items() for case in cases]
)
def test_rule_fires(code: str, model: type[Entity], subject: str) -> None:
    """Each rule names the declaration that it is about."""
    assert (code, subject) in [(each.rule.code, each.subject) for each in lint(model)]


def test_mixed_ranges() -> None:
    """Models of a table are looked at together: one whose RowKey begins with a field lies between the others."""
    assert lint(MixedReview) == []
    assert [(each.rule.code, each.subject) for each in lint(MixedReview, MixedOrder)] == [
        ("mixed-ranges", "MixedReview.row_key")
    ]


def test_every_rule_is_shown() -> None:
    """There is a bad model here for each rule."""
    assert CASES.keys() | {"mixed-ranges"} == RULES.keys()


@pytest.mark.parametrize(
    "model",
    [
        Total,
        GoodOrder,
        OneNamed,
        ExpiringSession,
        ExpiringSeat,
        ExpiringOffer,
        ExpiringByDay,
        ExpiringCounter,
        make_wide(15, "str"),
        make_wide(238, "int"),
        make_wide(18, "Grade"),
        make_wide(1, "str", 39),
    ],
)
def test_good_model(model: type[Entity]) -> None:
    """No rule fires on a model that is as it ought to be, up to the last row, property and field."""
    assert lint(model) == []


@pytest.mark.parametrize(
    "models", [flights.MODELS, (notes.Note, notes.Profile), shop.MODELS], ids=["flights", "notes", "shop"]
)
def test_examples(models: Sequence[type[Entity]]) -> None:
    """The examples are as they ought to be."""
    assert lint(*models) == []


def test_what_is_ignored() -> None:
    """A rule is ignored everywhere, or at one declaration; another one is reported still."""
    assert lint(OnePartition, ignore=["one-partition"]) == []
    assert lint(OnePartition, ignore=["one-partition:OnePartition.partition_key"]) == []
    assert lint(OnePartition, ignore=["one-partition:Other.partition_key", "many-writes"]) != []


def test_wrong_arguments() -> None:
    """A code that no rule has is rejected, with the nearest one, and so is no model at all."""
    with pytest.raises(ModelError, match=r"one_partition.*one-partition"):
        lint(OnePartition, ignore=["one_partition"])
    with pytest.raises(ModelError, match="needs at least one model"):
        lint()


def test_finding_says_what_to_do() -> None:
    """A finding names the declaration, what is wrong with it, why, the remedy, and the section of the guide."""
    assert str(lint(Unpadded)[0]) == (
        "Unpadded.row_key: number has no width (unpadded-number): keys sort as strings, 10 before 9, so conditions "
        "on it read more rows than they need; give it a width, as in {id:06d} [Compound key pattern]"
    )


def test_the_table_of_the_documentation() -> None:
    """It is made of the rules."""
    text = (Path(__file__).parents[2] / "docs" / "operation" / "lint.md").read_text(encoding="utf-8")
    head = "| code | what it finds | why | what to do |\n|---|---|---|---|\n"
    table = "".join(f"| `{rule.code}` | {rule.finds} | {rule.reason} | {rule.remedy} |\n" for rule in RULES.values())
    assert head + table + "\n" in text
