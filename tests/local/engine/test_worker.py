"""
Workers: jobs one after the other, their results on the event loop.
"""

import asyncio
import threading

from tableorm_local.engine.worker import InlineWorker, ThreadWorker


async def test_jobs_are_done_in_order_in_a_thread() -> None:
    """Each result comes on the event loop; after `stop` the jobs that were given are done, and the thread ends."""
    loop, worker = asyncio.get_running_loop(), ThreadWorker(asyncio.get_running_loop(), "jobs in order")
    jobs, results, done = list[tuple[int, str]](), list[tuple[int, str]](), asyncio.Event()

    def job(number: int) -> int:
        jobs.append((number, threading.current_thread().name))
        return number

    def take(number: int) -> None:
        results.append((number, threading.current_thread().name))
        if number == 4:
            loop.call_soon(done.set)

    for number in range(5):
        worker.run(lambda number=number: job(number), take)  # type: ignore[misc]
        worker.wait_until_started()
    worker.stop()
    async with asyncio.timeout(30):
        await done.wait()
    for thread in threading.enumerate():
        if thread.name == "jobs in order":
            await asyncio.to_thread(thread.join, 30)

    assert jobs == [(number, "jobs in order") for number in range(5)]
    assert results == [(number, threading.current_thread().name) for number in range(5)]
    assert "jobs in order" not in {thread.name for thread in threading.enumerate()}
    assert (ThreadWorker.parallel, InlineWorker.parallel) == (True, False)


def test_a_job_whose_loop_has_ended_is_done() -> None:
    """Nobody waits for its result any more; the thread goes on with the next job."""
    begin, ended = threading.Event(), threading.Event()

    async def give() -> ThreadWorker:
        worker = ThreadWorker(asyncio.get_running_loop(), "jobs")
        worker.run(lambda: begin.wait(30), lambda _: None)
        worker.run(ended.set, lambda _: None)
        return worker

    worker = asyncio.run(give())
    begin.set()
    assert ended.wait(30)
    worker.stop()
