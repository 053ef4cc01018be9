"""
Spans of OpenTelemetry: one for each request, on every backend, without keys and values.
"""

import asyncio
import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from tableorm import Entity, EntityExists, Mapped, RetryPolicy, connect, field
from tests.azure.stub import KEY, Stub, error_answer, row_answer
from tests.connection.conftest import Connect
from tests.databases import memory_database


class Person(Entity, table="People", partition_key="{team}", row_key="person_{id:04d}"):
    team: Mapped[str] = field(default="a")
    id: Mapped[int]
    name: Mapped[str | None] = field(default=None)


class Spans(InMemorySpanExporter):
    """Spans that have ended, of a provider that is not the process's."""

    def __init__(self) -> None:
        super().__init__()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self))

    @property
    def ended(self) -> list[ReadableSpan]:
        return list(self.get_finished_spans())


def told(span: ReadableSpan) -> dict[str, object]:
    return {name: value for name, value in (span.attributes or {}).items() if not name.startswith("server.")}


async def test_each_request_has_a_span(connecting: Connect) -> None:
    """It has the attributes of OpenTelemetry's conventions for databases, and is a client's."""
    spans = Spans()
    async with connecting(tracer_provider=spans.provider) as db:
        await db.create_tables(Person)
        await db.insert(Person(id=1, name="Kenneth"))
        async with db.transaction() as tx:
            tx.insert(Person(id=2, name="Kenneth"))
            tx.insert(Person(id=3))
        await db.select(Person).where(Person.team == "a", Person.name == "Kenneth").all()
        local = db.url.startswith("local:")

    same = {"db.system.name": "azure.tables", "db.collection.name": "People"}
    assert [span.name for span in spans.ended] == [
        "create-table People",
        "insert People",
        "transaction People",
        "query People",
    ]
    assert [told(span) for span in spans.ended] == [
        {**same, "db.operation.name": "create-table"},
        {**same, "db.operation.name": "insert"},
        {**same, "db.operation.name": "transaction", "db.operation.batch.size": 2},
        {**same, "db.operation.name": "query", "db.response.returned_rows": 2},
    ]
    assert {span.kind for span in spans.ended} == {trace.SpanKind.CLIENT}
    found = "".join(span.to_json() for span in spans.ended)
    assert "Kenneth" not in found and "person_" not in found
    places = {str(dict(span.attributes or {}).get("server.address")) for span in spans.ended}
    assert places == {"None" if local else "127.0.0.1"}


async def test_spans_are_within_those_of_the_program() -> None:
    """A request is a child of the span that is current where it is sent, also in a task."""
    spans = Spans()
    async with connect("local::memory:", tracer_provider=spans.provider) as db:
        with spans.provider.get_tracer("program").start_as_current_span("work") as own:
            await db.create_tables(Person)
            await asyncio.create_task(db.insert(Person(id=1)))

    first, second, _ = spans.ended
    for span in (first, second):
        assert span.parent is not None and span.parent.span_id == own.get_span_context().span_id


async def test_what_is_refused_is_an_error() -> None:
    """The span has the service's code and no message; a row that is not there is an answer, not an error."""
    spans = Spans()
    async with memory_database(Person, tracer_provider=spans.provider) as db:
        await db.insert(Person(id=1))
        with pytest.raises(EntityExists):
            await db.insert(Person(id=1))
        await db.get_or_none(Person, team="b", id=1)

    *_, refused, missing = spans.ended
    assert refused.status.status_code is trace.StatusCode.ERROR and refused.events == ()
    assert told(refused)["error.type"] == told(refused)["db.response.status_code"] == "EntityAlreadyExists"
    assert missing.status.status_code is trace.StatusCode.UNSET and "error.type" not in told(missing)
    assert told(missing)["db.response.status_code"] == "ResourceNotFound"


async def test_repetitions_are_in_the_span() -> None:
    """A request that the Azure backend repeats has one span, with where it was sent."""
    spans = Spans()
    async with Stub() as stub:
        stub.answers = [
            error_answer(503, "ServerBusy"),
            row_answer(PartitionKey="a", RowKey="person_0001", EntityType="Person"),
        ]
        async with connect(stub.url, key=KEY, retry=RetryPolicy(base=0.0), tracer_provider=spans.provider) as db:
            await db.exists(Person, team="a", id=1)

        (span,) = spans.ended
        attributes = dict(span.attributes or {})
        assert (attributes["server.address"], attributes["server.port"]) == ("127.0.0.1", stub.port)
        assert span.status.status_code is trace.StatusCode.UNSET


async def test_a_span_that_is_not_recorded_gets_nothing() -> None:
    """A request whose trace is not sampled is sent as any other."""
    spans = Spans()
    provider = TracerProvider(sampler=ALWAYS_OFF)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    async with memory_database(Person, tracer_provider=provider) as db:
        assert await db.get_or_none(Person, team="a", id=1) is None

    assert spans.ended == []


PROGRAM = """
import asyncio, sys

from tableorm import connect

async def main() -> None:
    async with connect("local::memory:") as db:
        await db.tables()

asyncio.run(main())
assert not any(name.startswith("opentelemetry") for name in sys.modules)

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

asyncio.run(main())
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
asyncio.run(main())
print([span.name for span in exporter.get_finished_spans()])
"""


def test_the_process_s_provider_is_found() -> None:
    """A program that uses no OpenTelemetry imports none of it; one that sets a provider gets spans by that alone."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)

    assert done.stdout == "['list-tables']\n"
