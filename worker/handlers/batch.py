"""Handlers of batches (``WORKER_BATCH_SIZE`` above 1): several requests at once, settled one by one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import structlog

from worker.codec import decode_request
from worker.core.model import Failure, Outcome, Verdict
from worker.handlers.attempt import open_request
from worker.handlers.context import Cancelled, Context
from worker.handlers.forks import FORKS, leave_fork
from worker.handlers.judging import as_bytes, judge, message_of
from worker.handlers.task_view import view_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from worker.codec import Request
    from worker.core.limits import Reason
    from worker.core.model import Task
    from worker.formats import DecodeRequest
    from worker.handlers.loader import Handler, Result

NOT_SETTLED = "the handler returned and had neither acknowledged nor refused it"


class _NoReports:
    """Raises an error for progress and checkpoints, which a task of a batch cannot have."""

    def progress(self, context: Context, fraction: float, message: str) -> NoReturn:  # noqa: ARG002
        """See ``Reports``."""
        raise RuntimeError("a task of a batch cannot report progress: set WORKER_BATCH_SIZE=1")

    def checkpoint(self, context: Context, data: bytes) -> NoReturn:  # noqa: ARG002
        """See ``Reports``."""
        raise RuntimeError("a task of a batch cannot save checkpoints: set WORKER_BATCH_SIZE=1")


_NO_REPORTS = _NoReports()


class BatchTask(Context):
    """One request of a batch. It has the attributes of ``context``, except progress and checkpoints."""

    __slots__ = ("request", "task")

    def __init__(self, task: Task, request: Request, deadline: float | None) -> None:
        super().__init__(view_of(task, deadline), reports=_NO_REPORTS)  # ``cancelled``: of the task or the batch
        self.task = task
        self.request = request

    @property
    def sequence(self) -> int:
        """Return the request's sequence."""
        return self.request.sequence

    @property
    def payload(self) -> str:
        """Return the request's payload."""
        return self.request.payload


class Batch:
    """The tasks of a batch. Iterate over it, and settle each task, from any thread of the handler."""

    def __init__(self, tasks: Sequence[BatchTask], post: Callable[[Outcome], None]) -> None:
        self._tasks = tuple(tasks)
        self._open = dict.fromkeys(self._tasks)
        self._post = post
        self._clock = (time.time_ns(), time.perf_counter(), time.thread_time())

    def __iter__(self) -> Iterator[BatchTask]:
        return iter(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, at: int) -> BatchTask:
        return self._tasks[at]

    def ack(self, task: BatchTask, result: Result = None) -> None:
        """Settle a task with its result while the handler continues. Raise ValueError if it is already settled."""
        outcome, sent = self._finish(task), task.take_sent()
        try:
            outcome.result = as_bytes(result)
            outcome.sent = sent
        except Exception as error:  # noqa: BLE001 - a result of a wrong type is this task's failure alone
            judge(outcome, error)
        self._post(outcome)

    def nack(self, task: BatchTask, reason: str = "refused by the handler") -> None:
        """Mark a task's attempt as failed. Raise ValueError if it is already settled.

        During a drain, and after the partition was revoked, the attempt does not count.
        """
        outcome = self._finish(task)
        task.take_sent()
        cancelled = task.cancelled.reason
        if cancelled in ("revoked", "drain"):
            outcome.verdict, outcome.failure = Verdict.DROPPED, Failure("Cancelled", cancelled)
        else:
            outcome.verdict, outcome.failure = Verdict.FAILED, Failure("Nack", message_of(reason))
        self._post(outcome)

    def _finish(self, task: BatchTask) -> Outcome:
        if self._open.pop(task, task) is not None:  # atomic, so two threads cannot both settle it
            raise ValueError(f"{task.origin} is already acknowledged, or does not belong to this batch")
        return self._outcome(task)

    def _outcome(self, task: BatchTask) -> Outcome:
        """Return the outcome of a task, whose run time begins when the previous one was settled."""
        started_ns, started, cpu = self._clock
        now_ns, now, now_cpu = self._clock = (time.time_ns(), time.perf_counter(), time.thread_time())
        return Outcome(
            task.task,
            Verdict.OK,
            sequence=task.request.sequence,
            started_ns=started_ns,
            finished_ns=now_ns,
            run_seconds=now - started,
            cpu_seconds=max(0.0, now_cpu - cpu),
        )

    def is_open(self, task: BatchTask) -> bool:
        """Return whether this task is not settled yet."""
        return task in self._open

    def close(self, error: BaseException | None, reason: Reason | None) -> None:
        """Settle the rest after the handler has ended: unsettled tasks run again, in order."""
        for task in self._tasks:
            if self._open.pop(task, task) is not None:
                continue
            outcome = self._outcome(task)
            task.take_sent()
            if reason in ("revoked", "drain"):
                outcome.verdict, outcome.failure = Verdict.DROPPED, Failure("Cancelled", reason)
            elif error is not None:
                judge(outcome, error)
            else:
                outcome.verdict, outcome.failure = Verdict.FAILED, Failure("NotSettled", NOT_SETTLED)
            self._post(outcome)


class BatchContext:
    """The context of a batch handler, valid until the handler returns."""

    __slots__ = ("_tasks", "cancelled", "log", "transaction")

    def __init__(self, tasks: Sequence[BatchTask], cancelled: Cancelled) -> None:
        self._tasks = tasks
        self.cancelled = cancelled
        self.log = structlog.get_logger("handler")
        self.transaction = None

    @property
    def remaining(self) -> float | None:
        """Return the seconds until the first deadline of the batch, or None if there is none."""
        return min([task.remaining for task in self._tasks if task.remaining is not None], default=None)


class _Call(NamedTuple):
    """A running call of the handler, with its batch."""

    batch: Batch
    tasks: Sequence[Task]
    cancelled: Cancelled  # the whole batch
    started: float

    def cancel(self, reason: Reason) -> None:
        for one in (self, *self.batch):
            one.cancelled.set(reason)


class BatchRunner:
    """Calls a handler of batches. Threads as for ``AttemptRunner``. ``post`` receives outcomes as they arrive."""

    def __init__(
        self,
        handler: Handler,
        kwargs: dict[str, Any],
        max_attempts: int,
        post: Callable[[Outcome], None],
        timeout: float = 0.0,
        decode: DecodeRequest = decode_request,
    ) -> None:
        """``timeout`` is the time limit of a batch in seconds, 0 for none. ``decode`` reads the requests."""
        self._timeout = timeout
        self._decode = decode
        self._handler = handler
        self._kwargs = kwargs
        self._max_attempts = max_attempts
        self._post = post
        self._current: _Call | None = None

    @property
    def current(self) -> tuple[Task, float] | None:
        """Return the first task of the running batch and the run time in seconds."""
        current = self._current
        return None if current is None else (current.tasks[0], time.perf_counter() - current.started)

    def open_tasks(self) -> Sequence[Task]:
        """Return the tasks of the running batch that are not settled yet."""
        current = self._current
        return [member.task for member in current.batch if current.batch.is_open(member)] if current else ()

    def cancel(self, reason: Reason, task: Task) -> None:
        """Cancel the running batch, if this is one of its tasks."""
        current = self._current
        if current is not None and task in current.tasks:
            current.cancel(reason)

    def cancel_one(self, reason: Reason, task: Task) -> bool:
        """Cancel only this task of the running batch. Return whether it is there and not settled yet."""
        current = self._current
        member = next((one for one in current.batch if one.task is task), None) if current else None
        if current is None or member is None or not current.batch.is_open(member):
            return False
        member.cancelled.set(reason)
        return True

    def expire(self) -> Task | None:
        """Cancel the running batch at its time limit, and return its first task if so. Deadlines do not stop it."""
        current = self._current
        if current is None or not self._timeout or time.perf_counter() - current.started < self._timeout:
            return None
        current.cancel("timeout")
        return current.tasks[0]

    def run(self, tasks: Sequence[Task]) -> None:
        """Run one attempt of a batch."""
        members = []
        for task in tasks:
            opened = open_request(task, self._max_attempts, self._decode)
            if isinstance(opened, Outcome):
                self._post(opened)
            else:
                task.attempt += 1
                members.append(BatchTask(task, *opened))
        if members:
            self._call(members, Cancelled())

    def _call(self, members: Sequence[BatchTask], cancelled: Cancelled) -> None:
        batch, raised, forks = Batch(members, self._post), None, FORKS.value
        self._current = _Call(batch, tuple([member.task for member in members]), cancelled, time.perf_counter())
        try:
            self._handler(batch, BatchContext(members, cancelled), **self._kwargs)
        except BaseException as error:  # noqa: BLE001 - sys.exit() and the like are failed attempts too
            raised = error
        if FORKS.value != forks:
            leave_fork(good=raised is None)
        self._current = None
        batch.close(raised, cancelled.reason)
