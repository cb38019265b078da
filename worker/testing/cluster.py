"""An in-memory Kafka with whole worker processes, whose main loops and handlers are real."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from worker.codec import Outcome, encode_request
from worker.core.expiry import HEADER
from worker.core.model import Partition
from worker.core.task_state import Origin
from worker.formats import decode_answer
from worker.state.records import CancelRequest, cancel_key, encode_cancel, partition_of
from worker.state.table import StateTable
from worker.testing.broker import FakeBroker
from worker.testing.clock import Clock
from worker.testing.process import (
    ACK_TOPIC,
    DEAD_LETTER_TOPIC,
    REQUEST_TOPIC,
    STATE_TOPIC,
    WorkerProcess,
    config_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from worker.codec import Response
    from worker.core.model import Record
    from worker.core.task_state import TaskState

REAL_LIMIT = 30.0  # seconds; only a failing test waits that long
CLOCK_LIMIT = 86_400.0  # the same in seconds of the cluster's clock, which pass quickly while no handler runs


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request: the fields of a ``Response``, with the outcome as a word."""

    sequence: int
    outcome: str  # OK, DEAD_LETTERED, EXPIRED or CANCELLED
    result: bytes
    error_type: str
    message: str
    attempt: int
    key: bytes | None
    origin: Origin


class Cluster:
    """An in-memory cluster with request, ack, dead-letter and state topics of ``partitions`` each, and worker
    processes.

    Use it as a context manager for one test, from one thread. Handlers run on threads and take real time. Everything
    else uses the cluster's clock, which runs fast while no handler is running: a back-off of a minute takes a second at
    most. Worker processes run only inside ``answers``, ``until`` and ``sleep``.
    """

    def __init__(self, partitions: int = 2) -> None:
        self.clock = Clock()
        self.broker = FakeBroker(self.clock)
        self.processes: list[WorkerProcess] = []
        self._submitted = 0
        for topic in (REQUEST_TOPIC, ACK_TOPIC, DEAD_LETTER_TOPIC, STATE_TOPIC):
            self.broker.create(topic, partitions)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(
        self,
        handler: Callable[..., object],
        *,
        ordering: str = "partition",
        guarantee: str = "at-least-once",
        max_attempts: int = 3,
        retry_backoff: tuple[float, float] = (1.0, 300.0),
        batch_size: int = 1,
        kwargs: Mapping[str, Any] | None = None,
    ) -> WorkerProcess:
        """Start a worker process in the group, as ``worker run`` does. The arguments are the settings of these names.

        ``retry_backoff`` is the first and the longest delay in seconds. ``kwargs`` are the handler's.
        """
        config = config_of(
            f"worker-{len(self.processes)}",
            ordering=ordering,
            guarantee=guarantee,
            max_attempts=max_attempts,
            retry_first=retry_backoff[0],
            retry_greatest=retry_backoff[1],
            batch_size=batch_size,
            handler_kwargs=dict(kwargs or {}),
        )
        process = WorkerProcess(self.broker, config, handler)
        self.processes.append(process)
        return process

    def submit(
        self,
        payload: str,
        *,
        key: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        deadline: float | None = None,
        partition: int | None = None,
    ) -> Origin:
        """Put a request into its topic, in ``partition`` or where its key belongs. Sequences count from 1.

        ``deadline`` is in seconds since the epoch.
        """
        self._submitted += 1
        limit = () if deadline is None else ((HEADER, f"{deadline:.6f}".encode()),)
        value = encode_request(self._submitted, payload)
        place, offset = self.broker.append(REQUEST_TOPIC, value, key, number=partition, headers=(*headers, *limit))
        return Origin(place.topic, place.number, offset)

    def answers(self, count: int | None = None, timeout: float = REAL_LIMIT) -> list[Answer]:
        """Run until all requests, or ``count`` of them, are answered. Return the answers by sequence.

        Raise TimeoutError as ``until`` does.
        """
        wanted = self._submitted if count is None else count
        self.until(lambda: len(self.broker.records(ACK_TOPIC)) >= wanted, timeout)
        records = self.broker.records(ACK_TOPIC)
        return sorted((_answer(record) for record in records), key=lambda answer: answer.sequence)

    def dead_letters(self) -> list[Record]:
        """Return the records in the dead-letter topic, partition by partition."""
        return self.broker.records(DEAD_LETTER_TOPIC)

    def cancel(self, origin: Origin) -> None:
        """Cancel a request, as ``worker cancel`` does."""
        number = partition_of(origin, len(self.broker.topics[STATE_TOPIC].logs))
        self.broker.append(STATE_TOPIC, encode_cancel(CancelRequest(origin)), cancel_key(origin), number=number)

    def states(self) -> dict[Origin, TaskState]:
        """Return the long tasks on the state topic."""
        table = StateTable()
        for record in self.broker.records(STATE_TOPIC):
            table.apply(record.key, record.value)
        return table.states

    def committed(self, partition: int) -> int:
        """Return the group's committed offset for a partition of the request topic."""
        position = self.broker.group(self.processes[0].group).committed.get(Partition(REQUEST_TOPIC, partition))
        return position.offset if position else 0

    def until(self, condition: Callable[[], object], timeout: float = REAL_LIMIT) -> None:
        """Run until the condition holds. Raise TimeoutError after ``timeout`` real seconds.

        It is also raised after a day of the cluster's clock. An error that ends a worker process is raised here.
        """
        end = time.monotonic() + timeout

        def over() -> bool:
            failed = any(process.error is not None for process in self.processes)
            return bool(condition()) or failed or time.monotonic() > end

        self.clock.wait(CLOCK_LIMIT, until=over)
        for process in self.processes:
            if process.error is not None:
                raise process.error
        if not condition():
            done = len(self.broker.records(ACK_TOPIC))
            raise TimeoutError(f"the condition does not hold; {done} of {self._submitted} requests are answered")

    def sleep(self, seconds: float) -> None:
        """Let that much time of the cluster's clock pass."""
        self.clock.wait(seconds)

    def close(self) -> None:
        """Cancel running tasks and end every process. A handler that ignores its cancellation keeps its thread."""
        for process in self.processes:
            process.cancel()
        self.clock.wait(CLOCK_LIMIT, until=lambda: all(process.ended for process in self.processes))
        self.clock.close()


def _answer(record: Record) -> Answer:
    response: Response = decode_answer(record.value)
    return Answer(
        response.sequence,
        Outcome.Name(response.outcome),
        response.result,
        response.error.type,
        response.error.message,
        response.attempt,
        record.key,
        Origin(response.origin.topic, response.origin.partition, response.origin.offset),
    )
