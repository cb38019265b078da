"""Runs one attempt of a handler or of a batch handler, as a worker process would."""

from __future__ import annotations

import dataclasses
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from worker.codec import encode_request
from worker.core.expiry import HEADER
from worker.core.lease import Lease
from worker.core.model import Failure, Outcome, Partition, Record, Task, Verdict
from worker.handlers.attempt import AttemptRunner
from worker.handlers.batch import BatchRunner
from worker.handlers.context import Context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from worker.core.limits import Reason
    from worker.core.model import FollowUp, Headers
    from worker.handlers.batch import BatchTask
    from worker.handlers.context import Cancelled
    from worker.handlers.loader import Handler

    Cancel = Reason | tuple[Reason, float]

CHECK_SECONDS = 0.01  # between two checks of the deadline and the cancellation of a running attempt

OUTCOMES = {
    Verdict.OK: "OK",
    Verdict.FAILED: "FAILED",
    Verdict.REJECTED: "DEAD_LETTERED",
    Verdict.EXPIRED: "EXPIRED",
    Verdict.DROPPED: "CANCELLED",
    Verdict.CANCELLED: "CANCELLED",
}


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one attempt.

    ``outcome`` is one of:

    - ``OK``: the handler returned ``result``, as bytes.
    - ``FAILED``: the worker would try again, after ``retry_after`` seconds (None: the usual back-off).
    - ``DEAD_LETTERED``: the handler raised ``worker.Reject``, or returned something that cannot be a result.
    - ``EXPIRED``: the deadline passed before the attempt started, or before it failed.
    - ``CANCELLED``: the attempt failed after a drain or a revocation: the worker would not answer, the request runs
      again elsewhere, and this attempt does not count. Or the attempt was cancelled with ``requested``: the worker
      would answer CANCELLED, whatever the handler returns.

    ``error_type``, ``message`` and ``traceback`` are those of the answer's ``error``; empty after ``OK``. ``sent`` has
    the follow-up requests of ``context.send``, with ``topic``, ``key`` and ``payload``; only after ``OK``.
    ``cancelled`` is the reason why the handler was asked to stop, or None. ``progress`` has every fraction and message
    that the handler reported, and ``checkpoints`` every checkpoint, in order.
    """

    outcome: str
    result: bytes = b""
    error_type: str = ""
    message: str = ""
    traceback: str = ""
    retry_after: float | None = None
    cancelled: str | None = None
    sent: tuple[FollowUp, ...] = ()
    progress: tuple[tuple[float, str], ...] = ()
    checkpoints: tuple[bytes, ...] = ()


def run_handler(
    handler: Handler,
    payload: str,
    *,
    key: bytes | None = None,
    headers: Iterable[tuple[str, bytes | None]] = (),
    attempt: int = 1,
    deadline: float | None = None,
    cancel: Cancel | None = None,
    resume: bytes | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> Result:
    """Run one attempt of ``handler(request, context, **kwargs)`` without Kafka, as a worker process does.

    The handler runs on a thread. This function returns when the handler does, and raises none of its exceptions.
    ``deadline`` is in seconds since the epoch. ``cancel`` is a cancellation reason that is set from the start
    (``"drain"``), or a reason and the seconds until it is set (``("revoked", 0.5)``). ``resume`` is the checkpoint of
    an earlier attempt.
    """
    task = _task(0, payload, key, _headers(headers, deadline), attempt)
    task.resume = resume
    before, later = _split(cancel)
    runner = _AttemptRunner(handler, dict(kwargs or {}), attempt, before)
    reports = runner.sink = _Reports()
    outcomes: list[Outcome] = []
    _run(lambda: outcomes.append(runner.run(task)), later, runner.expire, lambda reason: runner.cancel(reason, task))
    result = _result(_settled(outcomes[0], runner.cancelled), runner.cancelled)
    return dataclasses.replace(result, progress=tuple(reports.all_progress), checkpoints=tuple(reports.checkpoints))


def run_batch(
    handler: Callable[..., object],
    payloads: Sequence[str],
    *,
    headers: Iterable[tuple[str, bytes | None]] = (),
    attempt: int = 1,
    deadline: float | None = None,
    cancel: Cancel | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> list[Result]:
    """Run one attempt of ``handler(batch, context, **kwargs)``. Return a result for each payload, in order.

    The arguments are those of ``run_handler``; headers, attempt and deadline apply to every request. A request that the
    handler neither acknowledged nor refused has ``FAILED``.
    """
    given = _headers(headers, deadline)
    tasks = [_task(place, payload, None, given, attempt) for place, payload in enumerate(payloads)]
    before, later = _split(cancel)
    outcomes: dict[int, Outcome] = {}
    runner = _BatchRunner(
        cast("Handler", handler),  # the return value of a batch handler is ignored
        dict(kwargs or {}),
        attempt,
        lambda outcome: outcomes.update({outcome.task.record.offset: _settled(outcome, runner.cancelled)}),
        before,
    )

    def stop(reason: Reason) -> None:
        for task in runner.open_tasks()[:1]:
            runner.cancel(reason, task)

    _run(lambda: runner.run(tasks), later, runner.expire, stop)
    return [_result(outcomes[place], runner.cancelled) for place in range(len(tasks))]


class _Reports:
    """Stores what the handler reports."""

    def __init__(self) -> None:
        self.all_progress: list[tuple[float, str]] = []
        self.checkpoints: list[bytes] = []

    def progress(self, _task: Task, fraction: float, message: str) -> None:
        self.all_progress.append((fraction, message))

    def checkpoint(self, _task: Task, data: bytes) -> None:
        self.checkpoints.append(data)


class _AttemptRunner(AttemptRunner):
    """Keeps the cancellation of its attempt, which may come before the handler starts."""

    def __init__(self, handler: Handler, kwargs: dict[str, Any], max_attempts: int, reason: Reason | None) -> None:
        super().__init__(handler, kwargs, max_attempts)
        self.cancelled: Cancelled | None = None
        self._reason = reason

    def _prepare(self, task: Task, deadline: float | None) -> Context | Outcome:
        context = super()._prepare(task, deadline)
        if isinstance(context, Context):
            self.cancelled = context.cancelled
            if self._reason is not None:
                context.cancelled.set(self._reason)
        return context


class _BatchRunner(BatchRunner):
    """As ``_AttemptRunner``, for a batch."""

    def __init__(
        self,
        handler: Handler,
        kwargs: dict[str, Any],
        max_attempts: int,
        post: Callable[[Outcome], None],
        reason: Reason | None,
    ) -> None:
        super().__init__(handler, kwargs, max_attempts, post)
        self.cancelled: Cancelled | None = None
        self._reason = reason

    def _call(self, members: Sequence[BatchTask], cancelled: Cancelled) -> None:
        self.cancelled = cancelled
        if self._reason is not None:
            cancelled.set(self._reason)
        super()._call(members, cancelled)


def _task(offset: int, payload: str, key: bytes | None, headers: Headers, attempt: int) -> Task:
    partition = Partition("requests", 0)
    value = encode_request(offset + 1, payload)
    record = Record(partition, offset, key, value, headers, int(time.time() * 1000))
    return Task(record, Lease(partition), attempt - 1)  # the runner counts the attempt that it starts


def _headers(headers: Iterable[tuple[str, bytes | None]], deadline: float | None) -> Headers:
    limit = () if deadline is None else ((HEADER, f"{deadline:.6f}".encode()),)
    return (*headers, *limit)


def _split(cancel: Cancel | None) -> tuple[Reason | None, tuple[Reason, float] | None]:
    """Return the cancellation reason that is set from the start, and the one that is set later."""
    return (None, cancel) if isinstance(cancel, tuple) else (cancel, None)


def _run(
    attempt: Callable[[], object],
    later: tuple[Reason, float] | None,
    expire: Callable[[], object],
    stop: Callable[[Reason], object],
) -> None:
    """Run an attempt on a thread. Meanwhile check deadlines, as the main loop of a worker process does."""
    thread = threading.Thread(target=attempt, name="service", daemon=True)
    started = time.monotonic()
    thread.start()
    while thread.is_alive():
        thread.join(CHECK_SECONDS)
        expire()
        if later is not None and time.monotonic() - started >= later[1]:
            stop(later[0])


def _settled(outcome: Outcome, cancelled: Cancelled | None) -> Outcome:
    """Return what a worker process makes of this: after a cancel request, nothing that the handler did counts."""
    if cancelled is None or cancelled.reason != "requested":
        return outcome
    return Outcome(outcome.task, Verdict.CANCELLED, outcome.sequence, failure=Failure("Cancelled", "requested"))


def _result(outcome: Outcome, cancelled: Cancelled | None) -> Result:
    failure = outcome.failure or Failure("", "")
    return Result(
        OUTCOMES[outcome.verdict],
        outcome.result,
        failure.type,
        failure.message,
        failure.traceback,
        outcome.retry_after,
        None if cancelled is None else cancelled.reason,
        outcome.sent,
    )
