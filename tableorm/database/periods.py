"""
Upkeep of tables of periods: they are made in time, and dropped as a whole.
"""

import datetime as dt
from contextlib import aclosing
from typing import Any

import attrs

from ..connection.blobs import NO_BLOB, ask_blobs, list_blobs
from ..connection.connection import Connection
from ..connection.period_tables import NO_TABLE, coming_tables, list_periods, make_table
from ..connection.tasks import map_together
from ..connection.translate import translate
from ..errors import EncodeError, ModelError, TableOrmError, counted, shown
from ..models.entity import Entity, schema_of
from ..models.periods import PeriodTables
from ..protocol.codes import Code, Fault
from ..protocol.limits import check_blob_name, check_container_name
from .reading import Reader

_GONE = NO_TABLE | {Code.RESOURCE_NOT_FOUND}

_BLOBS_AT_ONCE = 1_000
"""How many blobs are deleted before more are listed."""


@attrs.frozen
class DroppedPeriods:
    """
    What `drop_periods` deleted.

    Args:
        tables: The names of the tables, in the order of their periods.
        blobs: The number of blobs.
    """

    tables: tuple[str, ...]
    blobs: int = 0

    def __str__(self) -> str:
        names = ", ".join(self.tables) or "none"
        return f"{counted(len(self.tables), 'table')} ({names}), {counted(self.blobs, 'blob')}"


class Periods(Reader):
    """
    The part of a database that makes and drops the tables of models that have one for each period.
    """

    async def prepare_periods(self, model: type[Entity], *, ahead: int = 1) -> list[str]:
        """
        Make the tables of the present period and of the next ones, where they do not exist yet. Without it, the first
        write of a period makes its table, if the client may.

            await db.prepare_periods(Login, ahead=2)  # today and two days

        Args:
            model: A model with a table for each period of time.
            ahead: For how many periods after the present one.

        Returns:
            The names of the tables that were made.

        Raises:
            ModelError: The model has no table for each period, or one for each number, which has no present.
            AccessDenied: Not permitted.
            Conflict: A table of that name is still being deleted after a minute and a half.
        """
        what = f"prepare_periods({getattr(model, '__name__', model)})"
        periods = _periods_of(what, model)
        if periods.numbered:
            raise ModelError(f"{what} is rejected: its tables are those of numbers; the first write of each makes it")
        if type(ahead) is not int or ahead < 0:
            raise ModelError(f"{what}: ahead={ahead!r} is rejected; give a number of periods from 0")
        db = self._connection

        async def make(name: str) -> bool:
            return await db.call(f"creation of table {name}", name, make_table(db, name))

        names = coming_tables(periods, ahead)
        made = await map_together(make, names)
        return [name for name, new in zip(names, made, strict=True) if new]

    async def drop_periods(
        self,
        model: type[Entity],
        *,
        before: dt.datetime | dt.date | int,
        blobs: str | None = None,
        dry_run: bool = False,
    ) -> DroppedPeriods:
        """
        Delete the tables of the periods that have ended by a time: all rows in them, also those of other models that
        have the same tables. A period that reaches past that time stays. It costs one request for each table, however
        many rows that has.

            dropped = await db.drop_periods(Login, before=dt.datetime(2014, 8, 1, tzinfo=dt.UTC))

        Args:
            model: A model with a table for each period.
            before: The time, of the type of the field that determines the period; or the first number to keep.
            blobs: What blobs of a period are deleted before its table: "logs/queue" for those of the container `logs`
                whose names begin with `queue/` and the period, as `queue/2014/07/31/`. None for none.
            dry_run: Whether only to report what would be deleted.

        Returns:
            What was deleted.

        Raises:
            ModelError: The model has no table for each period, or an argument is rejected.
            EncodeError: `before` is not of the type of the field.
            AccessDenied: Not permitted; always in a scope, since the tables may have rows of others.
        """
        what = f"drop_periods({getattr(model, '__name__', model)})"
        db = self._connection
        db.boundary.check_whole_table(what)
        periods = _periods_of(what, model)
        try:
            periods.name_of(before)
        except ValueError as error:
            raise EncodeError(
                f"is rejected: {model.__name__}.{periods.field} {error}", what, "before", before
            ) from None
        place = None if blobs is None else _check_place(what, periods, blobs)
        ended = [name for name in await list_periods(db, periods) if _ends_by(periods, name, before)]

        async def drop(name: str) -> int:
            count = 0
            if place is not None:
                container, start = place
                count = await _drop_blobs(db, container, start + _path_of(periods, name), dry_run=dry_run)
            if not dry_run:
                store, _ = db.sending("delete-table", "")
                try:
                    await db.call(f"deletion of table {name!r}", name, store.delete_table(name))
                except TableOrmError as error:
                    if error.code not in _GONE:
                        raise  # otherwise another program was first
            return count

        counts = await map_together(drop, ended)
        return DroppedPeriods(tuple(ended), sum(counts))


def _periods_of(what: str, model: Any) -> PeriodTables:
    schema = schema_of(model)
    if schema.periods is None:
        raise ModelError(
            f"{what} is rejected: all its entities are in table {schema.table}; a model has a table for each period by "
            "a template, as in table='Logins{at:%Y%m%d}'"
        )
    return schema.periods


def _ends_by(periods: PeriodTables, name: str, before: Any) -> bool:
    end = periods.end_of(periods.start_of(name))
    return end is not None and bool(end <= before)


# Blobs


def _check_place(what: str, periods: PeriodTables, blobs: object) -> tuple[str, str]:
    """Return the container of blobs, and what their names begin with before the period. Raises ModelError."""
    container, slash, name = blobs.partition("/") if isinstance(blobs, str) else ("", "", "")
    if periods.numbered or not (container and name.strip("/")):
        raise ModelError(
            f"{what}: blobs={shown(blobs)} is rejected; give a container and what names begin with, as in "
            "'logs/queue', for a model with a table for each period of time"
        )
    try:
        check_container_name(container)
        check_blob_name(name.rstrip("/"))
    except Fault as fault:
        raise ModelError(f"{what}: blobs={blobs!r} is rejected: {fault.message}") from None
    return container, name.rstrip("/") + slash


def _path_of(periods: PeriodTables, table: str) -> str:
    """Return how names of blobs write the period of a table: `2014/07/31/`, or `2014/07/31/1800/` of an hour."""
    digits = table[len(periods.head) :]
    parts = [digits[:4], *(digits[at : at + 2] for at in range(4, min(len(digits), 8), 2))]
    return "/".join([*parts, *([digits[8:] + "00"] if len(digits) > 8 else [])]) + "/"


async def _drop_blobs(db: Connection, container: str, prefix: str, *, dry_run: bool) -> int:
    """Delete the blobs of a container whose names begin with a prefix, and return how many there were."""
    what, count, names = f"blobs {prefix}* in {container}", 0, list[str]()

    async def delete(name: str) -> None:
        try:
            await ask_blobs(db, "", lambda store: store.delete(container, name))
        except Fault as fault:
            if fault.code not in NO_BLOB:
                raise translate(fault, f"deletion of {what}", "") from None

    async with aclosing(list_blobs(db, "", container, prefix, what)) as blobs:
        async for blob in blobs:
            count += 1
            if not dry_run:
                names.append(blob.name)
            if len(names) == _BLOBS_AT_ONCE:
                await map_together(delete, names)
                names.clear()
    if names:
        await map_together(delete, names)
    return count
