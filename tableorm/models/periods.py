"""
Tables of periods: a template in place of a table's name, such as `Logins{at:%Y%m%d}`, by which each day, month, year,
hour or number has a table of its own.

The field of the template is a key field that a key holds in full, so that the keys of a row say which table has it.
"""

import datetime as dt
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import attrs

from ..errors import EncodeError, ModelError
from ..keys.format import Format
from ..keys.parse import parse_template
from ..keys.template import Template
from ..protocol.codes import Fault
from ..protocol.limits import check_table_name
from .property_types import FieldInfo

_NAMES = re.compile(
    r"(?P<head>[A-Za-z0-9]*)\{(?P<field>[^{}:]+):(?P<format>%Y(?:%m(?:%d(?:%H)?)?)?|0(?P<width>[1-9][0-9]?)d)\}"
)
_DATES = {"%Y": 4, "%Y%m": 6, "%Y%m%d": 8, "%Y%m%d%H": 10}
_HOUR, _DAY, _TICK = dt.timedelta(hours=1), dt.timedelta(days=1), dt.timedelta(microseconds=1)


@attrs.frozen(eq=False)
class PeriodTables:
    """
    The tables of a model that has one for each period.

    Args:
        text: The template of their names.
        field: The field that says which one an entity is in.
        head: What all names begin with.
        format: How the rest of a name is made of a value.
    """

    text: str
    field: str
    head: str
    format: Format

    @property
    def numbered(self) -> bool:
        """Whether each number has a table, instead of each period of time."""
        return isinstance(self.format.low, int)

    @property
    def step(self) -> Any:
        """The smallest difference between two values."""
        return 1 if self.numbered else _TICK if isinstance(self.format.low, dt.datetime) else _DAY

    def as_value(self, moment: dt.datetime) -> dt.datetime | dt.date:
        """Return a moment in UTC as a value of the field, which may be a date."""
        return moment if isinstance(self.format.low, dt.datetime) else moment.date()

    def name_of(self, value: Any) -> str:
        """Return the name of the table of a value. Raises ValueError if the value does not fit."""
        return self.head + self.format.to_text(value)

    def start_of(self, table: str) -> Any:
        """Return the first value of a table's period; None if the name does not match the template."""
        digits = table[len(self.head) :]
        if table[: len(self.head)].lower() != self.head.lower() or not re.fullmatch(self.format.pattern, digits):
            return None
        if self.numbered:
            return int(digits)
        try:
            start = dt.datetime.strptime(digits, self.format.text).replace(tzinfo=dt.UTC)
        except ValueError:
            return None
        found = self.as_value(start)
        return found if found >= self.format.low else None

    def end_of(self, start: Any) -> Any:
        """Return the first value of the period after the one that begins with a value; None after the last one."""
        try:
            if self.numbered:
                return None if start >= self.format.high else start + 1
            size = _DATES[self.format.text]
            if size >= 8:
                return start + (_DAY if size == 8 else _HOUR)
            years, month = divmod(start.month if size == 6 else 12, 12)
            return start.replace(year=start.year + years, month=month + 1)
        except (ValueError, OverflowError):
            return None

    def names_between(self, low: Any, high: Any) -> Iterator[str]:
        """Yield the names of the tables of all values from one to another, both included, in order."""
        start = self.start_of(self.name_of(low))
        while start is not None and start <= high:
            yield self.name_of(start)
            start = self.end_of(start)


# What was declared: no other table may have such a name, so a name alone says that its table is of a period.
_DECLARED: dict[str, PeriodTables] = {}


def find_periods(table: str | None, model: str, fields: Mapping[str, FieldInfo]) -> PeriodTables | None:
    """
    Return the tables that a template of names stands for; None for a plain name, or none.

    Args:
        table: What the model declares.
        model: Its name, for messages.
        fields: Its fields.

    Raises:
        ModelError: It is no template that names of tables sort by.
    """
    if table is None or "{" not in table:
        return None
    found = _NAMES.fullmatch(table)
    if found is None:
        raise ModelError(
            f"{model}: table={table!r} is rejected: a table for each period has a name of letters and digits, and one "
            "field behind them, as %Y, %Y%m, %Y%m%d or %Y%m%d%H of a time, or as a number of fixed width: "
            "'Logins{at:%Y%m%d}', 'Readings{year:04d}'"
        )
    types = {name: type(info.shape) if info.shape else info.type.annotation for name, info in fields.items()}
    template = parse_template(table, model, "table", types)
    single = template.parts[-1].format
    periods = PeriodTables(table, found["field"], found["head"], single)
    if single.low is None:
        raise ModelError(
            f"{model}: table={table!r} is rejected: {found['field']!r} is neither a time nor a plain number"
        )
    try:
        check_table_name(periods.name_of(single.high))
    except Fault as fault:
        raise ModelError(f"{model}: table={table!r} is rejected: {fault.message}") from None
    return _DECLARED.setdefault(f"{table} of {type(single.low).__name__}", periods)


def forget_periods(gone: Collection[PeriodTables | None]) -> None:
    """Forget what no model declares any more."""
    for name in [name for name, each in _DECLARED.items() if each in gone]:
        del _DECLARED[name]


def is_of_period(table: str) -> bool:
    """Return whether a name is that of a table of a period of some model that the program has declared."""
    return any(periods.start_of(table) is not None for periods in [*_DECLARED.values()])


def tables_may_meet(one: str, two: str) -> bool:
    """Return whether a name could be of both: of a plain name and a template of periods, or of two templates."""
    (head, digits), (other, more) = sorted(map(_shape_of, (one, two)), key=lambda shape: len(shape[0]))
    rest = other[len(head) :]
    return other.startswith(head) and (not rest or rest.isdecimal()) and len(head) + digits == len(other) + more


def _shape_of(table: str) -> tuple[str, int]:
    """Return the beginning of a name or template, in lower case, and how many digits follow it."""
    found = _NAMES.fullmatch(table)
    if found is None:
        return table.lower(), 0
    return found["head"].lower(), int(found["width"] or 0) or _DATES[found["format"]]


class InTables:
    """
    What says which table rows are in: the base of schemas.

    Attributes:
        name: The name of the model, for messages.
        table: The name of its table, or the template of their names; None for an abstract base without one.
        only_table: The name of the one table that all its rows are in; None if there is none.
        periods: Its tables, if it has one for each period.
        key_holders: Of each field that a key holds in full, the template and the member of rows that it makes.
    """

    name: str
    table: str | None
    only_table: str | None
    periods: PeriodTables | None
    key_holders: Mapping[str, tuple[Template, str]]

    def table_text(self) -> str:
        """Name of the table, or the template of names; ModelError for an abstract base without one."""
        if self.table is None:
            raise ModelError(f"{self.name} has no table; give the class one: class {self.name}(Entity, table=...)")
        return self.table

    def table_name(self) -> str:
        """Name of the one table that all rows are in; ModelError if there is none."""
        if self.periods is not None:
            raise ModelError(
                f"{self.name} has a table for each period, {self.table!r}, and this works on models of one table only; "
                "for whole periods there are prepare_periods() and drop_periods()"
            )
        return self.table_text()

    def table_of(self, partition_key: str, row_key: str) -> str:
        """
        Name of the table of the row with these keys.

        Raises:
            EncodeError: The keys tell no period.
        """
        periods = self.periods
        if periods is None:
            return self.table_text()
        if periods.field not in self.key_holders:
            raise ModelError(f"{self.name} is abstract: its classes say which table a key is of; name one of them")
        template, member = self.key_holders[periods.field]
        try:
            found = template.parse(row_key if member == "RowKey" else partition_key)
            return periods.name_of(found[periods.field])
        except ValueError as error:
            problem = f"determines no table of {periods.text!r}: {error}"
            raise EncodeError(problem, self.name, "key", (partition_key, row_key)) from None

    def may_be_in(self, table: str) -> bool:
        """Return whether rows may be in a table, which may be the template of names."""
        if self.table is None or self.table.lower() == table.lower():
            return True
        return self.periods is not None and self.periods.start_of(table) is not None


def require_plain_tables(verb: str, models: Iterable[InTables]) -> None:
    """
    Refuse models with a table for each period in a call that reads whole tables of the models that it is given.

    Raises:
        ModelError: There is one; the message names the verb and all of them.
    """
    names = ", ".join(dict.fromkeys(each.name for each in models if each.periods is not None))
    if names:
        raise ModelError(
            f"{verb}({names}) is rejected: {names} {'have' if ',' in names else 'has'} a table for each period, and "
            f"{verb}() works on plain tables only; leave {names} out"
        )


def refuse_in_periods(model: InTables, features: Mapping[str, bool]) -> None:
    """
    Refuse what does not work in tables of periods.

    Args:
        model: The schema of a concrete model.
        features: What it declares, for messages, and whether that is rejected.

    Raises:
        ModelError: It has a table for each period, and declares something of this; or no key holds their field.
    """
    periods = model.periods
    if periods is None:
        return
    refused = f"{model.name} is rejected with a table for each period, {periods.text!r}:"
    if periods.field not in model.key_holders:
        raise ModelError(
            f"{refused} its keys must hold the period; put {periods.field!r} into partition_key or row_key in full, as "
            "in '{at:ticks}'"
        )
    for what, found in features.items():
        if found:
            raise ModelError(
                f"{refused} {what} does not work across tables; leave it out, or give it a table of its own"
            )
