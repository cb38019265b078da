"""The futures that a submit returns, for threads and for asyncio."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, NoReturn


class TaskFuture(concurrent.futures.Future[bytes]):
    """The result of one request: ``result(timeout)`` returns the answer's ``result``, or raises an error.

    Its callbacks run in a thread of the client and must be short. Cancelling it only stops the waiting: the request
    still runs and is answered.
    """

    def __init__(self) -> None:
        super().__init__()
        self.delivered: concurrent.futures.Future[str] = concurrent.futures.Future()
        """A future of the id, completed when Kafka has confirmed the request; it raises DeliveryError if not."""
        self.delivered.set_running_or_notify_cancel()  # so that nobody can cancel it
        self._cancelling = threading.RLock()  # a callback may call cancel again
        self._withdrawn = False

    @property
    def id(self) -> str:
        """The id, which finds the answer again in any process. Waits until Kafka has confirmed the request.
        DeliveryError if not.
        """
        return self.delivered.result()

    def cancel(self) -> bool:
        """Stop waiting for the answer. The request is not cancelled. Return False if the answer is already there."""
        with self._cancelling:
            if not super().cancel():
                return False
            if not self._withdrawn:
                self._withdrawn = True
                self.set_running_or_notify_cancel()  # notifies concurrent.futures.wait
        return True

    def answer(self, value: bytes | BaseException) -> None:
        """Resolve the future, unless it was cancelled meanwhile."""
        with contextlib.suppress(concurrent.futures.InvalidStateError):
            if isinstance(value, bytes):
                self.set_result(value)
            else:
                self.set_exception(value)


class AsyncTaskFuture(asyncio.Future[bytes], Coroutine[Any, Any, bytes]):
    """The same for asyncio: ``await`` it for the result. Create it in the event loop that awaits it.

    It is a coroutine too, because ``asyncio.create_task`` takes no other awaitable. Its request is on the way already.
    """

    def __init__(self, task: TaskFuture, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._task = task
        self._followed = True  # whether to log an error that nobody awaits
        self.add_done_callback(self._withdraw)
        task.add_done_callback(self._resolve_soon)

    @property
    def id(self) -> str:
        """The id. Raises InvalidStateError if Kafka has not confirmed the request yet: ``await delivered()`` first."""
        if not self._task.delivered.done():
            raise asyncio.InvalidStateError("the request is not confirmed yet: await future.delivered() first")
        return self._task.id

    async def delivered(self) -> str:
        """Return the id when Kafka has confirmed the request. Raise DeliveryError if it has not.

        A caller with the id need not await the result, because the id can also find a failure.
        """
        self._followed = False
        return await asyncio.wrap_future(self._task.delivered)  # which nobody can cancel

    # -- as a coroutine

    def send(self, _value: None) -> AsyncTaskFuture:
        """Let a task wait for this future, or return the result as coroutines do."""
        if self.done():
            raise StopIteration(self.result())
        self._asyncio_future_blocking = True  # tells the task that this is awaited, not merely yielded
        return self

    def throw(self, error: Any, value: Any = None, _traceback: Any = None) -> NoReturn:
        """Stop waiting if the task is cancelled, and raise the error in it."""
        self.cancel()
        raise error if value is None else value

    def close(self) -> None:
        """Stop waiting: no task will."""
        self.cancel()

    # --

    def _withdraw(self, _done: asyncio.Future[bytes]) -> None:
        if self.cancelled():
            self._task.cancel()

    def _resolve_soon(self, _done: concurrent.futures.Future[bytes]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody awaits this any more
            self.get_loop().call_soon_threadsafe(self._resolve)

    def _resolve(self) -> None:
        if self.done():
            return
        if self._task.cancelled():
            self.cancel()
        elif (error := self._task.exception()) is not None:
            self.set_exception(error)
            if not self._followed:
                self.exception()  # marks it as retrieved
        else:
            self.set_result(self._task.result())
