"""The reading side of the client: one thread reads new answers, another searches for earlier ones."""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
import time
from typing import TYPE_CHECKING, Any

from worker.client.book import CLOCK_SKEW_MS, Book
from worker.client.errors import ClientClosedError, TaskFailed
from worker.client.futures import TaskFuture
from worker.client.ids import Origin, TaskId
from worker.codec import FAILED, OK, MalformedError, name_of
from worker.errors import BrokerError, WorkerError
from worker.formats import decode_answer
from worker.kafka.client_consumer import AnswerReader, answers_since
from worker.kafka.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from worker.codec import Response
    from worker.core.model import Partition, Record

RECENT_BYTES = 64 * 1024 * 1024  # of answers that are kept although no future waits for them
_LOOK = 0.1  # seconds between two checks whether the client is closed
_AGAIN = 1.0  # seconds until a search that has failed is repeated
_NEW_PARTITIONS = 30.0  # seconds between two checks for new partitions of the ack topic


class Answers:
    """Resolves futures with the answers from the ack topic. Raises BrokerError if the topic cannot be reached.

    The broker has ``timeout`` seconds to reply. When answers cannot be read any more, ``failure`` says why, and every
    future fails.
    """

    def __init__(self, properties: Mapping[str, Any], topic: str, timeout: float) -> None:
        self._properties, self._topic, self._timeout = dict(properties), topic, timeout
        self._stop = threading.Event()
        self.failure: WorkerError | None = None
        self._sought: queue.SimpleQueue[list[TaskId] | None] = queue.SimpleQueue()
        cluster = Cluster(properties, timeout)
        started_ms = time.time_ns() // 1_000_000
        ends = {place: span.end for place, span in cluster.spans(cluster.partitions(topic)).items()}
        self.book = Book(RECENT_BYTES, started_ms)
        self.threads = [
            threading.Thread(target=self._guarded, args=(self._read, cluster, ends), name="client-answers"),
            threading.Thread(target=self._guarded, args=(self._look_back,), name="client-history"),
        ]
        for thread in self.threads:
            thread.daemon = True  # a client that was not closed must not keep the program from ending
            thread.start()

    # -- any thread

    def expect(self, future: TaskFuture, task_id: TaskId, mark: int) -> None:
        """Resolve the future of a request that was submitted at ``mark`` and is now confirmed."""
        found = self.book.expect(future, task_id.origin, mark)
        if found.answer is not None:
            _resolve(future, task_id.origin, found.answer)
        elif found.behind:
            self._sought.put([task_id])
        self._forget_when_cancelled(future, task_id.origin)
        self.fail_if_ended()

    def find(self, ids: Iterable[TaskId]) -> list[TaskFuture]:
        """Return the futures of earlier requests, in the order of their ids."""
        futures, past = [], []
        for task_id in ids:
            future = TaskFuture()
            future.delivered.set_result(str(task_id))
            found = self.book.find(task_id, future)
            self._forget_when_cancelled(future, task_id.origin)
            if found.answer is not None:
                _resolve(future, task_id.origin, found.answer)
            elif found.behind:
                past.append(task_id)
            futures.append(future)
        if past:
            self._sought.put(past)
        self.fail_if_ended()
        return futures

    def fail_if_ended(self) -> None:
        """Fail all waiting futures if answers are not read any more."""
        if self.failure is None:
            return
        with contextlib.ExitStack() as each:  # as in ``_take``
            for origin, future in self.book.drain():
                task_id = future.delivered.result() if future.delivered.done() else origin
                error = type(self.failure)(f"{self.failure}; the answer to {task_id} can be found by its id")
                each.callback(future.answer, error)

    def _forget_when_cancelled(self, future: TaskFuture, origin: Origin) -> None:
        """Remove all entries of a future that no longer waits."""
        future.add_done_callback(lambda done: self.book.forget(origin, future) if done.cancelled() else None)

    def close(self) -> None:
        """Stop reading, and fail all waiting futures with ClientClosedError."""
        self._stop.set()
        self._sought.put(None)
        for thread in self.threads:
            if thread is not threading.current_thread():  # not when a callback of a future closes the client
                thread.join(self._timeout)
        self._end(ClientClosedError("the client was closed"))

    def _end(self, failure: WorkerError) -> None:
        self.failure = self.failure or failure
        self.fail_if_ended()

    # -- the threads

    def _guarded(self, run: Callable[..., None], *arguments: object) -> None:
        try:
            run(*arguments)
        except BaseException as error:  # noqa: BLE001 - every error must reach the futures, sys.exit of a callback too
            self._end(error if isinstance(error, BrokerError) else BrokerError(f"the client failed: {error!r}"))

    def _read(self, cluster: Cluster, starts: dict[Partition, int]) -> None:
        known, looked = set(starts), time.monotonic()
        with contextlib.closing(AnswerReader(self._properties, starts)) as reader:
            while not self._stop.is_set():
                self._take(reader.read(_LOOK))
                if time.monotonic() - looked >= _NEW_PARTITIONS:
                    looked = time.monotonic()
                    if new := _new_partitions(cluster, self._topic, known):
                        reader.extend(dict.fromkeys(new, 0))
                        known |= new

    def _take(self, records: Iterable[Record]) -> None:
        for record in records:
            with contextlib.suppress(MalformedError):  # not an answer, so not ours
                response = decode_answer(record.value)
                origin = Origin(response.origin.topic, response.origin.partition, response.origin.offset)
                with contextlib.ExitStack() as each:  # all of them, even if a callback of one calls sys.exit
                    for future in self.book.take(origin, record.value or b""):
                        each.callback(future.answer, value_of(response, origin))

    def _look_back(self) -> None:
        while (ids := self._sought.get()) is not None:
            with contextlib.suppress(queue.Empty):
                while more := self._sought.get_nowait():
                    ids = [*ids, *more]
            if self._stop.is_set():
                return
            self._search(ids)

    def _search(self, ids: list[TaskId]) -> None:
        origins = [task_id.origin for task_id in ids]
        since_ms = min(task_id.timestamp_ms for task_id in ids) - CLOCK_SKEW_MS
        while not self._stop.is_set() and self.failure is None and self.book.waits(origins):
            try:
                self._scan(origins, since_ms)
            except BrokerError:  # an outage; if access was refused, the other thread ends the client
                self._stop.wait(_AGAIN)
            else:
                return

    def _scan(self, origins: list[Origin], since_ms: int) -> None:
        """Read every answer dated ``since_ms`` or later.

        Continue when all are found, because ids are often requested one after the other, but only as long as the
        answers read are kept.
        """
        cluster, mark = Cluster(self._properties, self._timeout), self.book.mark()
        spans = cluster.spans(cluster.partitions(self._topic))
        done = functools.partial(self._enough, origins, mark)
        for records in answers_since(self._properties, spans, since_ms, done, self._timeout):
            self._take(records)
        if not done():
            self.book.covered(since_ms, mark)

    def _enough(self, origins: list[Origin], mark: int) -> bool:
        return self._stop.is_set() or (self.book.evicted_since(mark) and not self.book.waits(origins))


def value_of(response: Response, origin: Origin) -> bytes | TaskFailed:
    """Return the result, or why there is none."""
    # A writer that knows only the first two fields reports it in isprocessed.
    outcome = response.outcome or (OK if response.isprocessed else FAILED)
    if outcome == OK:
        return response.result
    return TaskFailed(name_of(outcome), response.error.type, response.error.message, origin)


def _resolve(future: TaskFuture, origin: Origin, answer: bytes) -> None:
    future.answer(value_of(decode_answer(answer), origin))


def _new_partitions(cluster: Cluster, topic: str, known: set[Partition]) -> set[Partition]:
    try:
        return set(cluster.find(topic) or ()) - known
    except BrokerError:  # unreachable for now; the next check finds them
        return set()
