"""
A stub of Cosmos DB's Table API: our own server, with what Cosmos DB does otherwise than Azure Storage.

Rows come in no order, also inside of a partition and from page to page; a merge is a POST that says so; a request that
comes too often is answered 429 with a wait in milliseconds. It is no Cosmos DB: nothing here was compared with one.
"""

import contextlib
import functools
import random
from collections.abc import AsyncGenerator, Callable
from typing import Any

import attrs

from tableorm.protocol.codes import Code, Fault
from tableorm.stores import RowPage, RowQuery
from tableorm_local import Account, Limits, Server
from tableorm_local.engine import Engine
from tableorm_local.server.dispatch import Service
from tableorm_local.server.front.http import Front
from tableorm_local.server.front.metrics import Metrics
from tableorm_local.server.security.accounts import Accounts
from tableorm_local.server.wire.answers import error_answer
from tableorm_local.server.wire.calls import Answer, Incoming
from tests.azure.stub import KEY

URL = "http://stub.table.cosmos.azure.com"


class _Unordered(Engine):
    """Rows come in another order than that of the keys, which is the same for the pages of one query."""

    def __init__(self) -> None:
        super().__init__(None)
        self._chance = random.Random(2)  # tests of the contract that compare lists see one order twice

    async def query(
        self, table: str, query: RowQuery, limit: int = 1000, continuation: str | None = None, count_more: Any = None
    ) -> RowPage:
        page = await super().query(table, query)
        rows = page.rows
        while page.continuation is not None:
            page = await super().query(table, query, 1000, page.continuation)
            rows += page.rows
        seed, _, start = (continuation or f"{self._chance.randrange(2**30)}-0").partition("-")
        random.Random(seed).shuffle(rows)
        end = int(start) + limit
        return RowPage(rows[int(start) : end], f"{seed}-{end}" if end < len(rows) else None)


class _Cosmos(Service):
    def __init__(self, throttle: int, verbs: list[str], *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._throttle, self._verbs = throttle, verbs

    async def answer(self, incoming: Incoming, on_route: Callable[[str], None]) -> Answer:
        self._verbs.append(incoming.verb)
        if self._throttle and len(self._verbs) % self._throttle == 0:
            answer = error_answer(Fault(Code.TOO_MANY_REQUESTS, "Request rate is large."), incoming.id)
            return attrs.evolve(answer, headers={**answer.headers, "x-ms-retry-after-ms": "1"})
        body = await incoming.read_body()
        if incoming.verb == "PATCH" or b"\nPATCH " in body:
            raise Fault(Code.METHOD_NOT_ALLOWED, "PATCH is not for a row.")

        async def read_body() -> bytes:
            return body

        return await super().answer(attrs.evolve(incoming, read_body=read_body), on_route)


@contextlib.asynccontextmanager
async def serve_cosmos(throttle: int = 0, verbs: list[str] | None = None) -> AsyncGenerator[dict[str, Any]]:
    """
    Serve `URL`, and yield the options of a client that finds it.

    Args:
        throttle: Of how many requests one is rejected for its rate; 0 for none.
        verbs: Gets the verb of each request.
    """
    accounts, engines = Accounts([Account(name="stub", keys=(KEY,))]), {"stub": _Unordered()}
    service = _Cosmos(throttle, [] if verbs is None else verbs, accounts, engines, pages=8, file_tokens=False)
    front = functools.partial(
        Front, service, Limits(), None, metrics=Metrics(), open_metrics=False, compress_for_all=False
    )
    async with Server(front, engines, accounts, ("127.0.0.1", 0), tls=None, share_port=False) as server:
        yield {"key": KEY, "proxies": {"http": f"http://127.0.0.1:{server.port}"}}
