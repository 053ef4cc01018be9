"""
Transfers: rows as they are stored, copied to other databases, compared, exported to files and imported from them.
"""

from collections.abc import Callable

from ..connection.connection import Connected, connection_of
from ..jobs.process import RunOptions
from ..transfer.copying import compare_rows, copy_rows
from ..transfer.files import File, Format, export_rows, import_rows
from ..transfer.report import TransferReport
from ..transfer.writing import IfExists
from .periods import Periods


class Transfers(Periods):
    """
    The part of a database that copies, compares, exports and imports rows.
    """

    async def copy_rows(
        self,
        target: Connected,
        *tables: str,
        where: str | None = None,
        if_exists: IfExists = "fail",
        name: str | None = None,
        parallel: int = 8,
        lease: float = 30.0,
        rate: float | None = None,
        cursor: str | None = None,
        on_progress: Callable[[TransferReport], object] | None = None,
    ) -> TransferReport:
        """
        Copy rows to another database as they are stored: entities of any model and version, index entries, manifests
        and rows of other programs. Tables that the target does not have are created. ETags and Timestamps are the
        target's own. Blobs go along with the entities that name them; queues and other blobs are not copied.

        A row that is in the target with the same content is not written again, so after a crash the same call copies
        what is left. What programs write to the source meanwhile is copied or not, row by row: an entity may come
        without an index entry, which an audit of the target repairs.

            async with connect("local:./copy.tables") as target:
                report = await db.copy_rows(target, "Directory")

        Args:
            target: The open database that gets the rows.
            tables: Names of the tables; all tables if none is given. Then the states of indexes are copied too, at the
                end, but no shared runs.
            where: A filter in the service's own language that the rows satisfy; None for all rows.
            if_exists: What becomes of a row that is in the target with other content. "fail" reports it, and "skip"
                counts it; either leaves it as it is. "replace" overwrites it, unless somebody changes it meanwhile:
                then it is read again.
            name: Name of a shared run: any number of processes make this call, at the same time or later, and work on
                different ranges of keys. What is done is in the target, so that the next call resumes after all of them
                were killed. None to work alone.
            parallel: How many ranges of keys are copied at the same time.
            lease: Of a shared run: after how many seconds others take over the ranges of this process if it has died.
            rate: How many rows this process may copy in a second; None for any number.
            cursor: The place that an earlier copy had reached alone: `TransferReport.cursor`.
            on_progress: Called with the report so far, again and again. Store its `cursor` to resume after a crash.

        Returns:
            The report: how many rows were copied, and which could not be.

        Raises:
            ModelError: Both are one database, or an argument is rejected.
            NotSupported: Entities have blobs, and the target has no place for these; nothing was written.
            CursorError: The cursor is of another copy, or damaged.
            AccessDenied: In a scope, since a copy reads whole tables.
            TableNotFound: The source has no such table.
        """
        options = RunOptions(name=name, parallel=parallel, lease=lease, rate=rate, on_progress=on_progress)
        return await copy_rows(
            self._connection,
            connection_of(target),
            tables,
            options,
            where=where,
            if_exists=if_exists,
            cursor=cursor,
        )

    async def compare_rows(
        self,
        target: Connected,
        *tables: str,
        where: str | None = None,
        name: str | None = None,
        parallel: int = 8,
        lease: float = 30.0,
        rate: float | None = None,
        cursor: str | None = None,
        on_progress: Callable[[TransferReport], object] | None = None,
    ) -> TransferReport:
        """
        Compare the rows of this database with those of another one. Nothing is written, but the state of a shared run.

        ETags and Timestamps are not compared, nor how a store spells a value, such as the digits of a DateTime. Blobs
        of entities are read on both sides.

            report = await db.compare_rows(target, "Directory")
            print(report.equal, report.failed)

        Args:
            target: The other open database.
            tables: Names of the tables; all tables of this database if none is given.
            where: A filter in the service's own language that the rows satisfy; None for all rows.
            name: Name of a shared run, which the target keeps; None to work alone.
            parallel: How many ranges of keys are read at the same time.
            lease: Of a shared run: after how many seconds others take over the ranges of this process if it has died.
            rate: How many rows this process may read in a second; None for any number.
            cursor: The place that an earlier comparison had reached alone: `TransferReport.cursor`.
            on_progress: Called with the report so far, again and again. Store its `cursor` to resume after a crash.

        Returns:
            The report: `equal` says how many rows are alike, `failed` how many differ or are on one side alone, and
            `failures` has the first of these.

        Raises:
            ModelError: Both are one database, or an argument is rejected.
            CursorError: The cursor is of another comparison, or damaged.
            AccessDenied: In a scope, since whole tables are read.
            TableNotFound: A side has no such table.
        """
        options = RunOptions(name=name, parallel=parallel, lease=lease, rate=rate, on_progress=on_progress)
        return await compare_rows(self._connection, connection_of(target), tables, options, where=where, cursor=cursor)

    async def export_rows(
        self,
        table: str,
        file: File,
        *,
        where: str | None = None,
        format: Format | None = None,  # noqa: A002
        system: bool = False,
        overwrite: bool = False,
        rate: float | None = None,
        on_progress: Callable[[TransferReport], object] | None = None,
    ) -> TransferReport:
        """
        Write the rows of a table to a file as they are stored, in key order.

        JSON Lines have every row exactly, and are written while they are read. CSV and Parquet need all columns first:
        the rows wait in a temporary file. CSV has a column for the type of each property; Parquet has typed columns,
        and needs pyarrow, which `tableorm[arrow]` installs. Neither can hold half of a surrogate pair, and Parquet no
        value that is none of its type; an export with one is rejected.

            await db.export_rows("Directory", "directory.csv", overwrite=True)

        Args:
            table: Name of the table.
            file: A path, whose file appears when all of it is written; "-" for stdout; or a binary file.
            where: A filter in the service's own language that the rows satisfy; None for all rows.
            format: "jsonl", "csv" or "parquet"; None for what the name ends with, JSON Lines if it has none.
            system: Whether rows have their Timestamp and ETag.
            overwrite: Whether a file of that name is replaced.
            rate: How many rows may be read in a second; None for any number.
            on_progress: Called with the report so far, again and again.

        Returns:
            The report: how many rows were written.

        Raises:
            FileExistsError: There is such a file.
            ModelError: An argument is rejected.
            NotSupported: The format cannot hold a row, or pyarrow is not installed.
            AccessDenied: In a scope, since whole tables are read.
            TableNotFound: There is no such table.
        """
        options = RunOptions(parallel=1, rate=rate, on_progress=on_progress)
        return await export_rows(
            self._connection,
            table,
            file,
            options,
            where=where,
            format=format,
            system=system,
            overwrite=overwrite,
        )

    async def import_rows(
        self,
        file: File,
        table: str,
        *,
        format: Format | None = None,  # noqa: A002
        if_exists: IfExists = "fail",
        parallel: int = 8,
        rate: float | None = None,
        on_progress: Callable[[TransferReport], object] | None = None,
    ) -> TransferReport:
        """
        Write the rows of a file to a table as they are; the table is created if there is none.

        The whole file is checked first: if a row of it is one that the service would refuse, nothing is written. A row
        that is in the table with the same content is not written again, so after a crash the same call writes what is
        left. ETags and Timestamps in the file are ignored.

            report = await db.import_rows("directory.csv", "Directory")

        Args:
            file: A path, "-" for stdin, or a binary file. What cannot be read twice is copied to a temporary file.
            table: Name of the table.
            format: "jsonl", "csv" or "parquet"; None for what the name ends with, JSON Lines if it has none.
            if_exists: What becomes of a row that is there with other content, as in `copy_rows`.
            parallel: How many transactions are sent at the same time.
            rate: How many rows may be written in a second; None for any number.
            on_progress: Called with the report so far, again and again.

        Returns:
            The report: how many rows were written, and which could not be.

        Raises:
            InvalidInput: A row cannot be stored; the message names the file, the line, the keys and the property.
            ModelError: An argument is rejected.
            NotSupported: The file is Parquet, and pyarrow is not installed.
            AccessDenied: In a scope, since rows of any keys are written.
        """
        options = RunOptions(parallel=parallel, rate=rate, on_progress=on_progress)
        return await import_rows(self._connection, file, table, options, format=format, if_exists=if_exists)
