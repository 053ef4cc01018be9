"""
What a write promises when the network loses requests and answers, on Azurite behind a proxy that does.
"""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from tableorm.protocol.codes import Code, Fault
from tableorm.stores import Operation, RetryPolicy, RowQuery, Verb
from tableorm.testing.contract.base import insert, keys_of, new_name, refusal, row
from tableorm_azure import AzureBackend
from tests.azure.proxy import FaultProxy, Loss
from tests.azurite import KEY, Azurite


@pytest.fixture
async def proxy(azurite: Azurite) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(azurite.table) as proxy:
        yield proxy


def behind(proxy: FaultProxy, timeout: float = 30.0) -> AzureBackend:
    """The backend by way of the proxy."""
    options = {"key": KEY, "retry": RetryPolicy(base=0.0)}
    return AzureBackend.from_url(proxy.url, timeout=timeout, options=options)


@pytest.fixture
async def backend(proxy: FaultProxy) -> AsyncIterator[AzureBackend]:
    async with behind(proxy) as backend:
        yield backend


@pytest.fixture
async def table(backend: AzureBackend) -> AsyncIterator[str]:
    name = new_name()
    await backend.tables.create_table(name)
    yield name
    await backend.tables.delete_table(name)


LOST = [Loss.REQUEST, Loss.ANSWER, Loss.HALF_AN_ANSWER]


@pytest.mark.parametrize("losses", [[loss] * times for loss in LOST for times in (1, 3)], ids=str)
async def test_reads_survive(backend: AzureBackend, proxy: FaultProxy, table: str, losses: list[Loss]) -> None:
    """A read is repeated until there is an answer in full."""
    await insert(backend.tables, table, row(A=1))
    proxy.losses += losses
    assert (await backend.tables.get(table, "p", "r"))["A"] == 1

    proxy.losses += losses
    assert keys_of((await backend.tables.query(table, RowQuery())).rows) == [("p", "r")]
    assert backend.traffic.retries == 2 * len(losses)


@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.ANSWER])
@pytest.mark.parametrize("verb", list(Verb))
async def test_a_write_happens_once_or_not_at_all(
    backend: AzureBackend, proxy: FaultProxy, table: str, verb: Verb, loss: Loss
) -> None:
    """The fault says that it is in doubt; the row tells that it was not sent again, under any verb and condition."""
    store = backend.tables
    tag: str | None = None
    if verb is not Verb.INSERT:
        (tag,) = await insert(store, table, row(A=1))
    if_match = tag if verb in (Verb.MERGE, Verb.REPLACE, Verb.DELETE) else None
    proxy.losses.append(loss)

    fault = await refusal(store.write(table, Operation(verb, row() if verb is Verb.DELETE else row(A=2), if_match)))
    assert (fault.code, fault.doubt) == (Code.NO_ANSWER, True)
    assert backend.traffic.retries == 0
    rows = (await store.query(table, RowQuery())).rows
    done = loss is Loss.ANSWER
    if verb is Verb.DELETE:
        assert len(rows) == (0 if done else 1)
    elif verb is Verb.INSERT:
        assert len(rows) == (1 if done else 0)
    else:
        assert rows[0]["A"] == (2 if done else 1)


@pytest.mark.parametrize("loss", LOST)
async def test_a_transaction_happens_once_or_not_at_all(
    backend: AzureBackend, proxy: FaultProxy, table: str, loss: Loss
) -> None:
    """In full or not at all, and in doubt."""
    proxy.losses.append(loss)
    operations = [Operation(Verb.INSERT, row(row_key=str(number))) for number in range(10)]

    fault = await refusal(backend.tables.transact(table, operations))
    assert fault.doubt
    assert fault.index is None
    assert len((await backend.tables.query(table, RowQuery())).rows) == (0 if loss is Loss.REQUEST else 10)


async def test_a_time_out_is_in_doubt(proxy: FaultProxy, backend: AzureBackend, table: str) -> None:
    """The answer does not come in time; the write was done."""
    async with behind(proxy, timeout=1.0) as hasty:
        proxy.losses.append(Loss.SILENCE)
        fault = await refusal(hasty.tables.write(table, Operation(Verb.INSERT, row(A=1))))

    assert (fault.code, fault.doubt) == (Code.OPERATION_TIMED_OUT, True)
    assert (await backend.tables.get(table, "p", "r"))["A"] == 1


async def test_cancelled_while_the_answer_is_on_its_way(proxy: FaultProxy, backend: AzureBackend, table: str) -> None:
    """The connection is not used again, so that no other request gets this one's answer."""
    await insert(backend.tables, table, row(row_key="other", A=7))
    proxy.losses.append(Loss.SILENCE)
    proxy.done.clear()
    task = asyncio.create_task(backend.tables.write(table, Operation(Verb.INSERT, row(A=1))))
    await proxy.done.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert (await backend.tables.get(table, "p", "other"))["A"] == 7


@pytest.mark.parametrize("seed", range(4))
async def test_no_conditional_write_is_doubled(proxy: FaultProxy, backend: AzureBackend, table: str, seed: int) -> None:
    """
    Several count up under the ETag they read, while a third of requests or answers is lost: the number is never more
    than the attempts that may have succeeded, and never less than those that surely did.
    """
    store, chance = backend.tables, random.Random(seed)
    await insert(store, table, row(N=0))
    proxy.losses += [chance.choice([Loss.NOTHING, Loss.NOTHING, Loss.REQUEST, Loss.ANSWER]) for _ in range(60)]
    sure = doubtful = 0
    others: set[str] = set()

    async def count() -> None:
        nonlocal sure, doubtful
        for _ in range(12):
            try:
                stored = await store.get(table, "p", "r")
                await store.write(table, Operation(Verb.MERGE, row(N=stored["N"] + 1), stored["odata.etag"]))
                sure += 1
            except Fault as fault:
                doubtful += fault.doubt
                others.add("" if fault.doubt else fault.code)

    await asyncio.gather(*(count() for _ in range(3)))
    proxy.losses.clear()
    total = (await store.get(table, "p", "r"))["N"]
    assert sure <= total <= sure + doubtful
    assert others <= {"", Code.CONDITION_NOT_SATISFIED, Code.NO_ANSWER}
