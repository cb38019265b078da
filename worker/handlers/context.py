"""The context that a handler gets with its request, and the event that cancels it."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from worker.codec import MalformedError
from worker.core.model import TOPIC, FollowUp
from worker.core.task_state import CHECKPOINT_LIMIT
from worker.errors import Cancelled as CancelledError
from worker.handlers.judging import encodable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from worker.codec import Request
    from worker.core.limits import Reason
    from worker.core.model import Headers
    from worker.core.task_state import Origin
    from worker.handlers.task_view import TaskView


class Reports(Protocol):
    """Receives the reports of a handler about its attempt, from any thread of the handler."""

    def progress(self, context: Context, fraction: float, message: str) -> None:
        """Report the progress of the attempt."""

    def checkpoint(self, context: Context, data: bytes) -> None:
        """Report the checkpoint from which the next attempt resumes."""


class Cancelled:
    """An event with a reason: set when the running task should stop as soon as it can.

    A handler may use it like a ``threading.Event``, from any of its threads. A real event is created only when a thread
    waits, because most tasks are short and never check.
    """

    __slots__ = ("_waiting", "reason")

    def __init__(self) -> None:
        self.reason: Reason | None = None
        self._waiting: list[threading.Event] = []  # one per waiting thread; creating a shared one would need a lock

    def is_set(self) -> bool:
        """Return whether the task should stop."""
        return self.reason is not None

    __bool__ = is_set

    def raise_if_set(self) -> None:
        """Raise ``worker.Cancelled`` if the task should stop. The attempt then ends without a result."""
        if self.reason is not None:
            raise CancelledError(self.reason)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the task should stop, at most ``timeout`` seconds. Return whether it should."""
        event = threading.Event()
        self._waiting.append(event)
        try:
            # Check only now that set() would find the event, so that a reason set in between is not missed.
            return self.is_set() or event.wait(timeout)
        finally:
            self._waiting.remove(event)

    def set(self, reason: Reason) -> None:
        """Cancel the task, from the poll thread. The first reason stays."""
        if self.reason is None:
            self.reason = reason
        for event in tuple(self._waiting):
            event.set()


class Context:
    """The context that a handler gets with its request. Valid until the handler returns."""

    __slots__ = ("_log", "_reports", "_sent", "_transaction", "_view", "cancelled")

    def __init__(
        self,
        view: TaskView,
        transaction: Any = None,
        reports: Reports | None = None,
        cancelled: Cancelled | None = None,
    ) -> None:
        self._view = view
        self._reports = reports
        self._transaction = transaction
        self._sent: list[FollowUp] | None = []
        self._log: structlog.stdlib.BoundLogger | None = None
        self.cancelled = Cancelled() if cancelled is None else cancelled

    @property
    def attempt(self) -> int:
        """The number of this attempt, counted from 1."""
        return self._view.attempt

    @property
    def origin(self) -> Origin:
        """The topic, partition and offset of the request. They identify it and are the same on every attempt."""
        return self._view.origin

    @property
    def key(self) -> bytes | None:
        """The key of the record."""
        return self._view.key

    @property
    def headers(self) -> Headers:
        """The headers of the record as pairs, in order. A name may appear twice."""
        return self._view.headers

    def send(self, payload: str, key: str | bytes | None = None, topic: str | None = None) -> None:
        """Send a follow-up request. It is produced with the answer if this attempt succeeds. Any thread may call it.

        Without ``topic`` it goes to the first request topic. It gets the sequence of this request. Raise TypeError or
        ValueError for invalid arguments, and RuntimeError after the end of the attempt.
        """
        follow_up = _follow_up(payload, key, topic)
        if self._sent is None:
            raise RuntimeError(f"context.send was called after the attempt at {self.origin} had ended")
        self._sent.append(follow_up)

    def take_sent(self) -> tuple[FollowUp, ...]:
        """Return the follow-up requests and accept no more. For the runner."""
        sent, self._sent = self._sent, None
        return tuple(sent) if sent else ()

    @property
    def log(self) -> structlog.stdlib.BoundLogger:
        """A logger with the fields of this task."""
        if self._log is None:
            logger = structlog.get_logger("handler")
            self._log = logger.bind(**self.origin._asdict(), attempt=self.attempt)
        return self._log

    @property
    def remaining(self) -> float | None:
        """The seconds until the request's deadline, or None if it has none."""
        deadline = self._view.deadline
        return None if deadline is None else max(0.0, deadline - time.time())

    @property
    def upcoming(self) -> tuple[Request, ...]:
        """The requests that will probably come next, at most ``WORKER_PEEK``, to let the handler preload their data."""
        return tuple(_readable(self._view.upcoming, self._view.decode))

    @property
    def transaction(self) -> Any:
        """The object that ``WORKER_OFFSET_STORE`` provides for writing results; None without a store."""
        return self._transaction

    @property
    def resume(self) -> bytes | None:
        """The last checkpoint of an earlier start of this request, or None."""
        return self._view.resume

    def progress(self, fraction: float, message: str = "") -> None:
        """Report the progress of the task, from 0 to 1, and what it is doing now.

        Call it as often as you like, from any thread: the last report counts. Raise ValueError for any other fraction.
        """
        if not 0 <= fraction <= 1:  # also true for NaN
            raise ValueError(f"progress({fraction!r}): the fraction must be a number from 0 to 1")
        if self._reports is not None:
            self._reports.progress(self, float(fraction), encodable(str(message)))

    def checkpoint(self, data: bytes) -> None:
        """Save ``data`` for the next start of this request, which gets it as ``resume``. Any thread may call it.

        Return at once. The last checkpoint counts. Raise TypeError if ``data`` is not bytes, and ValueError if it is
        longer than 1,000,000 bytes: save larger state elsewhere, and put its location into the checkpoint.
        """
        if not isinstance(data, bytes):
            raise TypeError(f"a checkpoint must be bytes, not {type(data).__name__}: encode it")
        if len(data) > CHECKPOINT_LIMIT:
            raise ValueError(
                f"a checkpoint may have {CHECKPOINT_LIMIT:,} bytes, this one has {len(data):,}: save the data "
                "elsewhere, and checkpoint where it is"
            )
        if self._reports is not None:
            self._reports.checkpoint(self, data)


def _follow_up(payload: str, key: str | bytes | None, topic: str | None) -> FollowUp:
    if not isinstance(payload, str):
        raise TypeError(f"payload must be a str, not {type(payload).__name__}: use json.dumps for data")
    if not isinstance(key, str | bytes | None):
        raise TypeError(f"key must be a str or bytes, not {type(key).__name__}")
    if topic is not None and not TOPIC.fullmatch(topic):
        raise ValueError(f"topic={topic!r} is not the name of a topic")
    payload.encode()  # refuse a lone surrogate here, where the handler sees the error
    return FollowUp(topic, key.encode() if isinstance(key, str) else key, payload)


def _readable(values: Iterable[bytes | None], decode: Callable[[bytes | None], Request]) -> Iterator[Request]:
    """Yield the requests in these values, without malformed ones, which do not reach the handler either."""
    for value in values:
        with contextlib.suppress(MalformedError):
            yield decode(value)
