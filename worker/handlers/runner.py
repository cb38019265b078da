"""Runs one attempt of one task and turns whatever happens into an Outcome. Never raises."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from worker.codec import MalformedError, Request, decode_request
from worker.core.expiry import DeadlineError, deadline_of
from worker.core.model import OK, Failure, Outcome, Task, Verdict
from worker.handlers.context import Context
from worker.handlers.judging import as_bytes, judge

if TYPE_CHECKING:
    from collections.abc import Container

    from worker.core.lane import Lane
    from worker.handlers.context import Reason
    from worker.handlers.loader import Handler


READING_SECONDS = 0.0001  # between two readings of the thread's CPU time, at least


class Runner:
    """Calls the handler. ``begin`` and ``run`` belong to the service thread, the rest to the poll thread."""

    def __init__(self, handler: Handler, kwargs: dict[str, Any], max_attempts: int) -> None:
        self._handler = handler
        self._kwargs = kwargs
        self._max_attempts = max_attempts
        self._current: tuple[Task, Context, float] | None = None
        self._forked = False
        self._cpu = self._read_at = 0.0  # CPU time of the service thread, and when it was read
        os.register_at_fork(after_in_child=self._note_fork)

    def _note_fork(self) -> None:
        self._forked = True

    @property
    def running(self) -> tuple[Task, float] | None:
        """The running task and for how many seconds it has run, or None."""
        current = self._current
        return None if current is None else (current[0], time.perf_counter() - current[2])

    def cancel(self, reason: Reason, lanes: Container[Lane]) -> Task | None:
        """Ask the running task to stop, if it is of one of these lanes; returns it then."""
        current = self._current
        if current is None or current[0].lane not in lanes:
            return None
        current[1].cancelled.set(reason)
        return current[0]

    def expire(self) -> None:
        """Ask the running task to stop if its deadline has passed."""
        current = self._current
        if current is not None and current[1].remaining == 0:
            current[1].cancelled.set("deadline")

    def begin(self) -> None:
        """The service thread is about to run tasks one after another."""
        self._cpu, self._read_at = time.thread_time(), time.perf_counter()

    def run(self, task: Task) -> Outcome:
        """One attempt."""
        opened = open_request(task, self._max_attempts)
        if isinstance(opened, Outcome):
            return opened
        request, deadline = opened
        context = self._prepare(task, deadline)
        if isinstance(context, Outcome):
            return context
        task.attempt += 1
        outcome = Outcome(task, OK, request.sequence, time.time_ns())
        started = time.perf_counter()
        self._current = (task, context, started)
        try:
            outcome.result = as_bytes(self._handler(request, context, **self._kwargs))
        except BaseException as error:  # noqa: BLE001 - sys.exit() and the like are failed attempts too
            judge(outcome, error)
        outcome.run_seconds = time.perf_counter() - started
        outcome.finished_ns = outcome.started_ns + int(outcome.run_seconds * 1e9)
        outcome.cpu_seconds = self._cpu_seconds(started, outcome.run_seconds)
        if self._forked:
            leave_fork(outcome)
        self._current = None
        if context.cancelled.reason is not None or deadline is not None:
            mark_cancelled(outcome, context)
        self._conclude(outcome, context)
        return outcome

    def _cpu_seconds(self, started: float, run_seconds: float) -> float:
        """Of the attempt that has ended. One that began and ended since the last reading counts as CPU time as a whole:
        a reading is a system call, and takes as long as the shortest of tasks.
        """
        ended = started + run_seconds
        if ended - self._read_at < READING_SECONDS:
            return run_seconds
        cpu, self._read_at = time.thread_time(), ended
        used, self._cpu = cpu - self._cpu, cpu
        return min(used, run_seconds)

    def _prepare(self, task: Task, deadline: float | None) -> Context | Outcome:  # what a store has to do before
        return Context(task, deadline)

    def _conclude(self, outcome: Outcome, context: Context) -> None:
        """What a store has to do afterwards."""


def leave_fork(outcome: Outcome) -> None:
    """The handler forked and its child came back here: it is no worker and must not go on as one."""
    os._exit(0 if outcome.verdict is Verdict.OK else 1)


def open_request(task: Task, max_attempts: int) -> tuple[Request, float | None] | Outcome:
    """The request and its deadline, or what there is to say instead of starting it."""
    record = task.record
    try:
        request = decode_request(record.value)
        deadline = deadline_of(record.headers) if record.headers else None
    except MalformedError as error:
        return Outcome(task, Verdict.REJECTED, failure=Failure("MalformedRequest", str(error)))
    except DeadlineError as error:
        return Outcome(task, Verdict.REJECTED, failure=Failure("MalformedDeadline", str(error)))
    if task.attempt >= max_attempts:
        text = f"{task.attempt} starts came to no good end; the last ended with its process, or was taken over from it"
        failure = Failure("ProcessDied", text)
        return Outcome(task, Verdict.REJECTED, sequence=request.sequence, failure=failure)
    if deadline is not None and deadline <= time.time():
        failure = Failure("Expired", "its deadline had passed before it could start")
        return Outcome(task, Verdict.EXPIRED, sequence=request.sequence, failure=failure)
    return request, deadline


def mark_cancelled(outcome: Outcome, context: Context) -> None:
    """What a task comes to that was asked to stop, or that failed after its deadline."""
    reason = context.cancelled.reason
    if reason in ("revoked", "drain"):
        outcome.verdict = Verdict.DROPPED
        outcome.failure = Failure("Cancelled", reason)
    elif outcome.verdict is Verdict.FAILED and context.remaining == 0:
        outcome.verdict = Verdict.EXPIRED
