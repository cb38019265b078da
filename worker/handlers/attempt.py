"""Runs one attempt of one task and turns the result or the exception into an Outcome."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

from worker.codec import MalformedError, Request, decode_request
from worker.core.expiry import DeadlineError, deadline_of
from worker.core.model import OK, Failure, Outcome, Task, Verdict
from worker.core.timelimit import TimeLimitError, limit_of, timeout_of
from worker.handlers.context import Cancelled, Context
from worker.handlers.forks import FORKS, leave_fork
from worker.handlers.judging import as_bytes, encodable, judge
from worker.handlers.task_view import view_of
from worker.headers import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.core.limits import Reason
    from worker.core.model import Headers
    from worker.formats import DecodeRequest
    from worker.handlers.loader import Handler


class HeadersError(ValueError):
    """The headers cannot be read."""


# The names in answers and dead letters of what is wrong with a malformed request.
_MALFORMED: dict[type[Exception], str] = {
    MalformedError: "MalformedRequest",
    HeadersError: "MalformedHeaders",
    DeadlineError: "MalformedDeadline",
    TimeLimitError: "MalformedTimeout",
}


class Sink(Protocol):
    """Passes the reports of handlers on to the poll thread."""

    def progress(self, task: Task, fraction: float, message: str) -> None:
        """Report the progress of the running attempt of this task."""

    def checkpoint(self, task: Task, data: bytes) -> None:
        """Report the checkpoint from which the next attempt of this task resumes."""


class Starts(Protocol):
    """Records which task is running, in a place that survives a crash of this process."""

    def started(self, task: Task, at_ns: int) -> None:
        """Record that the handler is called next. ``at_ns`` is in nanoseconds since the epoch."""

    def idle(self) -> None:
        """Record that no task is running and none follows at once."""


READING_SECONDS = 0.0001  # at least, between two readings of the thread's CPU time


class AttemptRunner:
    """Calls the handler. ``begin`` and ``run`` are for the thread of the executor, the rest for the poll thread."""

    def __init__(
        self,
        handler: Handler,
        kwargs: dict[str, Any],
        max_attempts: int,
        timeout: float = 0.0,
        decode: DecodeRequest = decode_request,
    ) -> None:
        """``timeout`` is the time limit of a task in seconds, 0 for none. ``decode`` reads the requests."""
        self.sink: Sink | None = None  # receives the handler's reports
        self.starts: Starts | None = None
        self._new_cancelled: Callable[[], Cancelled] = Cancelled  # makes the event that cancels an attempt
        self._timeout = timeout
        self._decode = decode
        self._handler = handler
        self._kwargs = kwargs
        self._max_attempts = max_attempts
        self._current: tuple[Task, Context, float] | None = None
        self._cpu = self._read_at = 0.0  # CPU time of the executor's thread, and when it was read

    @property
    def current(self) -> tuple[Task, float] | None:
        """Return the running task and its run time in seconds."""
        current = self._current
        return None if current is None else (current[0], time.perf_counter() - current[2])

    def cancel(self, reason: Reason, task: Task) -> bool:
        """Cancel this task if it is still running. Return whether it is."""
        current = self._current
        if current is None or current[0] is not task:
            return False
        current[1].cancelled.set(reason)
        return True

    def expire(self) -> tuple[Task, Reason] | None:
        """Cancel the running task if its deadline or time limit has passed. Return it with the first reason if so."""
        current = self._current
        if current is None:
            return None
        task, context, started = current
        if context.remaining == 0:
            context.cancelled.set("deadline")
        elif time.perf_counter() - started >= limit_of(task.record.headers, self._timeout):
            context.cancelled.set("timeout")
        else:
            return None
        return task, context.cancelled.reason or "timeout"

    def begin(self) -> None:
        """Prepare to run tasks one after another."""
        self._cpu, self._read_at = time.thread_time(), time.perf_counter()

    def end(self) -> None:
        """Record that no task is left for now."""
        if self.starts is not None:
            self.starts.idle()

    def run(self, task: Task) -> Outcome:
        """Run one attempt. An exception of the handler becomes part of the outcome."""
        opened = open_request(task, self._max_attempts, self._decode)
        if isinstance(opened, Outcome):
            refused = self._not_started(opened)
            refused.sequence = refused.sequence or opened.sequence
            return refused
        request, deadline = opened
        context = self._prepare(task, deadline)
        if isinstance(context, Outcome):
            context.sequence = context.sequence or request.sequence
            return context
        outcome = Outcome(task, OK, request.sequence, time.time_ns())
        forks, started = FORKS.value, time.perf_counter()
        self._current = (task, context, started)
        if self.starts is not None:
            self.starts.started(task, outcome.started_ns)
        try:
            outcome.result = as_bytes(self._handler(request, context, **self._kwargs))
        except BaseException as error:  # noqa: BLE001 - sys.exit() and the like are failed attempts too
            judge(outcome, error)
        outcome.run_seconds = time.perf_counter() - started
        outcome.finished_ns = outcome.started_ns + int(outcome.run_seconds * 1e9)
        outcome.cpu_seconds = self._cpu_seconds(started, outcome.run_seconds)
        if FORKS.value != forks:
            leave_fork(good=outcome.verdict is OK)
        self._current = None
        sent = context.take_sent()
        if sent and outcome.verdict is OK:
            outcome.sent = sent
        if outcome.verdict is Verdict.FAILED or outcome.verdict is Verdict.REJECTED:
            mark_cancelled(outcome, context.cancelled.reason, expired=context.remaining == 0)
        self._conclude(outcome, context)
        return outcome

    def _cpu_seconds(self, started: float, run_seconds: float) -> float:
        """Return the CPU time of the attempt that has ended.

        Reading it is a system call that takes as long as the shortest task. So an attempt that began and ended since
        the last reading counts entirely as CPU time.
        """
        ended = started + run_seconds
        if ended - self._read_at < READING_SECONDS:
            return run_seconds
        cpu, self._read_at = time.thread_time(), ended
        used, self._cpu = cpu - self._cpu, cpu
        return min(used, run_seconds)

    def _not_started(self, outcome: Outcome) -> Outcome:
        """Return the outcome of a task that must not start."""
        return outcome

    def _prepare(self, task: Task, deadline: float | None) -> Context | Outcome:
        """Count the attempt and create its context, or return the outcome of a task that does not start."""
        task.attempt += 1
        return Context(view_of(task, deadline, self._decode), None, self, self._new_cancelled())

    # -- reports of the handler, from any of its threads; reports of an attempt that has ended are ignored

    def progress(self, context: Context, fraction: float, message: str) -> None:
        """See ``Reports``."""
        current = self._current
        if self.sink is not None and current is not None and current[1] is context:
            self.sink.progress(current[0], fraction, message)

    def checkpoint(self, context: Context, data: bytes) -> None:
        """See ``Reports``."""
        current = self._current
        if self.sink is not None and current is not None and current[1] is context:
            self.sink.checkpoint(current[0], data)

    def _conclude(self, outcome: Outcome, context: Context) -> None:
        """Do what an offset store needs after the attempt."""


def open_request(
    task: Task, max_attempts: int, decode: DecodeRequest = decode_request
) -> tuple[Request, float | None] | Outcome:
    """Return the request and its deadline, or the outcome of a task that must not start."""
    try:
        request = decode(task.record.value)
        deadline = _deadline(task.record.headers) if task.record.headers else None
    except tuple(_MALFORMED) as error:
        # The message may quote the request, and JSON may contain characters that an answer cannot.
        failure = Failure(_MALFORMED[type(error)], encodable(str(error)))
        return Outcome(task, Verdict.REJECTED, failure=failure)
    if task.attempt >= max_attempts:
        text = f"all {task.attempt} attempts are used up: in the last one the process crashed or lost the partition"
        return Outcome(task, Verdict.REJECTED, sequence=request.sequence, failure=Failure("ProcessDied", text))
    if deadline is not None and deadline <= time.time():
        failure = Failure("Expired", "its deadline had passed before it could start")
        return Outcome(task, Verdict.EXPIRED, sequence=request.sequence, failure=failure)
    return request, deadline


def _deadline(headers: Headers) -> float | None:
    """Return the deadline. Raise for headers that cannot be read.

    A time limit is only checked here. The code that enforces it reads it again.
    """
    if any(name == UNREADABLE for name, _ in headers):
        raise HeadersError("the name of a header is not UTF-8")
    timeout_of(headers)
    return deadline_of(headers)


def mark_cancelled(outcome: Outcome, reason: Reason | None, *, expired: bool) -> None:
    """Set the verdict of a failed attempt that was cancelled or ended after its deadline.

    A rejected request stays rejected, unless its cancellation was requested.
    """
    if reason == "requested":
        outcome.verdict = Verdict.CANCELLED
        outcome.failure = Failure("Cancelled", reason)
    elif outcome.verdict is Verdict.REJECTED:
        return
    elif reason in ("revoked", "drain"):
        outcome.verdict = Verdict.DROPPED
        outcome.failure = Failure("Cancelled", reason)
    elif reason == "timeout" and outcome.failure is not None:
        kind, message, traceback = outcome.failure
        outcome.failure = Failure("TimeLimitExceeded", f"stopped at its time limit: {kind}: {message}", traceback)
    elif expired:
        outcome.verdict = Verdict.EXPIRED
