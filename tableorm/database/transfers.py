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
        and rows of other programs. Missing tables are created in the target, which assigns its own ETags and
        Timestamps. The blobs of entities are copied too; queues and other blobs are not.

        A row that the target already has with the same content isn't written again, so after a crash the same call
        copies the rest. If programs write to the source during the copy, each of their rows is copied or not: an
        entity may arrive without an index entry, which an audit of the target repairs.

            async with connect("local:./copy.tables") as target:
                report = await db.copy_rows(target, "Directory")

        Args:
            target: The open database that receives the rows.
            tables: Names of the tables; all tables if none is given. Then the states of indexes are copied too, at the
                end, but not the shared runs.
            where: A filter in OData, the service's own language; None for all rows.
            if_exists: What to do with a row that the target has with other content. "fail" reports it, and "skip"
                counts it; both leave it unchanged. "replace" overwrites it; if another client changes it first, it's
                read again.
            name: The name of a shared run: any number of processes can make this call, in parallel or later, and work
                on different key ranges. The target stores the progress, so the next call resumes even if all of them
                were killed. With None, only this process works.
            parallel: Number of key ranges that are copied in parallel.
            lease: In a shared run, the seconds after which other processes take over the ranges of a process that died.
            rate: The most rows that this process copies per second; None for no limit.
            cursor: Where to resume an earlier copy without a name: its `TransferReport.cursor`.
            on_progress: Called repeatedly with the report so far. Store its `cursor` to resume after a crash.

        Returns:
            The report: how many rows were copied, and which couldn't be.

        Raises:
            ModelError: Both are the same database, or an argument is rejected.
            NotSupported: Entities have blobs, and the target can't store blobs; nothing was written.
            CursorError: The cursor belongs to another copy, or is damaged.
            AccessDenied: In a scope, because a copy reads whole tables.
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
        Compare the rows of this database with those of another one. Nothing is written except the state of a shared
        run.

        ETags, Timestamps and the notation of values, such as the digits of a DateTime, are not compared. Blobs of
        entities are read from both databases.

            report = await db.compare_rows(target, "Directory")
            print(report.equal, report.failed)

        Args:
            target: The other open database.
            tables: Names of the tables; all tables of this database if none is given.
            where: A filter in OData, the service's own language; None for all rows.
            name: The name of a shared run, stored in the target; with None, only this process works.
            parallel: Number of key ranges that are read in parallel.
            lease: In a shared run, the seconds after which other processes take over the ranges of a process that died.
            rate: The most rows that this process reads per second; None for no limit.
            cursor: Where to resume an earlier comparison without a name: its `TransferReport.cursor`.
            on_progress: Called repeatedly with the report so far. Store its `cursor` to resume after a crash.

        Returns:
            The report: `equal` is the number of equal rows, `failed` the number of rows that differ or exist in only
            one database, and `failures` has the first of these.

        Raises:
            ModelError: Both are the same database, or an argument is rejected.
            CursorError: The cursor belongs to another comparison, or is damaged.
            AccessDenied: In a scope, because whole tables are read.
            TableNotFound: One of the databases has no such table.
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

        JSON Lines preserve every row exactly, and are written as the rows are read. CSV and Parquet must know all
        columns first, so the rows wait in a temporary file. CSV has a column for the type of each property; Parquet has
        typed columns, and needs pyarrow, which `tableorm[arrow]` installs. Neither can hold half of a surrogate pair,
        and Parquet no value that doesn't fit its type; such an export is rejected.

            await db.export_rows("Directory", "directory.csv", overwrite=True)

        Args:
            table: Name of the table.
            file: A path, at which the file appears once it's complete; "-" for stdout; or a binary file.
            where: A filter in OData, the service's own language; None for all rows.
            format: "jsonl", "csv" or "parquet"; None to derive it from the file name, with JSON Lines as the default.
            system: Whether to write the Timestamp and ETag of each row.
            overwrite: Whether to replace an existing file.
            rate: The most rows that are read per second; None for no limit.
            on_progress: Called repeatedly with the report so far.

        Returns:
            The report: how many rows were written.

        Raises:
            FileExistsError: The file exists.
            ModelError: An argument is rejected.
            NotSupported: The format can't hold a row, or pyarrow isn't installed.
            AccessDenied: In a scope, because whole tables are read.
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
        Write the rows of a file to a table unchanged. A missing table is created.

        The whole file is checked first: if the service would reject one of its rows, nothing is written. A row that the
        table already has with the same content isn't written again, so after a crash the same call writes the rest.
        ETags and Timestamps in the file are ignored.

            report = await db.import_rows("directory.csv", "Directory")

        Args:
            file: A path, "-" for stdin, or a binary file. Input that can't be read twice is copied to a temporary file.
            table: Name of the table.
            format: "jsonl", "csv" or "parquet"; None to derive it from the file name, with JSON Lines as the default.
            if_exists: What to do with a row that the table has with other content, as in `copy_rows`.
            parallel: Number of transactions that are sent in parallel.
            rate: The most rows that are written per second; None for no limit.
            on_progress: Called repeatedly with the report so far.

        Returns:
            The report: how many rows were written, and which couldn't be.

        Raises:
            InvalidInput: A row can't be stored; the message names the file, the line, the keys and the property.
            ModelError: An argument is rejected.
            NotSupported: The file is Parquet, and pyarrow isn't installed.
            AccessDenied: In a scope, because the rows may have any keys.
        """
        options = RunOptions(parallel=parallel, rate=rate, on_progress=on_progress)
        return await import_rows(self._connection, file, table, options, format=format, if_exists=if_exists)
