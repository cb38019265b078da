"""The service thread: starts tasks one after another and posts what came of them."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, cast

from worker.core.model import OK, Outcome, Task, Verdict
from worker.core.starts import OVERLAP_SECONDS
from worker.errors import ExitCode, WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from worker.core.lane import Lane
    from worker.handlers.batch import BatchRunner
    from worker.handlers.runner import Runner
    from worker.process.mailbox import Mailbox

RING_SECONDS = 0.05  # a chunk that lasts longer than it was thought to wakes the poll thread before its end


class ServiceDiedError(WorkerError):
    """The service thread has ended, which only a defect can bring about."""

    exit_code = ExitCode.THREAD_DIED


class Service:
    """Runs tasks in the order they were handed over. It knows no Kafka.

    Before each start it looks whether the process or the partition is leaving, or the task's strand is stalled; such
    tasks come back as NOT_STARTED.
    """

    def __init__(self, runner: Runner, mailbox: Mailbox) -> None:
        self.closed = False  # set by the poll thread: nothing more may start
        self._runner = runner
        self._mailbox = mailbox
        self._rung = self._ended = 0.0
        self._tasks: deque[Task] = deque()
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="service", daemon=True)

    def start(self) -> None:
        """Start the thread. Poll thread."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread lives; it only ends by a defect."""
        return self._thread.is_alive()

    def hand_over(self, tasks: Sequence[Task]) -> None:
        """Queue tasks. Poll thread."""
        self._tasks.extend(tasks)
        self._bell.put(None)

    def recall(self, lanes: Container[Lane]) -> list[Task]:
        """Take back the tasks of these lanes that have not started. Poll thread."""
        # Every pop is atomic, so each task is either recalled here or started there.
        waiting: list[Task] = []
        while (task := _take(self._tasks.pop)) is not None:
            waiting.append(task)
        waiting.reverse()
        self.hand_over([task for task in waiting if task.lane not in lanes])
        return [task for task in waiting if task.lane in lanes]

    def _serve(self) -> None:
        take = self._tasks.popleft
        while True:
            self._bell.get()
            self._runner.begin()
            self._rung = self._ended = time.monotonic()
            while (task := _take(take)) is not None:
                self._start(task)
                self._ring_now_and_then()
            self._mailbox.ring()

    def _ring_now_and_then(self) -> None:
        """Ring when much has come together, and before the last task, so that others are here at its end."""
        now = time.monotonic()
        took, self._ended = now - self._ended, now
        if now - self._rung > RING_SECONDS or (len(self._tasks) == 1 and took >= OVERLAP_SECONDS):
            self._rung = now
            self._mailbox.ring()

    def _start(self, task: Task) -> None:
        if self._may_start(task):
            self._post(self._runner.run(task))
        else:
            self._mailbox.post(Outcome(task, Verdict.NOT_STARTED))

    def _may_start(self, task: Task) -> bool:
        strand = task.strand
        return not (self.closed or task.lane.leaving or (strand is not None and strand.stalled))

    def _post(self, outcome: Outcome) -> None:
        strand = outcome.task.strand
        if outcome.verdict is not OK and strand is not None:
            strand.stalled = True  # before the next task looks: none may overtake this one
        self._mailbox.post(outcome)


class BatchService(Service):
    """The same for a handler of batches: all tasks that are there are one batch."""

    def __init__(self, make: Callable[[Callable[[Outcome], None]], BatchRunner], mailbox: Mailbox) -> None:
        self.runner = make(self._settled)
        super().__init__(cast("Runner", self.runner), mailbox)

    def _settled(self, outcome: Outcome) -> None:
        """One task of the running batch has come to its end: it is answered while the others go on."""
        self._post(outcome)
        self._ring_now_and_then()

    def _serve(self) -> None:
        while True:
            self._bell.get()
            tasks = []
            while (task := _take(self._tasks.popleft)) is not None:
                if self._may_start(task):
                    tasks.append(task)
                else:
                    self._mailbox.post(Outcome(task, Verdict.NOT_STARTED))
            if tasks:
                self.runner.run(tasks)
            self._mailbox.ring()


def _take(pop: Callable[[], Task]) -> Task | None:
    try:
        return pop()
    except IndexError:
        return None
