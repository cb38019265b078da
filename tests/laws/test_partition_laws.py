"""Laws of partitions, leases and turns, for any order of the steps of the poll thread, the executor and the broker.

Under each ordering, the tasks of a group start in offset order, and none overtakes a task that waits for another
attempt. No request is lost, despite crashes and rebalances. A request that was known to be answered does not start
again, and no request without an answer is recorded as answered. A crash is charged to the task that ran, and never to
a task that waited for its next attempt. A revoked partition is released only after its last commit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.laws.partition_model import FAILED, FENCED, Model
from worker.core.commit_metadata import LIMIT
from worker.core.commits import ANSWER_SECONDS
from worker.core.dispatch import DispatchRule
from worker.core.model import Verdict
from worker.core.queues import WAIT_SECONDS

if TYPE_CHECKING:
    from worker.kafka.ports import KafkaFailure

picks = st.integers(min_value=0, max_value=10_000)
NUMBERS = (0, 1)
numbers = st.sampled_from(NUMBERS)
keys = st.sampled_from([None, b"a", b"b"])
dispatch_rules = st.sampled_from(
    [
        DispatchRule(1, 1, alone=True),
        DispatchRule(1, 1, alone=True, strict=True),
        DispatchRule(1, 1, alone=True, unlimited=True),
        DispatchRule(1, 2),
        DispatchRule(3, 1),
        DispatchRule(3, 1, unlimited=True),
        DispatchRule(3, 1, at_once=True),
        DispatchRule(4, 1, one_partition=True),
        DispatchRule(4, 1, one_partition=True, unlimited=True),
    ]
)
endings = st.sampled_from([Verdict.OK, Verdict.OK, Verdict.FAILED, Verdict.REJECTED, Verdict.DROPPED])
answers = st.sampled_from([(True, None), (True, None), (True, FAILED), (False, FAILED), (False, FENCED)])


class PartitionLaws(RuleBasedStateMachine):
    """Every single step of the two threads is a rule, so that Hypothesis chooses the interleaving."""

    ordering = "partition"
    make_model = Model

    def __init__(self) -> None:
        super().__init__()
        self.model = self.make_model(self.ordering, NUMBERS)
        for number in NUMBERS:
            self.model.assign(number)

    # -- the broker

    @rule(
        number=numbers,
        records=st.lists(st.tuples(st.integers(1, 3), keys), min_size=1, max_size=4),
        at_once=st.booleans(),
    )
    def write(self, number: int, records: list[tuple[int, bytes | None]], at_once: bool) -> None:
        """Records arrive, with gaps between them, perhaps in a partition that this process does not own."""
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
        """A partition is assigned (again), revoked or lost, whatever runs."""
        getattr(self.model, step)(number)

    @precondition(lambda self: self.model.held)
    @rule(hurry=st.sampled_from([False, False, False, True]))
    def serve_held(self, hurry: bool) -> None:
        self.model.serve_held(hurry=hurry)

    @rule()
    def crash(self) -> None:
        """The process crashes, and the next one takes over what the group has recorded."""
        self.model.crash()
        for number in NUMBERS:
            self.model.assign(number)

    @precondition(lambda self: self.model.sent is not None)
    @rule(answer=answers)
    def arrive(self, answer: tuple[bool, KafkaFailure | None]) -> None:
        """The commit in flight is applied or not, and its sender gets a reply."""
        applied, failure = answer
        self.model.arrive(applied=applied, failure=failure)

    @precondition(lambda self: self.model.sent is not None)
    @rule(coordinator=st.tuples(st.booleans(), st.booleans()))
    def lose_the_answer(self, coordinator: tuple[bool, bool]) -> None:
        """The reply to the commit is late. The commit is given up if the coordinator replies to another request."""
        self.model.coordinator = coordinator
        self.model.now += ANSWER_SECONDS
        self.model.tick()
        if coordinator[0]:
            assert self.model.committer.in_flight == (self.model.sent is not None)

    # -- the poll thread

    @rule(dispatch=dispatch_rules)
    def take(self, dispatch: DispatchRule) -> None:
        if len(self.model.submitted) + (self.model.running is not None) < 2 * dispatch.limit:
            assert len(self.model.take(dispatch)) <= dispatch.limit

    @rule()
    def tick(self) -> None:
        self.model.tick()

    @rule(dispatch=dispatch_rules)
    def commit(self, dispatch: DispatchRule) -> None:
        """Starts are requested, committed, confirmed and dispatched in one rule."""
        self.model.take(dispatch)
        self.model.now += 1
        self.model.tick()
        if self.model.sent is not None:
            self.model.arrive(applied=True)
        self.model.take(dispatch)

    @precondition(lambda self: self.model.inbox)
    @rule(after=st.integers(min_value=1, max_value=3), count=st.integers(min_value=1, max_value=3))
    def collect(self, after: int, count: int) -> None:
        """Outcomes are handled. A failed attempt is repeated after ``after`` seconds."""
        for _ in range(min(count, len(self.model.inbox))):
            self.model.collect(after=after)

    @precondition(lambda self: self.model.produced)
    @rule(pick=picks)
    def confirm(self, pick: int) -> None:
        """Answers are confirmed in any order."""
        self.model.confirm(pick)

    @rule(seconds=st.integers(min_value=1, max_value=5))
    def wait(self, seconds: int) -> None:
        self.model.now += seconds

    # -- the executor's thread

    @precondition(lambda self: self.model.submitted and self.model.running is None)
    @rule()
    def look(self) -> None:
        """The executor looks at the next task and starts it, unless its group is blocked."""
        self.model.look()

    @precondition(lambda self: self.model.running is not None)
    @rule(verdict=endings)
    def finish(self, verdict: Verdict) -> None:
        self.model.finish(verdict)

    @precondition(lambda self: self.model.submitted)
    @rule(verdicts=st.lists(endings, min_size=1, max_size=3))
    def serve(self, verdicts: list[Verdict]) -> None:
        """The executor runs several tasks while the poll thread is busy elsewhere."""
        for verdict in verdicts:
            if self.model.running is not None:
                self.model.finish(verdict)
            if self.model.submitted:
                self.model.look()

    @rule(dispatch=dispatch_rules, verdicts=st.lists(endings, min_size=2, max_size=4), tick=st.booleans())
    def work(self, dispatch: DispatchRule, verdicts: list[Verdict], tick: bool) -> None:
        """All steps are made in their usual order."""
        self.commit(dispatch)
        for verdict in verdicts:
            if self.model.running is None and self.model.submitted:
                self.model.look()
            if self.model.running is not None:
                self.model.finish(verdict)
        while self.model.inbox:
            self.model.collect(after=2)
        while self.model.produced:
            self.model.confirm(0)
        if tick:
            self.commit(dispatch)

    # -- the laws

    @invariant()
    def starts_are_in_order_and_none_overtakes_a_failed_one(self) -> None:
        assert self.model.overtaken == []

    @invariant()
    def what_is_known_to_be_answered_is_not_started_again(self) -> None:
        assert self.model.again == []

    @invariant()
    def nothing_is_recorded_as_answered_that_is_not(self) -> None:
        assert self.model.early == []

    @invariant()
    def the_task_that_a_process_crashed_on_is_charged(self) -> None:
        """This applies if it is the first of the tasks that may have started."""
        assert self.model.uncounted == []

    @invariant()
    def a_task_that_waits_for_its_next_attempt_is_never_charged_with_a_crash(self) -> None:
        assert self.model.blamed == []

    @invariant()
    def every_commit_says_which_tasks_wait_for_their_next_attempt(self) -> None:
        """Except for the tasks whose next start this commit records, or an earlier one has recorded."""
        assert self.model.unrecorded == []

    @invariant()
    def a_held_partition_is_released_after_its_last_commit(self) -> None:
        """Unless a limit has passed, or the group no longer knows the process: see the model."""
        assert self.model.released_early == []

    @invariant()
    def commit_metadata_fits(self) -> None:
        assert self.model.longest <= LIMIT

    @invariant()
    def the_position_never_passes_what_is_not_answered(self) -> None:
        for owned in self.model.assignment:
            unanswered = self.model.admitted[owned] - self.model.settled[owned]
            assert owned.position <= min(unanswered, default=math.inf)

    @invariant()
    def nothing_of_ours_is_lost(self) -> None:
        """Each admitted, unanswered request waits, is dispatched, is coming back, or its answer is being delivered.

        When the partition is revoked, only the waiting tasks are dropped.
        """
        for owned in self.model.assignment:
            at_the_executor = self.model.at_the_executor(owned)
            somewhere = len(at_the_executor) + sum(task.claim is owned.lease for task in self.model.produced)
            unanswered = len(self.model.admitted[owned] - self.model.settled[owned])
            if owned.lease.leaving:
                assert len(owned.queue) == 0
                assert somewhere <= unanswered
                continue
            somewhere += len(owned.queue) + sum(map(owned.has_admitted, owned.detached))
            groups = {task.group for task in at_the_executor if task.group is not None}
            somewhere += sum(len(group._returned) for group in groups) if self.ordering == "partition" else 0
            assert somewhere == unanswered

    @invariant()
    def the_counts_are_right(self) -> None:
        assignment = self.model.assignment
        for owned in assignment:
            assert owned.in_flight == len(self.model.at_the_executor(owned))
            assert owned.unconfirmed == sum(task.claim is owned.lease for task in self.model.produced)
            assert owned.busy == bool(owned.in_flight or owned.unconfirmed)
            incomplete = {offset for offset in self.model.admitted[owned] if owned.offsets.is_incomplete(offset)}
            assert incomplete == self.model.admitted[owned] - self.model.settled[owned]
            assert bool(owned.queue.size) >= bool(len(owned.queue))
        assert assignment.queued == sum(len(owned.queue) for owned in assignment)
        assert assignment.queued_bytes == sum(owned.queue.size for owned in assignment)

    @invariant()
    def what_waits_for_another_attempt_holds_nobody_up(self) -> None:
        """Only tasks that may start soon count as startable."""
        now = self.model.now
        others = [owned for owned in self.model.assignment if not owned.queue.is_waiting(now)]
        for owned in self.model.assignment:
            if owned.queue.is_waiting(now):
                assert owned.queue.head(now) is None
                assert owned.queue.next_ready() > now + WAIT_SECONDS
        count, size = self.model.assignment.startable(now)
        assert (count > 0) >= any(owned.queue.head(now) is not None for owned in others)
        assert count <= sum(len(owned.queue) for owned in others)
        assert size <= sum(owned.queue.size for owned in others)
        if self.model.ordering == "partition":
            assert count == sum(len(owned.queue) for owned in others)

    @invariant()
    def the_next_start_is_not_slept_through(self) -> None:
        """``next_ready`` is a time at which a task can start that cannot start now."""
        due = self.model.assignment.next_ready()
        if self.model.now < due < math.inf:
            assert any(owned.queue.head(due) is not None for owned in self.model.assignment)

    def teardown(self) -> None:
        """Without further faults, every record is answered, and the committed offset reaches the end of the log."""
        self.model.run_dry(DispatchRule(3, 1))
        for partition, log in self.model.logs.items():
            assert self.model.answered[partition] == {record.offset for record in log}
            if log or self.model.ends[partition]:
                assert self.model.group[partition].offset == self.model.ends[partition]
        assert (self.model.overtaken, self.model.again, self.model.early) == ([], [], [])
        assert (self.model.blamed, self.model.unrecorded, self.model.released_early) == ([], [], [])


class KeyLaws(PartitionLaws):
    """Tasks of one key keep their order; those without a key do not."""

    ordering = "key"


class UnorderedLaws(PartitionLaws):
    """Tasks keep no order."""

    ordering = "unordered"


TestPartitionLaws = PartitionLaws.TestCase
TestKeyLaws = KeyLaws.TestCase
TestUnorderedLaws = UnorderedLaws.TestCase
TestPartitionLaws.settings = settings(max_examples=settings().max_examples * 2, stateful_step_count=40)
TestKeyLaws.settings = TestUnorderedLaws.settings = TestPartitionLaws.settings
