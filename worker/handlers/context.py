"""What a handler is told besides the request, and how it learns that it should stop."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import structlog

from worker.codec import MalformedError, decode_request

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from worker.codec import Request
    from worker.core.model import Headers, Record, Task

Reason = Literal["revoked", "drain", "deadline", "requested"]


class Origin(NamedTuple):
    """The record a request came in."""

    topic: str
    partition: int
    offset: int


class Cancelled:
    """An event with a reason: set when the running task should stop as soon as it can.

    Like ``threading.Event`` for the handler: any of its threads may call it. Real events are only made when somebody
    waits, since most tasks are short and never look.
    """

    __slots__ = ("_waiting", "reason")

    def __init__(self) -> None:
        self.reason: Reason | None = None
        self._waiting: list[threading.Event] = []  # one per waiting thread: a shared one would need a lock to be made

    def is_set(self) -> bool:
        """Whether the task should stop."""
        return self.reason is not None

    __bool__ = is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the task should stop, at most ``timeout`` seconds; returns whether it should."""
        event = threading.Event()
        self._waiting.append(event)
        try:
            # Looked at after the event stands where set() finds it: a reason given in between is not missed.
            return self.is_set() or event.wait(timeout)
        finally:
            self._waiting.remove(event)

    def set(self, reason: Reason) -> None:
        """Ask the task to stop; the first reason stays. Called from the poll thread."""
        if self.reason is None:
            self.reason = reason
        for event in tuple(self._waiting):
            event.set()


class Context:
    """Given to the handler beside its request; valid until the handler returns."""

    __slots__ = ("_deadline", "_log", "_task", "_transaction", "cancelled")

    def __init__(self, task: Task, deadline: float | None = None, transaction: Any = None) -> None:
        self._task = task
        self._deadline = deadline
        self._transaction = transaction
        self._log: structlog.stdlib.BoundLogger | None = None
        self.cancelled = Cancelled()

    @property
    def attempt(self) -> int:
        """Which start of this request this is, from 1."""
        return self._task.attempt

    @property
    def origin(self) -> Origin:
        """Topic, partition and offset of the request: its identity, the same on every attempt."""
        partition = self._task.record.partition
        return Origin(partition.topic, partition.number, self._task.record.offset)

    @property
    def key(self) -> bytes | None:
        """The record's key."""
        return self._task.record.key

    @property
    def headers(self) -> Headers:
        """The record's headers, as pairs, in order; a name may come twice."""
        return self._task.record.headers

    @property
    def log(self) -> structlog.stdlib.BoundLogger:
        """A logger bound to this task."""
        if self._log is None:
            logger = structlog.get_logger("handler")
            self._log = logger.bind(**self.origin._asdict(), attempt=self.attempt)
        return self._log

    @property
    def remaining(self) -> float | None:
        """Seconds until the request's deadline, or None if it has none."""
        return None if self._deadline is None else max(0.0, self._deadline - time.time())

    @property
    def upcoming(self) -> tuple[Request, ...]:
        """The requests that are likely to come next (``WORKER_PEEK`` of them at most), to preload what they need."""
        return tuple(_readable(self._task.upcoming))

    @property
    def transaction(self) -> Any:
        """What ``WORKER_OFFSET_STORE`` gives to write results with; None without such a store."""
        return self._transaction


def _readable(records: Iterable[Record]) -> Iterator[Request]:
    """The requests in these records; what is none is left out, as it will not reach the handler either."""
    for record in records:
        with contextlib.suppress(MalformedError):
            yield decode_request(record.value)
