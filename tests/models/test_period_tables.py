"""
Models with a table for each period: which templates of names there are, what they name, and what is rejected with them.
"""

import datetime as dt
import types
from typing import Any, Literal

import pytest

from tableorm import Count, EncodeError, Entity, Index, IndexList, Int32, Key, Mapped, ModelError, TemplateError, field
from tableorm.models.entity import schema_of
from tableorm.models.periods import PeriodTables, tables_may_meet

UTC = dt.UTC
EAST = dt.timezone(dt.timedelta(hours=14))


class Visit(Entity, table="NamedVisits{at:%Y%m%d}", partition_key="{page}", row_key="{at:ticks_desc}_{who}"):
    page: Mapped[str]
    at: Mapped[dt.datetime]
    who: Mapped[str] = field(default="ann")


def periods_of(model: type[Entity]) -> PeriodTables:
    found = schema_of(model).periods
    assert found is not None
    return found


def declare(table: str, kind: type[Any] = dt.datetime, row_key: str = "{at:ticks}", **keywords: Any) -> type[Entity]:
    """Declare a model whose field `at` tells its table."""
    fields = {"__annotations__": {"who": Mapped[str], "at": Mapped[kind]}, "__module__": __name__, **keywords}  # type: ignore[valid-type]
    keys = {"table": table, "partition_key": "{who}", "row_key": row_key}
    made: type[Entity] = types.new_class("Declared", (Entity,), keys, lambda body: body.update(fields))
    return made


@pytest.mark.parametrize(
    ("table", "kind", "row_key", "value", "name"),
    [
        ("NameYear{at:%Y}", dt.datetime, "{at:ticks}", dt.datetime(2024, 2, 29, 23, tzinfo=UTC), "NameYear2024"),
        ("NameMonth{at:%Y%m}", dt.datetime, "{at:ticks}", dt.datetime(2024, 2, 29, tzinfo=UTC), "NameMonth202402"),
        ("NameDay{at:%Y%m%d}", dt.date, "{at}", dt.date(950, 2, 3), "NameDay09500203"),
        ("NameHour{at:%Y%m%d%H}", dt.datetime, "{at:ticks}", dt.datetime(2024, 3, 1, 13, 59, tzinfo=EAST), None),
        ("NameNumber{at:04d}", int, "{at:06d}", 42, "NameNumber0042"),
        ("NameSmall{at:02d}", Int32, "{at:02d}", 7, "NameSmall07"),
    ],
)
def test_a_key_names_its_table(table: str, kind: type[Any], row_key: str, value: Any, name: str | None) -> None:
    """A period is one of UTC, whatever zone a value has; a key that is made of stored texts names the same table."""
    model = declare(table, kind, row_key)
    key = model.key(who="ann", at=value)

    assert key.table == (name or "NameHour2024022923")
    assert model.key_of(key.partition_key, key.row_key) == key
    assert Key(model, key.table.lower(), key.partition_key, key.row_key).table == key.table.lower()


def test_a_key_of_another_period_is_refused() -> None:
    """A key with the table of another period, or of no period, would be that of no entity."""
    key = Visit.key(page="a", at=dt.datetime(2024, 1, 1, tzinfo=UTC), who="ann")

    for table in ("NamedVisits20240102", "Visits", "NamedVisits"):
        with pytest.raises(ModelError, match="Visit is in table NamedVisits20240101"):
            Key(Visit, table, key.partition_key, key.row_key)
    with pytest.raises(EncodeError, match="determines no table of 'NamedVisits"):
        Visit.key_of("a", "other")


def test_an_entity_is_in_the_table_of_its_key() -> None:
    """The key of an entity has the table of its period, also for a moment near the end of one in another zone."""
    late = dt.datetime(2024, 1, 1, 23, 30, tzinfo=dt.timezone(-dt.timedelta(hours=1)))

    assert Visit(page="a", at=late).key.table == "NamedVisits20240102"


@pytest.mark.parametrize(
    "table",
    [
        "RefuseA{at}",
        "RefuseA{at:%d%m%Y}",
        "RefuseA{at:%Y-%m}",
        "RefuseA{at:%m}",
        "RefuseA{at:%Y%m%d%H%M}",
        "RefuseA{at:ticks}",
        "RefuseA{at:%Y}{at:%m}",
        "RefuseA{at:%Y}End",
        "RefuseA{who}",
        "Refuse_A{at:%Y}",
        "{at:%Y}",
        "R" * 60 + "{at:%Y%m}",
        "RefuseA{other:%Y}",
        "RefuseA{{2024}}",
    ],
)
def test_templates_that_are_refused(table: str) -> None:
    """A name sorts by its period, and follows the rules of the service for every value."""
    with pytest.raises((ModelError, TemplateError), match=r"Declared"):
        declare(table)


@pytest.mark.parametrize(
    ("kind", "row_key", "table"),
    [
        (dt.datetime, "{at:%Y%m%d}_{who}", "RefuseB{at:%Y}"),
        (dt.datetime, "{who}", "RefuseB{at:%Y}"),
        (str, "{at}", "RefuseB{at:04d}"),
        (dt.date, "{at}", "RefuseB{at:%Y%m%d%H}"),
    ],
)
def test_the_field_is_in_the_key_in_full(kind: type[Any], row_key: str, table: str) -> None:
    """Keys must tell the table, so a key holds the field in full; and it is a time or a number."""
    with pytest.raises((ModelError, TemplateError)):
        declare(table, kind, row_key)


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("Logs{at:%Y%m}", "logs{n:06d}", True),
        ("Logs{at:%Y%m}", "Logs{at:%Y%m%d}", False),
        ("Logs{at:%Y%m%d}", "Logs20{at:%Y%m}", True),
        ("Logs{at:%Y%m%d}", "Logs2024{n:02d}", False),
        ("Logs{at:%Y%m%d}", "Logs20240101", True),
        ("LOGS20240101", "Logs{at:%Y%m%d}", True),
        ("Logs{at:%Y%m%d}", "Logs2024", False),
        ("Logs{at:%Y%m%d}", "LogsOf{at:%Y%m%d}", False),
        ("Logs", "Logs{at:%Y}", False),
        ("Logs", "logs", True),
    ],
)
def test_which_names_meet(one: str, other: str, meet: bool) -> None:
    """Two templates, or a template and a name, meet if one name can be of both, in whatever letter case."""
    assert tables_may_meet(one, other) is meet
    assert tables_may_meet(other, one) is meet


def test_models_whose_tables_meet_are_refused() -> None:
    """Neither a plain table nor another template may have a name of the periods; one template may be that of many."""

    class Visits(Entity, table="MeetVisits{at:%Y%m%d}", partition_key="{who}", row_key="{at:ticks}"):
        who: Mapped[str]
        at: Mapped[dt.datetime]

    with pytest.raises(ModelError, match=r"'MeetVisits20240101' could have the name of 'MeetVisits\{at:"):

        class Plain(Entity, table="MeetVisits20240101", partition_key="{who}", row_key="x"):  # pyright: ignore[reportUnusedClass]
            who: Mapped[str]

    with pytest.raises(ModelError, match="could have the name of"):

        class Numbered(Entity, table="MeetVisits{n:08d}", partition_key="{who}", row_key="{n:08d}"):  # pyright: ignore[reportUnusedClass]
            who: Mapped[str]
            n: Mapped[int]

    class Beside(Entity, table="MeetVisits{at:%Y%m%d}", partition_key="{who}", row_key="beside_{at:ticks}"):
        who: Mapped[str]
        at: Mapped[dt.datetime]

    at = dt.datetime(2024, 1, 1, tzinfo=UTC)

    assert {model.key(who="a", at=at).table for model in (Visits, Beside)} == {"MeetVisits20240101"}


def test_a_base_can_name_the_tables() -> None:
    """Classes of an abstract base have the tables of its template."""

    class Event(Entity, abstract=True, table="BaseEvents{at:%Y%m}", partition_key="{who}"):
        who: Mapped[str]
        at: Mapped[dt.datetime]

    class Opened(Event, row_key="opened_{at:ticks}"): ...

    class Closed(Event, row_key="closed_{at:ticks}"): ...

    at = dt.datetime(2024, 5, 31, tzinfo=UTC)

    assert {model.key(who="a", at=at).table for model in (Opened, Closed)} == {"BaseEvents202405"}


_REFUSED: dict[str, Any] = {
    "an index that may be incomplete": lambda: Index(row_key="of_{who}_{at:ticks}"),
    "a unique index": lambda: Index(row_key="of_{who}_{at:ticks}", unique=True, building=False),
    "an eventual index": lambda: Index(partition_key="all", row_key="of_{who}_{at:ticks}", consistency="eventual"),
    "an index in another table": lambda: Index(table="Other", row_key="of_{who}_{at:ticks}", consistency="eventual"),
    "a list": lambda: IndexList(row_key="list_{who}"),
    "lists in blobs": lambda: IndexList(row_key="list_{who}", blob=True, consistency="eventual"),
}


@pytest.mark.parametrize("what", _REFUSED)
def test_declarations_that_are_refused(what: str) -> None:
    """What has rows of its own besides index entries in the table, or promises more than a period, is rejected."""
    with pytest.raises(ModelError, match=r"Declared.*beside"):
        declare("RefuseDerived{at:%Y%m%d}", beside=_REFUSED[what]())


def test_counts_and_maintained_fields_are_refused() -> None:
    """Neither is an entity of a period counted elsewhere, nor does it hold what others keep; nor is it tracked."""

    class Page(Entity, table="CountedPages", partition_key="{page}", row_key="page"):
        page: Mapped[str]
        visits: Mapped[int] = field(default=0, maintained=True)

    with pytest.raises(ModelError):

        class Counted(Entity, table="CountedVisits{at:%Y}", partition_key="{page}", row_key="{at:ticks}"):  # pyright: ignore[reportUnusedClass]
            page: Mapped[str]
            at: Mapped[dt.datetime]

            visits = Count(Page.visits)

    with pytest.raises(ModelError, match=r"Holder.visits = field\(maintained=True\) does not work across tables"):

        class Holder(Entity, table="CountedHolders{at:%Y}", partition_key="{page}", row_key="{at:ticks}"):  # pyright: ignore[reportUnusedClass]
            page: Mapped[str]
            at: Mapped[dt.datetime]
            visits: Mapped[int] = field(default=0, maintained=True)

            by_page = Index(row_key="page_{page}_{at:ticks}", building=False)

    with pytest.raises(ModelError, match=r"tracked=True"):

        class Tracked(  # pyright: ignore[reportUnusedClass]
            Entity, table="CountedTracked{at:%Y}", partition_key="{page}", row_key="{at:ticks}", tracked=True
        ):
            page: Mapped[str]
            at: Mapped[dt.datetime]


@pytest.mark.parametrize("text", ["%Y", "%Y%m", "%Y%m%d", "%Y%m%d%H"])
@pytest.mark.parametrize("edge", ["low", "high"])
def test_the_first_and_the_last_period(text: str, edge: Literal["low", "high"]) -> None:
    """The tables of the least and the greatest value exist, and nothing follows the last one."""
    model = declare(f"EdgeOf{text.replace('%', '')}x{{at:{text}}}")
    periods = periods_of(model)
    name = periods.name_of(getattr(periods.format, edge))
    start = periods.start_of(name)

    assert periods.name_of(start) == name
    assert (periods.end_of(start) is None) is (edge == "high")


def test_names_that_are_of_no_period() -> None:
    """A name with digits that are no date is not that of a period; letter case does not count."""
    periods = periods_of(Visit)

    for name in ("NamedVisits20240230", "NamedVisits15991231", "NamedVisits2024010", "NamedVisits", "Other20240101"):
        assert periods.start_of(name) is None
    assert periods.start_of("namedvisits20240229") == dt.datetime(2024, 2, 29, tzinfo=UTC)
