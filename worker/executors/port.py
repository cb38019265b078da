"""The interface of executors, which run handlers, for the poll thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from worker.core.model import Outcome
from worker.errors import ExitCode, WorkerError
from worker.executors.reports import PendingReport

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from worker.core.claim import Claim
    from worker.core.limits import EndCause, Reason
    from worker.core.model import Task


REPORTED_SECONDS = 1.0  # a task that reports is long from then on, so that short ones that report move no partition


class Running(NamedTuple):
    """The running task, or the first one of a running batch, and the seconds since its start."""

    task: Task
    seconds: float
    tasks: Sequence[Task]  # the task, or the tasks of the batch that are not settled yet
    pid: int = 0  # of the child process that runs it; 0 if it runs in this process

    def is_long(self, long_after: float) -> bool:
        """Return whether it is a long task: others should not wait for it."""
        return self.seconds >= (min(long_after, REPORTED_SECONDS) if self.task.reported else long_after)


class Expired(NamedTuple):
    """A running task that the executor has cancelled at its deadline or its time limit."""

    task: Task
    reason: Reason


class ExecutorDiedError(WorkerError):
    """A bug has ended the executor."""

    exit_code = ExitCode.THREAD_DIED


class ExecutorFailed(NamedTuple):
    """An event: the executor cannot continue, and the process has to end with this error."""

    error: WorkerError


class ChildEnded(NamedTuple):
    """An event: a child process that ran tasks has ended. For ``cause`` see ``worker.core.limits``."""

    cause: EndCause


Event = Outcome | ExecutorFailed | ChildEnded | PendingReport  # the events that an executor posts


class Executor(Protocol):
    """Runs tasks in the order in which they were submitted. All methods are for the poll thread.

    The executor posts one ``Outcome`` to the mailbox for each submitted task that is not withdrawn. Before each start
    it checks whether it is closed, the task's lease is leaving, or its ordering group is blocked. Such a task comes
    back as ``NOT_STARTED``. When an attempt does not succeed, or may not have started, the executor blocks the group.
    """

    closed: bool  # set by the poll thread: no new task may start

    @property
    def child_bytes(self) -> int:
        """Return the memory of the child processes and everything they have started, in bytes; 0 without any."""

    def start(self) -> None:
        """Prepare to run tasks."""

    def stop(self) -> None:
        """Call the tear-down hook of the handler's module. The process ends normally, and no task runs."""

    def submit(self, tasks: Sequence[Task]) -> None:
        """Run these tasks after those submitted before."""

    def withdraw(self, claims: Collection[Claim]) -> list[Task]:
        """Take back the tasks under these claims that have not started. They get no outcome."""

    @property
    def running(self) -> Running | None:
        """Return the running task for which the next ones wait; of a batch, the first."""

    @property
    def beside(self) -> Sequence[Running]:
        """Return the tasks that run beside it: a long one and others. No task waits for them."""

    def cancel(self, reason: Reason, claims: Collection[Claim] | None = None) -> list[Task]:
        """Cancel the running tasks with one of these claims (None: any), and return them; of a batch, the first.

        Further calls change nothing: the first reason stays.
        """

    def cancel_task(self, task: Task, reason: Reason) -> bool:
        """Cancel only this task. Return False unless it is running; in a batch, also if it is already settled."""

    def check(self) -> Sequence[Expired]:
        """Return the running tasks that were cancelled at their deadline or time limit. Called on every turn.

        Of a batch, return the first task. A task may be returned again on later turns.
        """


def all_running(executor: Executor) -> list[Running]:
    """Return the running task and those beside it."""
    running = executor.running
    return [*executor.beside] if running is None else [*executor.beside, running]


def running_tasks(executor: Executor) -> list[Task]:
    """Return all tasks that run; of a batch, those that are not settled yet."""
    return [task for one in all_running(executor) for task in one.tasks]
