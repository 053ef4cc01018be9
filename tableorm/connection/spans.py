"""
Spans of OpenTelemetry: one for each request, by its semantic conventions for clients of databases.

A span tells what is done to which table and what came of it, and no key and no value. opentelemetry-api, which comes
with the extra `telemetry`, is not imported here, but used if the program has imported it.
"""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from ..protocol.codes import Code
from .requests import OK


class Spans:
    """
    Makes the spans of a database.

    Args:
        trace: The module `opentelemetry.trace`.
        provider: A provider of OpenTelemetry.
        url: Where the database is, without secrets.
    """

    def __init__(self, trace: Any, provider: Any, url: str) -> None:
        self._tracer = provider.get_tracer("tableorm")
        self._kind, self._failed = trace.SpanKind.CLIENT, trace.StatusCode.ERROR
        self._always: dict[str, str | int] = {"db.system.name": "azure.tables"}
        place = urlsplit(url) if url.startswith("http") else None
        if place is not None and place.hostname:
            self._always["server.address"] = place.hostname
            if place.port:
                self._always["server.port"] = place.port

    @contextmanager
    def span(self, operation: str, table: str) -> Generator[Callable[[str, int], None]]:
        """
        Begin a span, which is the current one in the block.

        Returns:
            A function to be called at the end of the request, with its outcome and its rows.
        """
        about = {**self._always, "db.operation.name": operation}
        if table:
            about["db.collection.name"] = table
        with self._tracer.start_as_current_span(
            f"{operation} {table}".rstrip(),
            kind=self._kind,
            attributes=about,
            record_exception=False,  # a message may have values
            set_status_on_exception=False,
        ) as span:

            def finish(outcome: str, rows: int) -> None:
                if not span.is_recording():
                    return
                if outcome != OK:
                    span.set_attribute("db.response.status_code", outcome)
                    if (operation, outcome) != ("get", Code.RESOURCE_NOT_FOUND):  # it is an answer that there is no row
                        span.set_attribute("error.type", outcome)
                        span.set_status(self._failed)
                elif operation == "transaction":
                    span.set_attribute("db.operation.batch.size", rows)
                elif operation in ("get", "query"):
                    span.set_attribute("db.response.returned_rows", rows)

            yield finish


def make_spans(provider: Any, url: str) -> Spans | None:
    """Return what makes spans for a provider, or for the one of the process if None is given; None if there is none."""
    trace = sys.modules.get("opentelemetry.trace")  # who has a provider has imported it
    if trace is None:
        return None
    found = trace.get_tracer_provider() if provider is None else provider
    return (
        None if isinstance(found, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)) else Spans(trace, found, url)
    )
