"""What a handler gets with ``WORKER_BATCH_SIZE`` above 1: several requests at once, settled one by one."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import structlog

from worker.core.model import Failure, Outcome, Verdict
from worker.errors import Retry
from worker.handlers.context import Cancelled, Context
from worker.handlers.judging import as_bytes, judge
from worker.handlers.runner import leave_fork, open_request

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Sequence

    from worker.codec import Request
    from worker.core.lane import Lane
    from worker.core.model import Task
    from worker.handlers.context import Reason
    from worker.handlers.loader import Handler

NOT_SETTLED = "the handler returned and had neither acknowledged nor refused it"


class BatchTask(Context):
    """One request of a batch, with all that ``context`` tells of a single one."""

    __slots__ = ("request",)

    def __init__(self, task: Task, request: Request, deadline: float | None, cancelled: Cancelled) -> None:
        super().__init__(task, deadline)
        self.request = request
        self.cancelled = cancelled  # the whole batch's

    @property
    def sequence(self) -> int:
        """The request's sequence."""
        return self.request.sequence

    @property
    def payload(self) -> str:
        """The request's payload."""
        return self.request.payload


class Batch:
    """The tasks of a batch, to iterate over, and how to settle them. Any thread of the handler may settle tasks."""

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

    def ack(self, task: BatchTask, result: str | bytes | None = None) -> None:
        """Settle a task with its result while the handler goes on. A task that is settled already raises ValueError."""
        outcome = self._finish(task)
        try:
            outcome.result = as_bytes(result)
        except Exception as error:  # noqa: BLE001 - a result of a wrong type is this task's failure alone
            judge(outcome, error)
        self._post(outcome)

    def nack(self, task: BatchTask, reason: str = "refused by the handler") -> None:
        """Call a task's attempt failed. A task that is settled already raises ValueError."""
        outcome = self._finish(task)
        judge(outcome, Retry(str(reason)))
        outcome.failure = Failure("Nack", str(reason))
        self._post(outcome)

    def _finish(self, task: BatchTask) -> Outcome:
        if self._open.pop(task, task) is not None:  # one atomic step: two threads cannot both settle it
            raise ValueError(f"{task.origin} is settled already, or is not of this batch")
        return self._outcome(task)

    def _outcome(self, task: BatchTask) -> Outcome:
        """The attempt of a task has taken the time since the one before was settled."""
        started_ns, started, cpu = self._clock
        now_ns, now, now_cpu = self._clock = (time.time_ns(), time.perf_counter(), time.thread_time())
        return Outcome(
            task._task,  # noqa: SLF001 - it is ours
            Verdict.OK,
            sequence=task.request.sequence,
            started_ns=started_ns,
            finished_ns=now_ns,
            run_seconds=now - started,
            cpu_seconds=max(0.0, now_cpu - cpu),
        )

    def close(self, error: BaseException | None, reason: Reason | None) -> None:
        """The handler has ended: what it has not settled is to be done again, in order."""
        for task in self._tasks:
            if self._open.pop(task, task) is not None:
                continue
            outcome = self._outcome(task)
            if reason in ("revoked", "drain"):
                outcome.verdict, outcome.failure = Verdict.DROPPED, Failure("Cancelled", reason)
            elif error is not None:
                judge(outcome, error)
            else:
                outcome.verdict, outcome.failure = Verdict.FAILED, Failure("NotSettled", NOT_SETTLED)
            self._post(outcome)


class BatchContext:
    """Given to the handler beside its batch; valid until the handler returns."""

    __slots__ = ("_tasks", "cancelled", "log", "transaction")

    def __init__(self, tasks: Sequence[BatchTask], cancelled: Cancelled) -> None:
        self._tasks = tasks
        self.cancelled = cancelled
        self.log = structlog.get_logger("handler")
        self.transaction = None

    @property
    def remaining(self) -> float | None:
        """Seconds until the first deadline of the batch, or None if none has one."""
        return min([task.remaining for task in self._tasks if task.remaining is not None], default=None)


class BatchRunner:
    """Calls a handler of batches. Threads as for ``Runner``; ``post`` takes outcomes as they come."""

    def __init__(
        self, handler: Handler, kwargs: dict[str, Any], max_attempts: int, post: Callable[[Outcome], None]
    ) -> None:
        self._handler = handler
        self._kwargs = kwargs
        self._max_attempts = max_attempts
        self._post = post
        self._current: tuple[Sequence[BatchTask], Cancelled, float] | None = None
        self._forked = False
        os.register_at_fork(after_in_child=self._note_fork)

    def _note_fork(self) -> None:
        self._forked = True

    @property
    def running(self) -> tuple[Task, float] | None:
        """The first task of the running batch and for how many seconds that has run, or None."""
        current = self._current
        if current is None:
            return None
        return current[0][0]._task, time.perf_counter() - current[2]  # noqa: SLF001 - it is ours

    def cancel(self, reason: Reason, lanes: Container[Lane]) -> Task | None:
        """Ask the running batch to stop, if one of its tasks is of these lanes; returns that task then."""
        current = self._current
        for one in current[0] if current else ():
            task = one._task  # noqa: SLF001 - it is ours
            if current is not None and task.lane in lanes:
                current[1].set(reason)
                return task
        return None

    def expire(self) -> None:
        """A batch is not stopped by the deadline of one of its tasks."""

    def run(self, tasks: Sequence[Task]) -> None:
        """One attempt of a batch."""
        cancelled = Cancelled()
        members = []
        for task in tasks:
            opened = open_request(task, self._max_attempts)
            if isinstance(opened, Outcome):
                self._post(opened)
            else:
                task.attempt += 1
                members.append(BatchTask(task, *opened, cancelled))
        if members:
            self._call(members, cancelled)

    def _call(self, members: Sequence[BatchTask], cancelled: Cancelled) -> None:
        batch, raised = Batch(members, self._post), None
        self._current = (members, cancelled, time.perf_counter())
        try:
            self._handler(batch, BatchContext(members, cancelled), **self._kwargs)
        except BaseException as error:  # noqa: BLE001 - sys.exit() and the like are failed attempts too
            raised = error
        if self._forked:
            leave_fork(Outcome(members[0]._task, Verdict.OK if raised is None else Verdict.FAILED))  # noqa: SLF001
        self._current = None
        batch.close(raised, cancelled.reason)
