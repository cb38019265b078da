"""Laws of lanes, leases and turns, whatever the order in which the poll thread, the service and the broker move.

Ordering ``partition``: tasks start in offset order, and none overtakes one that waits for another attempt. Nothing of
a closed lease is settled or committed. Nothing that is ours is lost.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.laws.lane_model import Model
from worker.core.lane import WAIT_SECONDS
from worker.core.ledger import LedgerError

picks = st.integers(min_value=0, max_value=10_000)
NUMBERS = (0, 1, 2)
numbers = st.sampled_from(NUMBERS)


class LaneLaws(RuleBasedStateMachine):
    """Every single step of the two threads is a rule, so that Hypothesis chooses the interleaving."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        for number in NUMBERS:
            self.model.assign(number)

    # -- the broker

    @rule(number=numbers, gaps=st.lists(st.integers(min_value=1, max_value=3), min_size=1, max_size=4))
    def deliver(self, number: int, gaps: list[int]) -> None:
        """Records arrive, perhaps of a partition that is not ours any more."""
        for gap in gaps:
            self.model.deliver(number, gap, size=gap)

    @rule(number=numbers, step=st.sampled_from(["assign", "leave", "close"]))
    def rebalance(self, number: int, step: str) -> None:
        """A partition comes (again), has to go, or is gone, whatever runs: with or without a hold before it."""
        getattr(self.model, step)(number)

    # -- the poll thread

    @rule(limit=st.integers(min_value=1, max_value=4))
    def take(self, limit: int) -> None:
        ready = self.model.ready()
        tasks = self.model.take(limit)
        assert len(tasks) <= limit
        assert len({task.lane for task in tasks}) == min(limit, len(ready)), "a lane that was ready had no turn"

    @precondition(lambda self: self.model.inbox)
    @rule(again=st.booleans(), after=st.integers(min_value=0, max_value=3), count=st.integers(min_value=1, max_value=3))
    def collect(self, again: bool, after: int, count: int) -> None:
        """Outcomes are judged: a failed attempt is repeated after a while, or answered as failed for good."""
        for _ in range(min(count, len(self.model.inbox))):
            self.model.collect(again=again, after=after)

    @precondition(lambda self: self.model.produced)
    @rule(pick=picks)
    def confirm(self, pick: int) -> None:
        """An answer is confirmed, in any order."""
        self.model.confirm(pick)

    @rule(seconds=st.integers(min_value=1, max_value=5))
    def wait(self, seconds: int) -> None:
        self.model.now += seconds

    # -- the service thread

    @precondition(lambda self: self.model.handed and self.model.running is None)
    @rule()
    def look(self) -> None:
        """The service looks at the next task and starts it, unless its lane is stalled."""
        self.model.look()

    @precondition(lambda self: self.model.running is not None)
    @rule(good=st.booleans())
    def finish(self, good: bool) -> None:
        self.model.finish(good=good)

    @precondition(lambda self: self.model.handed)
    @rule(good=st.lists(st.booleans(), min_size=1, max_size=3))
    def serve(self, good: list[bool]) -> None:
        """The service does several tasks while the poll thread is busy elsewhere."""
        for one in good:
            if self.model.running is not None:
                self.model.finish(good=one)
            if self.model.handed:
                self.model.look()

    # -- the laws

    @invariant()
    def starts_are_in_order_and_none_overtakes_a_failed_one(self) -> None:
        assert self.model.overtaken == []

    @invariant()
    def nothing_of_a_closed_lease_is_committed(self) -> None:
        assert self.model.foreign_commits == []

    @invariant()
    def a_commit_never_passes_what_is_not_answered(self) -> None:
        for lane in self.model.assignment.lanes.values():
            open_offsets = self.model.admitted[lane] - self.model.answered[lane]
            if lane.watermark is not None and open_offsets:
                assert lane.watermark <= min(open_offsets)

    @invariant()
    def nothing_of_ours_is_lost(self) -> None:
        """What was admitted and is not answered is queued, handed over, coming back, or its answer is under way."""
        for lane in self.model.assignment.lanes.values():
            missing = self.model.admitted[lane] - self.model.answered[lane] - self.model.somewhere(lane)
            assert lane.leaving or not missing

    @invariant()
    def the_counts_are_right(self) -> None:
        assignment = self.model.assignment
        lanes = assignment.lanes.values()
        for lane in lanes:
            assert lane.handed == self.model.count_handed(lane)
            assert lane.queued_bytes == sum(task.size for task in lane.queue)
            assert lane.busy == bool(lane.handed or any(task.lane is lane for task in self.model.produced))
        assert assignment.queued == sum(len(lane.queue) for lane in lanes)
        assert assignment.queued_bytes == sum(lane.queued_bytes for lane in lanes)

    @invariant()
    def what_waits_for_another_attempt_holds_nobody_up(self) -> None:
        """Only records that may start soon count as work that is there; those behind a back-off do not."""
        now = self.model.now
        lanes = [
            lane
            for lane in self.model.assignment.lanes.values()
            if not (lane.queue and lane.ready_at > now + WAIT_SECONDS)
        ]
        expected = sum(len(lane.queue) for lane in lanes), sum(lane.queued_bytes for lane in lanes)
        assert self.model.assignment.startable(now) == expected

    @invariant()
    def the_next_start_is_not_slept_through(self) -> None:
        """Until the time that is told, nobody is ready; from then on somebody is."""
        due = self.model.assignment.next_ready()
        lanes = self.model.assignment.lanes.values()
        assert any(lane.ready(self.model.now) for lane in lanes) == (due <= self.model.now)

    def teardown(self) -> None:
        """When all goes well from now on, every record of every lease that we kept is answered."""
        self.model.run_dry()
        for lane in self.model.assignment.lanes.values():
            if not lane.leaving:
                assert lane.unsettled == 0
                assert self.model.answered[lane] == self.model.admitted[lane]
        assert self.model.overtaken == []


TestLaneLaws = LaneLaws.TestCase
TestLaneLaws.settings = settings(max_examples=settings().max_examples * 4, stateful_step_count=50)


def test_a_record_that_comes_twice_is_refused() -> None:
    """A client that goes back within a lease would make us answer twice."""
    model = Model()
    model.assign(0)
    model.deliver(0, 1, 1)
    with pytest.raises(LedgerError):
        model.deliver(0, 0, 1)
