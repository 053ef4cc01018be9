"""
What a server answers neither stops a client for ever nor makes it keep memory: parts of transactions, names, lists.
"""

import gc
import json
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from itertools import count

import pytest

from tableorm import Entity, Mapped, RetryPolicy, TableOrmError
from tableorm.protocol.codes import Fault
from tableorm_azure.batch import find_throttled_part, read_etags
from tests.azure.stub import Answer, Request, row_answer
from tests.security.world import Thing, client_of, memory_below

# A regular expression cannot be interrupted, so these are read in a process of their own.
PARTS = """
from tableorm.protocol.codes import Fault
from tableorm_azure.batch import read_etags
from tableorm_azure.codec import decode_row
for inside in (b'\\\\"', b"\\\\\\n", b'\\\\"\\\\'):
    try:
        decode_row(b'"' + inside * 400_000 + b"{" * 400_000 + b"\\\\")
    except Fault:
        print("refused")
for header in (b"X:" + b" " * 20_000 + b"b\\rc", b"X: b" + b" " * 400_000 + b"b"):
    try:
        read_etags(b"\\r\\nHTTP/1.1 400 Bad\\r\\n" + header + b"\\r\\n\\r\\n{}", 1)
    except Fault:
        print("refused")
"""


class Part(Entity, table="Tab", partition_key="{a}_{b}", row_key="{r}"):
    a: Mapped[str]
    b: Mapped[str]
    r: Mapped[str]


def test_what_is_read_by_regular_expressions_is_read_at_once() -> None:
    """Headers of many blanks in a transaction, and strings that are not closed, take no more time than others."""
    run = subprocess.run([sys.executable, "-c", PARTS], capture_output=True, timeout=20, check=True, text=True)
    assert run.stdout.split() == ["refused"] * 5


async def test_names_of_rows_are_not_kept_however_many() -> None:
    """Rows with more properties than a row can have, or with long names, leave nothing behind in the client."""
    number = count()

    def answer(_: Request) -> Answer:
        each = next(number)
        return row_answer(**{f"p{each}_{name}".ljust(2_000 * (each % 2), "x"): 0 for name in range(500)})

    async with client_of(answer) as (db, _):
        tracemalloc.start()
        try:
            for _ in range(6):
                with pytest.raises(TableOrmError):
                    await db.get(Thing, p="p", r="r")
            gc.collect()
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert held < 1_000_000  # of 4 MB of names


@pytest.mark.parametrize("again", [["Tab"], ["Tab", "Uab"]], ids=["the same", "two in turn"])
async def test_a_list_of_tables_that_goes_on_where_it_was_is_refused(again: list[str]) -> None:
    """A server that gives the same continuations again does not make the client collect names for ever."""
    body = json.dumps({"value": [{"TableName": "Tab"}]}).encode()

    def answer(_: Request) -> Answer:
        number = len(stub.requests)
        on = {"x-ms-continuation-NextTableName": again[number % len(again)]} if number < 50 else {}
        return Answer(200, {"Content-Type": "application/json", **on}, body)

    async with client_of(answer) as (db, stub):
        with pytest.raises(TableOrmError, match="the list would never end"):
            await db.tables()
    assert len(stub.requests) <= 3


@pytest.mark.parametrize("what", ["queue", "container"])
async def test_a_list_of_queues_or_containers_that_goes_on_where_it_was_is_refused(what: str) -> None:
    """The lists of queues and of containers end likewise."""
    item = f"<{what.title()}><Name>abc</Name></{what.title()}>"
    item = item.replace("</Container>", "<Properties></Properties></Container>")
    inner = f"<{what.title()}s>{item}</{what.title()}s><NextMarker>abc</NextMarker>"
    body = f'<?xml version="1.0"?><EnumerationResults ServiceEndpoint="">{inner}</EnumerationResults>'.encode()
    kind = {"Content-Type": "application/xml"}
    async with client_of(lambda _: Answer(200 if len(stub.requests) < 50 else 404, kind, body)) as (db, stub):
        with pytest.raises(TableOrmError, match="the list would never end"):
            await (db.queues.list_queues() if what == "queue" else db.blobs.list_containers())
    assert len(stub.requests) <= 3


async def test_keys_of_rows_are_not_kept_however_long() -> None:
    """PartitionKeys that are far longer than a key can be leave nothing behind in the client."""
    number = count()

    def answer(_: Request) -> Answer:
        rows = [
            json.loads(row_answer(EntityType="Part", PartitionKey=f"a_{next(number)}" + "x" * 100_000).body)
            for _ in range(10)
        ]
        return Answer(200, {"Content-Type": "application/json"}, json.dumps({"value": rows}).encode())

    gc.collect()
    tracemalloc.start()
    try:
        async with client_of(answer) as (db, _):
            for _ in range(10):
                with suppress(TableOrmError):
                    await db.select(Part).allow_scan().all()
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 5_000_000  # of ten million characters


def test_a_part_of_a_transaction_is_not_read_as_many_headers() -> None:
    """Of a part that failed no more is read than an error of the service has."""
    body = b"--x\r\n\r\nHTTP/1.1 503 Busy\r\n" + b"a:b\n" * 300_000 + b"\r\n\r\n{}\r\n--x--"
    with memory_below(len(body)):
        find_throttled_part(body)
        with pytest.raises(Fault):
            read_etags(body, 2)


async def test_what_is_no_transaction_is_not_looked_through_for_parts() -> None:
    """A read that is answered with the status of a transaction is not searched for parts that were throttled."""
    body = b"\nHTTP/1.1 503 Busy\r\nx-ms-error-code: ServerBusy\r\n\r\n{}"
    async with client_of(Answer(202, {}, body), retry=RetryPolicy(attempts=3, base=0.0)) as (db, stub):
        with pytest.raises(TableOrmError):
            await db.get(Thing, p="p", r="r")
    assert len(stub.requests) == 1
