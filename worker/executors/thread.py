"""Runs handlers on a thread of the worker process, one task or one batch after another."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from worker.core.dispatch import OVERLAP_SECONDS
from worker.core.model import OK, Outcome, Task, Verdict
from worker.executors.port import Expired, Running
from worker.executors.reporting import run_reporting
from worker.executors.reports import MailboxSink

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from worker.core.claim import Claim
    from worker.core.limits import Reason
    from worker.executors.mailbox import Mailbox
    from worker.handlers.attempt import AttemptRunner
    from worker.handlers.batch import BatchRunner

MAX_WAITING_BYTES = 16 * 1024 * 1024  # of results that the poll thread has not taken; above this, wait for it
ROOM_SECONDS = 0.005  # between two checks whether it has taken some
NOTIFY_SECONDS = 0.05  # a chunk that takes longer than expected wakes the poll thread before it ends


class _ThreadExecutor:
    """The common part of both executors: the queue of tasks, the thread, and the methods for the poll thread."""

    closed = False
    beside: Sequence[Running] = ()  # one thread runs one task
    child_bytes = 0

    def __init__(self, mailbox: Mailbox, on_stop: Callable[[], None] = lambda: None) -> None:
        self.stop = on_stop
        self._mailbox = mailbox
        self._tasks: deque[Task] = deque()
        self._wakeup: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._notified = self._ended = 0.0
        self._waiting_bytes = 0
        self._thread = threading.Thread(target=run_reporting, args=(self._live, mailbox), name="executor", daemon=True)

    def start(self) -> None:
        """See ``Executor``."""
        self._thread.start()

    def submit(self, tasks: Sequence[Task]) -> None:
        """See ``Executor``."""
        self._tasks.extend(tasks)
        self._wakeup.put(None)

    def withdraw(self, claims: Collection[Claim]) -> list[Task]:
        """See ``Executor``."""
        # Every pop is atomic, so a task is either withdrawn here or started there.
        waiting: list[Task] = []
        while (task := _take(self._tasks.pop)) is not None:
            waiting.append(task)
        waiting.reverse()
        self.submit([task for task in waiting if task.claim not in claims])
        return [task for task in waiting if task.claim in claims]

    # -- the thread

    def _live(self) -> None:
        while True:
            self._wakeup.get()
            self._serve()
            self._mailbox.notify()

    def _serve(self) -> None:
        """Run every queued task."""
        raise NotImplementedError

    def _may_start(self, task: Task) -> bool:
        group = task.group
        return not (self.closed or task.claim.leaving or (group is not None and group.blocked))

    def _post(self, outcome: Outcome) -> None:
        group = outcome.task.group
        if outcome.verdict is not OK and group is not None:
            group.blocked = True  # before the next task is considered, because none may overtake this one
        self._mailbox.post(outcome)
        self._waiting_bytes += len(outcome.result)
        if self._waiting_bytes >= MAX_WAITING_BYTES:
            self._wait_for_room()

    def _wait_for_room(self) -> None:
        """Limit the memory of results that the poll thread has not taken. It may already have taken them all."""
        self._mailbox.notify()
        while not self._mailbox.is_empty:
            time.sleep(ROOM_SECONDS)
        self._waiting_bytes = 0

    def _notify_now_and_then(self) -> None:
        """Wake the poll thread when many outcomes are ready, and before the last task of a chunk.

        So the next tasks are queued when that task ends.
        """
        now = time.monotonic()
        took, self._ended = now - self._ended, now
        if now - self._notified > NOTIFY_SECONDS or (len(self._tasks) == 1 and took >= OVERLAP_SECONDS):
            self._notified = now
            self._mailbox.notify()


class ThreadExecutor(_ThreadExecutor):
    """Runs single tasks. See ``Executor``."""

    def __init__(self, runner: AttemptRunner, mailbox: Mailbox, on_stop: Callable[[], None] = lambda: None) -> None:
        super().__init__(mailbox, on_stop)
        self._runner = runner
        runner.sink = MailboxSink(mailbox.post, mailbox.notify)

    @property
    def running(self) -> Running | None:
        """See ``Executor``."""
        current = self._runner.current
        return None if current is None else Running(*current, (current[0],))

    def cancel(self, reason: Reason, claims: Collection[Claim] | None = None) -> list[Task]:
        """See ``Executor``."""
        current = self._runner.current
        if current is None or (claims is not None and current[0].claim not in claims):
            return []
        self._runner.cancel(reason, current[0])
        return [current[0]]

    def cancel_task(self, task: Task, reason: Reason) -> bool:
        """See ``Executor``."""
        return self._runner.cancel(reason, task)

    def check(self) -> Sequence[Expired]:
        """See ``Executor``."""
        expired = self._runner.expire()
        return () if expired is None else [Expired(*expired)]

    def _serve(self) -> None:
        self._runner.begin()
        self._notified = self._ended = time.monotonic()
        while (task := _take(self._tasks.popleft)) is not None:
            if self._may_start(task):
                self._post(self._runner.run(task))
            else:
                self._mailbox.post(Outcome(task, Verdict.NOT_STARTED))
            self._notify_now_and_then()
        self._runner.end()


class BatchExecutor(_ThreadExecutor):
    """Runs all queued tasks as one batch. See ``Executor``.

    If the lease of one of its unsettled tasks ends, the whole batch is cancelled. The deadline of one task does not do
    that.
    """

    def __init__(
        self,
        make_runner: Callable[[Callable[[Outcome], None]], BatchRunner],
        mailbox: Mailbox,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(mailbox, on_stop)
        self._runner = make_runner(self._settled)

    @property
    def running(self) -> Running | None:
        """See ``Executor``."""
        current = self._runner.current
        return None if current is None else Running(*current, self._runner.open_tasks())

    def cancel(self, reason: Reason, claims: Collection[Claim] | None = None) -> list[Task]:
        """See ``Executor``."""
        running = self.running
        if running is None or not any(claims is None or task.claim in claims for task in running.tasks):
            return []
        self._runner.cancel(reason, running.task)
        return [running.task]

    def cancel_task(self, task: Task, reason: Reason) -> bool:
        """See ``Executor``."""
        return self._runner.cancel_one(reason, task)

    def check(self) -> Sequence[Expired]:
        """See ``Executor``."""
        first = self._runner.expire()
        return () if first is None else [Expired(first, "timeout")]

    def _settled(self, outcome: Outcome) -> None:
        """Post the outcome of one task of the running batch, so that it is answered while the others continue."""
        self._post(outcome)
        self._notify_now_and_then()

    def _serve(self) -> None:
        batch = []
        while (task := _take(self._tasks.popleft)) is not None:
            if self._may_start(task):
                batch.append(task)
            else:
                self._mailbox.post(Outcome(task, Verdict.NOT_STARTED))
        if batch:
            self._runner.run(batch)


def _take(pop: Callable[[], Task]) -> Task | None:
    try:
        return pop()
    except IndexError:
        return None
