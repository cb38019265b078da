"""What stands in for the service thread: tasks that take the clock's time, and none of the machine's."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.fakes.transactor import FakeTransactor, Twist
from worker.codec import decode_request
from worker.core.model import Failure, Outcome, Task, Verdict
from worker.core.starts import OVERLAP_SECONDS
from worker.handlers.runner import open_request
from worker.kafka.ports import Ended
from worker.process.service import RING_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from tests.fakes.broker import FakeBroker
    from tests.fakes.clock import Clock
    from worker.core.lane import Lane
    from worker.handlers.context import Reason
    from worker.kafka.ports import Transaction

SWITCH_SECONDS = 0.0001  # until the service thread has noticed what was handed over


@dataclass(frozen=True)
class Work:
    """What one attempt does: how long it runs, what comes of it. ``obeys``: seconds from a cancellation to its end."""

    seconds: float = 0.01
    verdict: Verdict = Verdict.OK
    result: bytes = b"done"
    retry_after: float | None = None
    obeys: float | None = 0.1
    traceback: str = ""


def failing(seconds: float = 0.01, **options: float) -> Work:
    """An attempt that fails."""
    return Work(seconds, Verdict.FAILED, **options)  # type: ignore[arg-type]


class StandInMailbox:
    """As ``worker.process.mailbox``; waiting is waiting for the clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._outcomes: deque[Outcome] = deque()
        self._rung = False

    def post(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)

    def ring(self) -> None:
        self._rung = True

    def wait(self, timeout: float) -> None:
        self._clock.wait(timeout, until=lambda: self._rung)
        self._rung = False

    def take(self) -> list[Outcome]:
        outcomes = list(self._outcomes)
        self._outcomes.clear()
        return outcomes


class StandInService:
    """As ``worker.process.service`` and the runner at once; what a task does is told by ``script``."""

    def __init__(
        self, clock: Clock, mailbox: StandInMailbox, script: Callable[[Task], Work], max_attempts: int
    ) -> None:
        self.closed = False
        self.alive = True
        self.started: list[tuple[float, Task, int]] = []  # when, what, and which attempt
        self.cancelled: list[tuple[float, Reason]] = []
        self._clock, self._mailbox, self._script = clock, mailbox, script
        self._max_attempts = max_attempts
        self._tasks: deque[Task] = deque()
        self._current: tuple[Task, Work, float] | None = None
        self._reason: Reason | None = None
        self._rung_at = 0.0

    # -- as the service

    def start(self) -> None:
        """Nothing to start."""

    def hand_over(self, tasks: Sequence[Task]) -> None:
        self._tasks.extend(tasks)
        self._clock.after(SWITCH_SECONDS, self._serve)

    def recall(self, lanes: Container[Lane]) -> list[Task]:
        recalled = [task for task in self._tasks if task.lane in lanes]
        self._tasks = deque(task for task in self._tasks if task.lane not in lanes)
        return recalled

    def kill(self) -> None:
        """What runs comes to no end, and what waits does not start."""
        self._tasks.clear()
        self._current = None

    def _serve(self) -> None:
        while self._tasks and self._current is None:
            task = self._tasks.popleft()
            if self.closed or task.lane.leaving or (task.strand is not None and task.strand.stalled):
                self._mailbox.post(Outcome(task, Verdict.NOT_STARTED))
            else:
                self._start(task)
        if self._current is None:
            self._ring()

    def _start(self, task: Task) -> None:
        opened = open_request(task, self._max_attempts)
        if isinstance(opened, Outcome):
            _stall(task)
            self._mailbox.post(opened)
            return
        task.attempt += 1
        self.started.append((self._clock(), task, task.attempt))
        self._current, self._reason = (task, self._script(task), self._clock()), None
        self._finish_after(self._current[1].seconds)

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
        if work.verdict is not Verdict.OK:
            outcome.failure = Failure("ScriptedError", "as scripted", work.traceback)
        if self._reason is not None:
            outcome.verdict, outcome.failure = Verdict.DROPPED, Failure("Cancelled", self._reason)
        if outcome.verdict is not Verdict.OK:
            _stall(task)
        self._mailbox.post(outcome)
        last = len(self._tasks) == 1 and outcome.run_seconds >= OVERLAP_SECONDS
        if last or self._clock() - self._rung_at > RING_SECONDS:
            self._ring()
        self._serve()

    def _ring(self) -> None:
        self._rung_at = self._clock()
        self._mailbox.ring()

    # -- as the runner

    @property
    def running(self) -> tuple[Task, float] | None:
        return None if self._current is None else (self._current[0], self._clock() - self._current[2])

    def expire(self) -> None:
        """No deadlines here."""

    def cancel(self, reason: Reason, lanes: Container[Lane]) -> Task | None:
        if self._current is None or self._current[0].lane not in lanes:
            return None
        self.cancelled.append((self._clock(), reason))
        self._reason = self._reason or reason
        if self._current[1].obeys is not None:
            self._finish_after(self._current[1].obeys)
        return self._current[0]


class StandInCourier:
    """As ``worker.process.courier``, with a transactor that takes its time at the broker."""

    def __init__(self, broker: FakeBroker, group: str) -> None:
        self.busy = False
        self.seconds = 0.005  # that transactions take from now on
        self._broker, self._transactor = broker, FakeTransactor(broker, group)
        self._ending: Ended | None = None

    def send(self, transaction: Transaction) -> None:
        self.busy, self._ending = True, None
        self._broker.ask(lambda: self._end(transaction), self.seconds)

    def _end(self, transaction: Transaction) -> None:
        failure = self._transactor._end(transaction, Twist())
        self._ending = Ended(failure is None, failure)

    def ended(self, timeout: float) -> Ended | None:
        if self.busy and self._broker.clock.wait(timeout, until=lambda: self._ending is not None):
            self.busy = False
            return self._ending
        return None

    def close(self) -> None:
        """Nothing to free."""


def _stall(task: Task) -> None:
    if task.strand is not None:
        task.strand.stalled = True
