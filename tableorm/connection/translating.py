"""
Queues and blobs as programs get them: what their stores refuse raises the errors of `tableorm.errors`.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Generator
from contextlib import aclosing, asynccontextmanager, contextmanager
from inspect import iscoroutinefunction
from typing import Any, cast

import attrs

from ..errors import OutcomeUnknown, shown
from ..protocol.codes import Fault
from ..stores import BlobStream
from .translate import translate


@contextmanager
def _translating(what: str) -> Generator[None]:
    try:
        yield
    except Fault as fault:
        if fault.doubt:
            problem = f"{what}: {fault.message} It may have happened all the same."
            raise OutcomeUnknown(problem, fault.code, what.partition("(")[0]) from fault
        raise translate(fault, what, "") from fault


async def _translated(chunks: AsyncIterable[bytes], what: str) -> AsyncGenerator[bytes]:
    with _translating(what):
        async for chunk in chunks:
            yield chunk


class TranslatingStore:
    """
    A `QueueStore` or a `BlobStore` that raises what a database raises.

    Args:
        store: The store itself.
        name: What it is called: "queues" or "blobs".
    """

    def __init__(self, store: Any, name: str) -> None:
        self._store, self._name = store, name

    def __repr__(self) -> str:
        return f"<{self._name} of a database>"

    def __getattr__(self, member: str) -> Any:
        found: Any = getattr(self._store, member)
        if not callable(cast("object", found)):
            return found

        def what(given: tuple[Any, ...]) -> str:
            names = ", ".join(shown(each) for each in given if isinstance(each, str))
            return f"{self._name}.{member}({names})"

        async def call(*given: Any, **named: Any) -> Any:
            with _translating(what(given)):
                return await found(*given, **named)

        @asynccontextmanager
        async def open_stream(*given: Any, **named: Any) -> AsyncGenerator[BlobStream]:
            with _translating(what(given)):
                async with (
                    found(*given, **named) as stream,
                    aclosing(_translated(stream.chunks, what(given))) as chunks,
                ):
                    yield attrs.evolve(stream, chunks=chunks)

        return call if iscoroutinefunction(found) else open_stream
