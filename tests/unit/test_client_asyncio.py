"""The result of ``Client.asubmit`` can be used wherever asyncio accepts a coroutine or a future."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import TYPE_CHECKING, Any

import pytest

from worker.client.futures import AsyncTaskFuture, TaskFuture

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

LIMIT = 10.0  # seconds; only a failing test waits this long


async def grouped(future: AsyncTaskFuture) -> bytes:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(future)
    return task.result()


async def created(future: AsyncTaskFuture) -> bytes:
    return await asyncio.create_task(future)


async def twice(future: AsyncTaskFuture) -> bytes:
    first, second = await asyncio.gather(asyncio.create_task(future), asyncio.create_task(future))
    assert first == second
    return first


async def gathered(future: AsyncTaskFuture) -> bytes:
    (result,) = await asyncio.gather(future)
    return result


async def awaited(future: AsyncTaskFuture) -> bytes:
    return await asyncio.wait_for(future, LIMIT)


WAYS = [grouped, created, twice, gathered, awaited]


@pytest.mark.parametrize("way", WAYS)
def test_the_result_arrives(way: Callable[[AsyncTaskFuture], Coroutine[Any, Any, bytes]]) -> None:
    async def main() -> bytes:
        task = TaskFuture()
        loop = asyncio.get_running_loop()
        loop.call_later(0.01, task.answer, b"done")
        return await way(AsyncTaskFuture(task, loop))

    assert asyncio.run(main()) == b"done"


@pytest.mark.parametrize("way", WAYS[1:])
def test_an_error_arrives(way: Callable[[AsyncTaskFuture], Coroutine[Any, Any, bytes]]) -> None:
    async def main() -> bytes:
        task = TaskFuture()
        loop = asyncio.get_running_loop()
        loop.call_later(0.01, task.answer, ValueError("why"))
        return await way(AsyncTaskFuture(task, loop))

    with pytest.raises(ValueError, match="why"):
        asyncio.run(main())


@pytest.mark.parametrize("started", [False, True])
def test_a_cancelled_asyncio_task_cancels_the_future(started: bool) -> None:
    """The request then takes no room any more, whether the asyncio task has begun to wait or not."""
    task = TaskFuture()

    async def main() -> None:
        waiting = asyncio.create_task(AsyncTaskFuture(task, asyncio.get_running_loop()))
        if started:
            await asyncio.sleep(0)  # one turn of the loop, in which the task begins to wait
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())
    with pytest.raises(concurrent.futures.CancelledError):
        task.result(0)


def test_a_closed_coroutine_cancels_the_future() -> None:
    """asyncio closes a coroutine that it does not start."""
    task = TaskFuture()

    async def main() -> None:
        AsyncTaskFuture(task, asyncio.get_running_loop()).close()
        await asyncio.sleep(0)

    asyncio.run(main())
    assert task.cancelled()
