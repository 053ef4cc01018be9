"""
Unions: independent queries, run at the same time.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Generic, Self, TypeVar

import attrs

from ..errors import DecodeError
from .cursors import sources_of
from .execution import CONCURRENCY, QueryExecution, bound_together
from .misuse import check_count, not_a_list
from .pages import Results
from .query import Query, start_query
from .run import load_entities, requests_ahead

E = TypeVar("E")


@not_a_list
@attrs.frozen(eq=False, repr=False)
class Union(Generic[E]):
    """
    The results of several queries, made by `db.union(...)`. It is immutable.

    The results of the first query come first, while those of the next ones are being fetched. An entity that several
    queries find is returned several times.

    It has no pages, because a page is of one query at a time: read the pages of each query in turn.
    """

    _queries: tuple[Query[E], ...]
    _ordered: bool = True
    _concurrency: int = CONCURRENCY

    def unordered(self) -> Self:
        """
        Return results as they arrive, instead of query by query.

            async for entity in db.union(first, second).unordered(): ...

        A query with a limit still returns its first entities in key order, and sends its requests one after another,
        unless it is unordered itself.
        """
        return attrs.evolve(self, ordered=False)

    def concurrency(self, count: int) -> Self:
        """
        Send at most `count` requests at a time, and for each query no more than it allows; the default is 16.

        Raises:
            ModelError: The count is not a positive number.
        """
        check_count("concurrency", count)
        return attrs.evolve(self, concurrency=count)

    async def all(self) -> list[E]:
        """
        Read all results. Raises the same errors as `Select.all`.

            results = await db.union(first, second).all()
        """
        return Results([entity async for entity in self])

    def __aiter__(self) -> AsyncIterator[E]:
        return self._iterate()

    async def _iterate(self) -> AsyncGenerator[E, None]:
        runs: list[QueryExecution] = []
        for query in self._queries:
            for run in await start_query(query):
                # A limit wants the first, which are known only when what is before them came.
                run.one_by_one = run.ordered and run.wanted is not None and not self._ordered
                run.allowance.max_requests = 1 if run.one_by_one else requests_ahead(run)
                runs.append(run)
        bound_together(runs, self._concurrency)
        sources = [
            source
            for run in runs
            for source in sources_of(run, in_order=run.ordered and (self._ordered or run.one_by_one))
        ]
        found = load_entities(sources, self._concurrency, ordered=self._ordered)
        async with aclosing(found):
            try:
                async for part in found:
                    for entity in part:
                        yield entity
            except DecodeError as error:
                error.cursor = None  # that of one of the queries
                raise

    def __repr__(self) -> str:
        return f"<union({', '.join(map(repr, self._queries))}){'.unordered()' * (not self._ordered)}>"
