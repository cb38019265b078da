"""Laws of lanes, leases and turns, whatever the order in which the poll thread, the service and the broker move.

Under each ordering: tasks of a strand start in offset order, and none overtakes one that waits for another attempt.
Nothing is lost, over deaths and moves either; nothing that was known to be answered is started again; and nothing is
said to be answered that is not.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.laws.lane_model import Model
from worker.core.ledger import LedgerError
from worker.core.model import Partition, Record, Verdict
from worker.core.notes import LIMIT
from worker.core.queues import WAIT_SECONDS
from worker.core.starts import Starts

picks = st.integers(min_value=0, max_value=10_000)
NUMBERS = (0, 1)
numbers = st.sampled_from(NUMBERS)
keys = st.sampled_from([None, b"a", b"b"])
ways = st.sampled_from(
    [
        Starts(1, 1, alone=True),
        Starts(1, 1, alone=True, strict=True),
        Starts(1, 2),
        Starts(3, 1),
        Starts(3, 1, free=True),
        Starts(4, 1, one_lane=True),
    ]
)
endings = st.sampled_from([Verdict.OK, Verdict.OK, Verdict.FAILED, Verdict.REJECTED, Verdict.DROPPED])


class LaneLaws(RuleBasedStateMachine):
    """Every single step of the two threads is a rule, so that Hypothesis chooses the interleaving."""

    ordering = "partition"

    def __init__(self) -> None:
        super().__init__()
        self.model = Model(self.ordering, NUMBERS)
        for number in NUMBERS:
            self.model.assign(number)

    # -- the broker

    @rule(
        number=numbers,
        records=st.lists(st.tuples(st.integers(1, 3), keys), min_size=1, max_size=4),
        at_once=st.booleans(),
    )
    def write(self, number: int, records: list[tuple[int, bytes | None]], at_once: bool) -> None:
        """Records arrive, with gaps between them, perhaps of a partition that is not ours."""
        for gap, key in records:
            self.model.write(number, gap, key)
        if at_once:
            self.model.deliver(number, len(records))

    @rule(number=numbers)
    def mark(self, number: int) -> None:
        self.model.mark(number)

    @rule(number=numbers, count=st.integers(min_value=1, max_value=6))
    def deliver(self, number: int, count: int) -> None:
        self.model.deliver(number, count)

    @rule(number=numbers, step=st.sampled_from(["assign", "assign", "revoke", "lose"]))
    def rebalance(self, number: int, step: str) -> None:
        """A partition comes (again), or is gone, whatever runs: with or without a hold before it."""
        getattr(self.model, step)(number)

    @rule()
    def crash(self) -> None:
        """And the next process takes over what is noted."""
        self.model.crash()
        for number in NUMBERS:
            self.model.assign(number)

    @precondition(lambda self: self.model.spoken is not None)
    @rule(applied=st.booleans(), heard=st.booleans())
    def arrive(self, applied: bool, heard: bool) -> None:
        """The commit that is under way."""
        self.model.arrive(applied=applied, heard=heard)

    # -- the poll thread

    @rule(starts=ways)
    def take(self, starts: Starts) -> None:
        if len(self.model.handed) + (self.model.running is not None) < 2 * starts.limit:
            assert len(self.model.take(starts)) <= starts.limit

    @rule()
    def tick(self) -> None:
        self.model.committer.tick(self.model.now)

    @rule(starts=ways)
    def commit(self, starts: Starts) -> None:
        """All at once: asked for, committed, confirmed and handed over."""
        self.model.take(starts)
        self.model.now += 1
        self.model.committer.tick(self.model.now)
        if self.model.spoken is not None:
            self.model.arrive(applied=True, heard=True)
        self.model.take(starts)

    @precondition(lambda self: self.model.inbox)
    @rule(after=st.integers(min_value=1, max_value=3), count=st.integers(min_value=1, max_value=3))
    def collect(self, after: int, count: int) -> None:
        """Outcomes are judged: a failed attempt is repeated after a while."""
        for _ in range(min(count, len(self.model.inbox))):
            self.model.collect(after=after)

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
        """The service looks at the next task and starts it, unless its strand is stalled."""
        self.model.look()

    @precondition(lambda self: self.model.running is not None)
    @rule(verdict=endings)
    def finish(self, verdict: Verdict) -> None:
        self.model.finish(verdict)

    @precondition(lambda self: self.model.handed)
    @rule(verdicts=st.lists(endings, min_size=1, max_size=3))
    def serve(self, verdicts: list[Verdict]) -> None:
        """The service does several tasks while the poll thread is busy elsewhere."""
        for verdict in verdicts:
            if self.model.running is not None:
                self.model.finish(verdict)
            if self.model.handed:
                self.model.look()

    @rule(starts=ways, verdicts=st.lists(endings, min_size=2, max_size=4), tick=st.booleans())
    def work(self, starts: Starts, verdicts: list[Verdict], tick: bool) -> None:
        """All of it, as it goes where nobody is in the way of anybody."""
        self.commit(starts)
        for verdict in verdicts:
            if self.model.running is None and self.model.handed:
                self.model.look()
            if self.model.running is not None:
                self.model.finish(verdict)
        while self.model.inbox:
            self.model.collect(after=2)
        while self.model.produced:
            self.model.confirm(0)
        if tick:
            self.commit(starts)

    # -- the laws

    @invariant()
    def starts_are_in_order_and_none_overtakes_a_failed_one(self) -> None:
        assert self.model.overtaken == []

    @invariant()
    def what_is_known_to_be_answered_is_not_started_again(self) -> None:
        assert self.model.again == []

    @invariant()
    def nothing_is_said_to_be_answered_that_is_not(self) -> None:
        assert self.model.early == []

    @invariant()
    def a_process_that_died_of_a_task_has_counted_it(self) -> None:
        """Where it is the first of what may have been started."""
        assert self.model.uncounted == []

    @invariant()
    def notes_fit(self) -> None:
        assert self.model.longest <= LIMIT

    @invariant()
    def the_position_never_passes_what_is_not_answered(self) -> None:
        for lane in self.model.assignment.lanes.values():
            open_offsets = self.model.admitted[lane] - self.model.settled[lane]
            assert lane.position <= min(open_offsets, default=math.inf)

    @invariant()
    def nothing_of_ours_is_lost(self) -> None:
        """What was admitted and is not answered waits, is handed over, is coming back, or its answer is under way."""
        for lane in self.model.assignment.lanes.values():
            somewhere = len(lane.queue) + len(self.model.at_the_service(lane))
            somewhere += sum(task.lane is lane for task in self.model.produced)
            strands = {task.strand for task in self.model.at_the_service(lane) if task.strand is not None}
            somewhere += sum(len(strand.back) for strand in strands) if self.ordering == "partition" else 0
            assert somewhere == len(self.model.admitted[lane] - self.model.settled[lane])

    @invariant()
    def the_counts_are_right(self) -> None:
        assignment = self.model.assignment
        lanes = assignment.lanes.values()
        for lane in lanes:
            assert lane.handed == len(self.model.at_the_service(lane))
            assert lane.busy == bool(lane.handed or any(task.lane is lane for task in self.model.produced))
            assert lane.unsettled == len(self.model.admitted[lane] - self.model.settled[lane])
            assert bool(lane.queue.size) >= bool(len(lane.queue))
        assert assignment.queued == sum(len(lane.queue) for lane in lanes)
        assert assignment.queued_bytes == sum(lane.queue.size for lane in lanes)

    @invariant()
    def what_waits_for_another_attempt_holds_nobody_up(self) -> None:
        """Only records that may start soon count as work that is there."""
        now = self.model.now
        lanes = [lane for lane in self.model.assignment.lanes.values() if not lane.queue.waits(now)]
        for lane in self.model.assignment.lanes.values():
            if lane.queue.waits(now):
                assert lane.queue.head(now) is None
                assert lane.queue.next_ready() > now + WAIT_SECONDS
        count, size = self.model.assignment.startable(now)
        assert (count > 0) >= any(lane.queue.head(now) is not None for lane in lanes)
        assert count <= sum(len(lane.queue) for lane in lanes)
        assert size <= sum(lane.queue.size for lane in lanes)
        if self.model.ordering == "partition":
            assert count == sum(len(lane.queue) for lane in lanes)

    @invariant()
    def the_next_start_is_not_slept_through(self) -> None:
        """Whoever cannot start now for the time alone is told of: from then on it can."""
        due = self.model.assignment.next_ready()
        lanes = self.model.assignment.lanes.values()
        if self.model.now < due < math.inf:
            assert any(lane.queue.head(due) is not None for lane in lanes)

    def teardown(self) -> None:
        """When all goes well from now on, every record is answered, and the group stands at the end."""
        self.model.run_dry(Starts(3, 1))
        for partition, log in self.model.logs.items():
            assert self.model.answered[partition] == {record.offset for record in log}
            if log or self.model.ends[partition]:
                assert self.model.group[partition].offset == self.model.ends[partition]
        assert (self.model.overtaken, self.model.again, self.model.early) == ([], [], [])


class KeyLaws(LaneLaws):
    """Rows of keys; what has none is free."""

    ordering = "key"


class UnorderedLaws(LaneLaws):
    """No rows at all."""

    ordering = "unordered"


TestLaneLaws = LaneLaws.TestCase
TestKeyLaws = KeyLaws.TestCase
TestUnorderedLaws = UnorderedLaws.TestCase
TestLaneLaws.settings = settings(max_examples=settings().max_examples * 2, stateful_step_count=40)
TestKeyLaws.settings = TestUnorderedLaws.settings = TestLaneLaws.settings


def test_a_record_that_comes_twice_is_refused() -> None:
    """A client that goes back within a lease would make us answer twice."""
    model = Model("partition", (0,))
    model.assign(0)
    model.write(0, 1, None)
    model.deliver(0, 1)
    with pytest.raises(LedgerError):
        model.assignment.admit([Record(Partition("t", 0), 0, None, b"x")])
