"""The sending side of the client: any thread sends records, and one thread handles their confirmations."""

from __future__ import annotations

import functools
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from worker.client.errors import ClientClosedError, DeliveryError, TooManyInFlightError
from worker.client.futures import TaskFuture
from worker.client.ids import Origin, TaskId
from worker.errors import BrokerError
from worker.kafka.client_producer import RequestProducer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.client.answers import Answers
    from worker.core.model import Headers, Partition

_DELIVERY = 60.0  # seconds that a request may take to be confirmed
_LOOK = 0.1  # seconds between two checks whether the client is closed


class Submission(NamedTuple):
    """A request in the form in which it is written."""

    key: bytes | None
    value: bytes
    headers: Headers


class Submitter:
    """Sends requests to ``topic`` and lets ``answers`` resolve their futures. At most ``limit`` are in flight."""

    def __init__(self, properties: Mapping[str, Any], topic: str, limit: int, answers: Answers) -> None:
        self._topic, self._limit, self._answers = topic, limit, answers
        self._room = threading.BoundedSemaphore(limit)
        self._refusal: str | None = None  # why no more requests are accepted
        self._failure: str | None = None  # why the producer cannot continue
        self._stop = threading.Event()
        self._producer = RequestProducer(properties, _DELIVERY)
        self._thread = threading.Thread(target=self._poll, name="client-deliveries", daemon=True)
        self._thread.start()

    # -- any thread

    def submit(self, submission: Submission) -> TaskFuture:
        """Send a request, waiting while too many are in flight.

        In a callback of ``delivered``, raise TooManyInFlightError if the producer's queue is full.
        """
        self._check()
        # In a callback do not wait: its thread takes the answers that make room, so that nobody would make any.
        counted = threading.current_thread() not in (self._thread, *self._answers.threads)
        while counted and not self._room.acquire(timeout=_LOOK):
            self._check()
        while (future := self._send(submission, counted=counted)) is None:
            if threading.current_thread() is self._thread:
                raise TooManyInFlightError("the producer's queue is full, and the thread of this callback empties it")
            time.sleep(_LOOK)
        return future

    def try_submit(self, submission: Submission) -> TaskFuture:
        """Send a request. Raise TooManyInFlightError if too many are in flight."""
        self._check()
        if self._room.acquire(blocking=False):
            if (future := self._send(submission)) is not None:
                return future
            self._room.release()
        raise TooManyInFlightError(f"{self._limit} requests are in flight: await some of them first")

    def refuse(self, reason: str) -> bool:
        """Accept no more requests. Return False if that was already so."""
        first = self._refusal is None
        self._refusal = self._refusal or reason
        return first

    def close(self, timeout: float) -> None:
        """Wait at most ``timeout`` seconds for confirmations, and fail the requests that are not confirmed by then."""
        self._producer.flush(timeout)
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
        self._producer.purge()

    # --

    def _check(self) -> None:
        failure = self._failure or self._answers.failure
        if failure is not None and self._refusal is None:
            raise BrokerError(f"the client has failed, make a new one: {failure}")
        if self._refusal is not None:
            raise ClientClosedError(self._refusal)

    def _send(self, submission: Submission, *, counted: bool = True) -> TaskFuture | None:
        """Return the future, which frees its place when it is done; None if the producer's queue is full."""
        future, mark = TaskFuture(), self._answers.book.mark()
        failed = functools.partial(self._failed, future)
        confirmed = functools.partial(self._confirmed, future, mark)
        try:
            self._check()
            if not self._producer.send(self._topic, *submission, confirmed=confirmed, failed=failed):
                return None
        except BaseException:
            if counted:
                self._room.release()
            raise
        if counted:
            future.add_done_callback(lambda _done: self._room.release())
        if self._stop.is_set():  # ``close`` may have purged the producer before this record came
            self._producer.purge()
        return future

    def _poll(self) -> None:
        try:
            while not self._stop.is_set():
                self._producer.poll(_LOOK)
        except BaseException as error:  # noqa: BLE001 - nothing is confirmed any more; futures must not wait for it
            self._failure = str(error) if isinstance(error, BrokerError) else repr(error)
            self._stop.set()
            self._producer.purge()

    def _confirmed(self, future: TaskFuture, mark: int, place: Partition, offset: int, timestamp_ms: int) -> None:
        task_id = TaskId(Origin(*place, offset), timestamp_ms)
        try:
            future.delivered.set_result(str(task_id))
        finally:  # a callback may call sys.exit, which ends the client and fails every future it knows
            self._answers.expect(future, task_id, mark)

    def _failed(self, future: TaskFuture, reason: str) -> None:
        error = DeliveryError(f"the request to {self._topic} was not confirmed: {reason}")
        try:
            future.delivered.set_exception(error)
        finally:
            future.answer(error)
