"""The service thread: what is handed over is started in order, or comes back unstarted."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.unit.support import PARTITION, a_task
from worker.core.lane import Lane
from worker.core.model import Outcome, Partition, Verdict
from worker.core.queues import Strand
from worker.process import service as service_module
from worker.process.mailbox import Mailbox
from worker.process.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.core.model import Task

LONG = 10.0  # seconds; only a failure ever waits so long


class GatedRunner:
    """Runs tasks as told: each waits until its gate, if it has one, is opened."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.verdicts: dict[int, Verdict] = {}
        self.gates: dict[int, threading.Event] = {}
        self.begun: dict[int, threading.Event] = {}

    def gate(self, offset: int) -> None:
        self.gates[offset], self.begun[offset] = threading.Event(), threading.Event()

    def begin(self) -> None:
        pass

    def run(self, task: Task) -> Outcome:
        offset = task.record.offset
        self.started.append(offset)
        if offset in self.gates:
            self.begun[offset].set()
            assert self.gates[offset].wait(LONG)
        return Outcome(task, self.verdicts.get(offset, Verdict.OK))


class Desk:
    """The poll thread's side: a service that runs, and what has come back from it."""

    def __init__(self) -> None:
        self.runner, self.mailbox = GatedRunner(), Mailbox()
        self.service = Service(self.runner, self.mailbox)  # type: ignore[arg-type]
        self.lane, self.strand = Lane(PARTITION, 1), Strand()
        self.outcomes: list[Outcome] = []
        self.service.start()

    def hand_over(self, *offsets: int, lane: Lane | None = None) -> None:
        strand = None if lane else self.strand
        self.service.hand_over([a_task(offset=offset, lane=lane or self.lane, strand=strand) for offset in offsets])

    def collect(self, count: int) -> list[tuple[int, str]]:
        """The offsets and verdicts of the next so many outcomes."""
        while len(self.outcomes) < count:
            self.mailbox.wait(LONG)
            self.outcomes += self.mailbox.take()
        taken, self.outcomes = self.outcomes[:count], self.outcomes[count:]
        return [(outcome.task.record.offset, outcome.verdict.name) for outcome in taken]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_tasks_are_started_in_the_order_in_which_they_were_handed_over(desk: Desk) -> None:
    desk.hand_over(1, 2)
    desk.hand_over(3)
    assert desk.collect(3) == [(1, "OK"), (2, "OK"), (3, "OK")]
    assert desk.runner.started == [1, 2, 3]


def _stalled(outcome: Outcome) -> bool:
    return outcome.task.strand is not None and outcome.task.strand.stalled


@pytest.mark.parametrize("verdict", [Verdict.FAILED, Verdict.REJECTED, Verdict.DROPPED])
def test_nothing_of_a_strand_starts_after_an_attempt_that_was_not_good(desk: Desk, verdict: Verdict) -> None:
    """What was handed over behind it comes back, so that none overtakes it; other strands go on."""
    other = Strand()
    desk.runner.verdicts[1] = desk.runner.verdicts[9] = verdict
    rows = ((1, desk.strand), (7, other), (9, None), (10, None))
    desk.service.hand_over([a_task(offset=offset, lane=desk.lane, strand=strand) for offset, strand in rows])
    desk.hand_over(2, 3)
    expected = [(1, verdict.name), (7, "OK"), (9, verdict.name), (10, "OK"), (2, "NOT_STARTED"), (3, "NOT_STARTED")]
    assert desk.collect(6) == expected
    assert desk.strand.stalled
    assert not other.stalled


def test_the_strand_is_stalled_before_the_poll_thread_can_know(desk: Desk) -> None:
    """Else it could hand the next one over in between."""
    stalled = []
    desk.mailbox.post = lambda outcome: stalled.append(_stalled(outcome))  # type: ignore[method-assign]
    desk.runner.verdicts[1] = Verdict.FAILED
    desk.service._start(a_task(offset=1, lane=desk.lane, strand=desk.strand))
    assert stalled == [True]


def test_nothing_of_a_lane_starts_that_is_leaving(desk: Desk) -> None:
    """Whatever its ordering: the next owner does it."""
    other = Lane(Partition("requests", 4), 2)
    desk.lane.leave()
    desk.service.hand_over([a_task(offset=1, lane=desk.lane), a_task(offset=7, lane=other)])
    assert desk.collect(2) == [(1, "NOT_STARTED"), (7, "OK")]


def test_nothing_starts_after_it_was_closed(desk: Desk) -> None:
    """What runs finishes; what waits comes back, whenever it was handed over."""
    desk.runner.gate(1)
    desk.hand_over(1, 2)
    assert desk.runner.begun[1].wait(LONG)
    desk.service.closed = True
    desk.runner.gates[1].set()
    desk.hand_over(3)
    assert desk.collect(3) == [(1, "OK"), (2, "NOT_STARTED"), (3, "NOT_STARTED")]


def test_what_has_not_started_can_be_recalled(desk: Desk) -> None:
    """In order and of the lanes named only; of the others nothing is lost and nothing changes places."""
    other = Lane(Partition("requests", 4), 2)
    desk.runner.gate(1)
    desk.hand_over(1)
    assert desk.runner.begun[1].wait(LONG)
    desk.hand_over(2, 3)
    desk.hand_over(7, 8, lane=other)
    desk.hand_over(4)
    assert [task.record.offset for task in desk.service.recall([desk.lane])] == [2, 3, 4]
    desk.runner.gates[1].set()
    assert desk.collect(3) == [(1, "OK"), (7, "OK"), (8, "OK")]
    assert desk.service.recall([desk.lane, other]) == []


def test_the_end_of_a_long_task_rings_at_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The poll thread is woken although the service has more to do; for short ones only at the end of what it has."""
    monkeypatch.setattr(service_module, "RING_SECONDS", 0.0)
    desk.runner.gate(2)
    started = time.monotonic()
    desk.hand_over(1, 2)
    assert desk.collect(1) == [(1, "OK")]
    assert time.monotonic() - started < LONG, "nobody rang"
    desk.runner.gates[2].set()
    assert desk.collect(1) == [(2, "OK")]


def test_before_the_last_task_others_are_called_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the poll thread can hand them over while it runs: the service is never left without a task."""
    monkeypatch.setattr(service_module, "RING_SECONDS", LONG)
    monkeypatch.setattr(service_module, "OVERLAP_SECONDS", 0.0)
    desk.runner.gate(3)
    desk.hand_over(1, 2, 3)
    assert desk.collect(2) == [(1, "OK"), (2, "OK")]
    assert not desk.runner.gates[3].is_set()
    desk.runner.gates[3].set()
    assert desk.collect(1) == [(3, "OK")]


def test_short_tasks_ring_once_at_their_end(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waking the poll thread costs more than they do."""
    monkeypatch.setattr(service_module, "RING_SECONDS", LONG)
    rung = threading.Event()
    rings = count_calls(desk.mailbox, "ring", monkeypatch, rung)
    desk.hand_over(*range(100))
    assert rung.wait(LONG)
    assert len(desk.collect(100)) == 100
    assert len(rings) == 1


def count_calls(target: object, name: str, monkeypatch: pytest.MonkeyPatch, called: threading.Event) -> list[None]:
    calls: list[None] = []
    original: Callable[[], None] = getattr(target, name)

    def counted() -> None:
        calls.append(None)
        original()
        called.set()

    monkeypatch.setattr(target, name, counted)
    return calls


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_it_says_whether_it_lives(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that ended, which only a defect can do, is noticed."""
    assert desk.service.alive
    died = threading.Event()

    def die(_task: Task) -> Outcome:
        died.set()
        raise SystemExit

    monkeypatch.setattr(desk.runner, "run", die)
    desk.hand_over(1)
    assert died.wait(LONG)
    desk.service._thread.join(LONG)
    assert not desk.service.alive
