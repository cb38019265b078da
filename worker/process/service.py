"""The service thread: starts tasks one after another and posts what came of them."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from worker.core.model import Outcome, Task, Verdict
from worker.errors import ExitCode, WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from worker.core.lane import Lane
    from worker.handlers.runner import Runner
    from worker.process.mailbox import Mailbox

RING_SECONDS = 0.03  # a chunk that lasts longer than it was thought to wakes the poll thread before its end


class ServiceDiedError(WorkerError):
    """The service thread has ended, which only a defect can bring about."""

    exit_code = ExitCode.THREAD_DIED


class Service:
    """Runs tasks in the order they were handed over. It knows no Kafka.

    Before each start it looks whether the process is leaving (``closed``) or the task's lane is stalled; such tasks
    come back as NOT_STARTED.
    """

    def __init__(self, runner: Runner, mailbox: Mailbox) -> None:
        self.closed = False  # set by the poll thread: nothing more may start
        self._runner = runner
        self._mailbox = mailbox
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
        while (task := self._take(self._tasks.pop)) is not None:
            waiting.append(task)
        waiting.reverse()
        self.hand_over([task for task in waiting if task.lane not in lanes])
        return [task for task in waiting if task.lane in lanes]

    def _serve(self) -> None:
        while True:
            self._bell.get()
            self._runner.begin()
            rung = time.monotonic()
            while (task := self._take(self._tasks.popleft)) is not None:
                self._start(task)
                now = time.monotonic()
                if now - rung > RING_SECONDS:
                    rung = now
                    self._mailbox.ring()
            self._mailbox.ring()

    @staticmethod
    def _take(pop: Callable[[], Task]) -> Task | None:
        try:
            return pop()
        except IndexError:
            return None

    def _start(self, task: Task) -> None:
        if self.closed or task.lane.stalled:
            self._mailbox.post(Outcome(task, Verdict.NOT_STARTED))
            return
        outcome = self._runner.run(task)
        if outcome.verdict is not Verdict.OK:
            task.lane.stalled = True  # before the next task looks: none may overtake this one
        self._mailbox.post(outcome)
