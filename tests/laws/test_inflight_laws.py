"""The tasks in flight at a child process. Each leaves once and in order, and only started tasks are blamed."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from worker.core.inflight import InFlight, OutOfOrderError


class OneChild(RuleBasedStateMachine):
    """A parent and its children, one after another. A child announces a task, runs it and reports its end."""

    def __init__(self) -> None:
        super().__init__()
        self.flight: InFlight[int] = InFlight()
        self.input: list[tuple[int, int]] = []  # tasks that the child has not looked at yet: number and task
        self.waiting: list[int] = []  # withdrawn; sent again before new tasks
        self.started = 0  # what the child announced last
        self.open: int | None = None  # the task that has started and not ended
        self.skip = range(0)
        self.left: Counter[int] = Counter()
        self.starts: Counter[int] = Counter()
        self.blamed: list[int] = []
        self.order: list[int] = []  # of the starts
        self.made = 0

    @rule(count=st.integers(1, 5))
    def send(self, count: int) -> None:
        tasks = [*self.waiting, *range(self.made, self.made + count)]
        self.made += count
        self.waiting = []
        first = self.flight.send(tasks)
        self.input += list(enumerate(tasks, first))

    @precondition(lambda self: self.open is None and self.input)
    @rule()
    def look_at_the_next(self) -> None:
        number, task = self.input.pop(0)
        if number in self.skip:
            assert self.flight.skipped(number) is None, "it was withdrawn before"
            return
        self.started, self.open = number, task
        self.starts[task] += 1
        self.order.append(task)

    @precondition(lambda self: self.open is not None)
    @rule()
    def end(self) -> None:
        running = self.flight.running(self.started)
        assert running == (self.started, self.open)
        assert self.flight.finished(self.started) == self.open
        self._leaves(self.open)
        self.open = None

    @rule()
    def withdraw(self) -> None:
        self.skip = range(self.started + 1, self.flight.next)
        self.waiting = self.flight.withdraw(self.started) + self.waiting

    @rule()
    def die(self) -> None:
        culprits, innocents = self.flight.settle_death(self.started)
        assert culprits == ([] if self.open is None else [self.open]), "not the one that ran"
        for task in culprits:
            self.blamed.append(task)
            self._leaves(task)
        self.waiting = innocents + self.waiting
        self.flight, self.input, self.started, self.open, self.skip = InFlight(), [], 0, None, range(0)

    def _leaves(self, task: int | None) -> None:
        assert task is not None
        self.left[task] += 1

    @invariant()
    def nothing_is_lost_and_nothing_is_there_twice(self) -> None:
        there = [*self.left.elements(), *(task for _, task in self.flight), *self.waiting]
        assert sorted(there) == list(range(self.made))

    @invariant()
    def starts_are_in_order_and_never_repeated(self) -> None:
        assert self.order == sorted(self.order)
        assert all(count == 1 for count in self.starts.values()), "an innocent was started again"
        assert all(self.starts[task] == 1 for task in self.blamed), "blamed without a start"


TestOneChild = OneChild.TestCase


def test_an_end_out_of_order_is_refused() -> None:
    """So is the end of a task that was never sent."""
    flight: InFlight[str] = InFlight()
    for number in (0, 1, 99):
        with pytest.raises(OutOfOrderError):
            flight.finished(number)
    flight.send(["a", "b"])
    with pytest.raises(OutOfOrderError):
        flight.finished(2)
    assert [task for _, task in flight] == ["a", "b"]


def test_all_started_tasks_are_blamed_if_reports_were_lost() -> None:
    """If a handler closes the descriptors of its child process, the child may run several tasks without a report."""
    flight: InFlight[str] = InFlight()
    flight.send(["a", "b", "c"])
    assert flight.settle_death(2) == (["a", "b"], ["c"])
    assert len(flight) == 0
