"""Stand-ins for the executor and its mailbox: tasks take time of the fake clock and no real time."""

from __future__ import annotations

import functools
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.codec import decode_request
from worker.core.dispatch import OVERLAP_SECONDS
from worker.core.model import Failure, FollowUp, Outcome, Task, Verdict
from worker.executors.mailbox import Mailbox
from worker.executors.port import ExecutorFailed, Expired, Running
from worker.executors.reports import MailboxSink
from worker.executors.thread import NOTIFY_SECONDS
from worker.handlers.attempt import open_request

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from worker.core.claim import Claim
    from worker.core.limits import Reason
    from worker.errors import WorkerError
    from worker.testing.clock import Clock

SWITCH_SECONDS = 0.0001  # until the executor notices submitted tasks


@dataclass(frozen=True)
class Work:
    """What one attempt does and returns. ``obeys``: seconds from its cancellation to its end; None ignores it."""

    seconds: float = 0.01
    verdict: Verdict = Verdict.OK
    result: bytes = b"done"
    retry_after: float | None = None
    obeys: float | None = 0.1
    traceback: str = ""
    error: str = "ScriptedError"
    sent: tuple[FollowUp, ...] = ()
    reports: tuple[tuple[float, float | bytes], ...] = ()  # seconds after the start, and a progress or a checkpoint


def failing(seconds: float = 0.01, **options: float) -> Work:
    """Return the work of an attempt that fails."""
    return Work(seconds, Verdict.FAILED, **options)  # type: ignore[arg-type]


class StandInMailbox(Mailbox):
    """Like ``worker.executors.mailbox.Mailbox``, but it waits on the fake clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._rung = False

    def notify(self) -> None:
        self._rung = True

    def wait(self, timeout: float) -> None:
        self._clock.wait(timeout, until=lambda: self._rung)
        self._rung = False


class StandInExecutor:
    """A stand-in for ``worker.executors.thread`` and its runner. ``script`` tells what a task does."""

    beside: Sequence[Running] = ()  # it runs one task

    def __init__(
        self, clock: Clock, mailbox: StandInMailbox, script: Callable[[Task], Work], max_attempts: int
    ) -> None:
        self.closed = self.stopped = False
        self.child_bytes = 0
        self.started: list[tuple[float, Task, int]] = []  # time, task and number of the attempt
        self.resumes: list[bytes | None] = []  # the checkpoint that each start resumes from
        self.cancelled: list[tuple[float, Reason]] = []
        self._clock, self._mailbox, self._script = clock, mailbox, script
        self._max_attempts = max_attempts
        self._sink = MailboxSink(mailbox.post, mailbox.notify)
        self._tasks: deque[Task] = deque()
        self._current: tuple[Task, Work, float] | None = None
        self._reason: Reason | None = None
        self._rung_at = 0.0

    # -- the part of the thread

    def start(self) -> None:
        """Do nothing: there is no thread to start."""

    def submit(self, tasks: Sequence[Task]) -> None:
        self._tasks.extend(tasks)
        self._clock.after(SWITCH_SECONDS, self._serve)

    def stop(self) -> None:
        self.stopped = True

    def withdraw(self, claims: Collection[Claim]) -> list[Task]:
        withdrawn = [task for task in self._tasks if task.claim in claims]
        self._tasks = deque(task for task in self._tasks if task.claim not in claims)
        return withdrawn

    def fail(self, error: WorkerError) -> None:
        """Report that the executor has died."""
        self._mailbox.post(ExecutorFailed(error))

    def kill(self) -> None:
        """Drop all tasks: the running one does not end, and the waiting ones do not start."""
        self._tasks.clear()
        self._current = None

    def _serve(self) -> None:
        while self._tasks and self._current is None:
            task = self._tasks.popleft()
            if self.closed or task.claim.leaving or (task.group is not None and task.group.blocked):
                self._mailbox.post(Outcome(task, Verdict.NOT_STARTED))
            else:
                self._start(task)
        if self._current is None:
            self._notify()

    def _start(self, task: Task) -> None:
        opened = open_request(task, self._max_attempts)
        if isinstance(opened, Outcome):
            _block(task)
            self._mailbox.post(opened)
            return
        task.attempt += 1
        self.resumes.append(task.resume)
        self.started.append((self._clock(), task, task.attempt))
        self._current, self._reason = (task, self._script(task), self._clock()), None
        for at, what in self._current[1].reports:
            self._clock.after(at, functools.partial(self._reported, self._current, what))
        self._finish_after(self._current[1].seconds)

    def _reported(self, current: object, what: float | bytes) -> None:
        if self._current is None or self._current is not current:
            return
        if isinstance(what, bytes):
            self._sink.checkpoint(self._current[0], what)
        else:
            self._sink.progress(self._current[0], what, f"at {what}")

    def _finish_after(self, seconds: float) -> None:
        current = self._current
        self._clock.after(seconds, lambda: self._finish() if self._current is current else None)

    def _finish(self) -> None:
        assert self._current is not None
        (task, work, started), self._current = self._current, None
        outcome = Outcome(task, work.verdict, result=work.result, retry_after=work.retry_after)
        outcome.sequence = decode_request(task.record.value).sequence
        outcome.started_ns, outcome.finished_ns = int(started * 1e9), int(self._clock() * 1e9)
        outcome.run_seconds = self._clock() - started
        outcome.sent = work.sent
        if work.verdict is not Verdict.OK:
            outcome.failure = Failure(work.error, "as scripted", work.traceback)
        if self._reason is not None and work.obeys is not None:
            outcome.verdict, outcome.failure = Verdict.DROPPED, Failure("Cancelled", self._reason)
        if outcome.verdict is not Verdict.OK:
            _block(task)
        self._mailbox.post(outcome)
        last = len(self._tasks) == 1 and outcome.run_seconds >= OVERLAP_SECONDS
        if last or self._clock() - self._rung_at > NOTIFY_SECONDS:
            self._notify()
        self._serve()

    def _notify(self) -> None:
        self._rung_at = self._clock()
        self._mailbox.notify()

    # -- the part of the runner

    @property
    def running(self) -> Running | None:
        return (
            None
            if self._current is None
            else Running(self._current[0], self._clock() - self._current[2], self._current[:1])
        )

    def check(self) -> Sequence[Expired]:
        """Return nothing: no task has a deadline here."""
        return ()

    def cancel(self, reason: Reason, claims: Collection[Claim] | None = None) -> list[Task]:
        if self._current is None or (claims is not None and self._current[0].claim not in claims):
            return []
        if self._reason is not None:
            return [self._current[0]]
        self.cancelled.append((self._clock(), reason))
        self._reason = reason
        if self._current[1].obeys is not None:
            self._finish_after(self._current[1].obeys)
        return [self._current[0]]

    def cancel_task(self, task: Task, reason: Reason) -> bool:
        if self._current is None or self._current[0] is not task:
            return False
        self.cancel(reason)
        return True


def _block(task: Task) -> None:
    if task.group is not None:
        task.group.blocked = True
