"""Laws of the small state machines: lifecycle, deadline, retries, commits and sampling."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from worker.core.commits import ANSWER_SECONDS, GAP, HOLD_KEEP_ALIVE, KEEP_ALIVE, RETRY, CommitPolicy
from worker.core.deadline import Deadline
from worker.core.lease import Lease
from worker.core.lifecycle import Lifecycle, State
from worker.core.model import Outcome, Partition, Record, Task, Verdict
from worker.core.retry import DeadLetter, End, Expire, Retry, RetryPolicy, Return, Settle, attempts_after, decide
from worker.core.sampling import Sampler

times = st.floats(min_value=0, max_value=1e9)
spans = st.floats(min_value=0, max_value=1e6)
parts = st.floats(min_value=0, max_value=1)
LEASE = Lease(Partition("t", 0))


def outcome(verdict: Verdict, retry_after: float | None = None) -> Outcome:
    return Outcome(Task(Record(LEASE.partition, 0, None, None), LEASE), verdict, retry_after=retry_after)


# ---------------------------------------------------------------- lifecycle


@given(moves=st.lists(st.sampled_from(State), max_size=12))
def test_a_lifecycle_only_moves_forward(moves: list[State]) -> None:
    """A move back or to the same state changes nothing. A forbidden jump raises. No task starts after a drain began."""
    lifecycle, left = Lifecycle(), False
    for state in moves:
        before = lifecycle.state
        try:
            moved = lifecycle.to(state)
        except ValueError:
            assert state > before
            moved = False
        assert moved == (lifecycle.state is not before)
        assert lifecycle.state is (state if moved else before)
        assert lifecycle.state >= before
        left = left or (state >= State.DRAINING and moved)
        assert lifecycle.leaving == left
        assert not (left and lifecycle.may_start)


@pytest.mark.parametrize("state", [State.JOINING, State.RUNNING, State.DRAINING, State.CANCELLING])
def test_a_process_that_has_joined_can_drain_cancel_and_close(state: State) -> None:
    """Each of these states has a way out, so that a command to leave never raises."""
    for way_out in (State.DRAINING, State.CANCELLING, State.CLOSED):
        lifecycle = Lifecycle()
        lifecycle.state = state
        assert lifecycle.to(way_out) == (way_out > state)


# ---------------------------------------------------------------- deadline


@given(start=times, seconds=spans, steps=st.lists(spans, max_size=5))
def test_the_remaining_time_of_a_deadline_only_shrinks(start: float, seconds: float, steps: list[float]) -> None:
    """It never falls below zero, and it is zero exactly if the deadline has passed."""
    deadline, now = Deadline.after(seconds, start), start
    left = deadline.remaining(now)
    for step in steps:
        now += step
        assert 0 <= deadline.remaining(now) <= left
        left = deadline.remaining(now)
        assert deadline.passed(now) == (left == 0)


@given(now=times)
def test_a_missing_deadline_never_passes(now: float) -> None:
    assert not Deadline().passed(now)
    assert Deadline().remaining(now) == math.inf


# ---------------------------------------------------------------- retries


policies = st.builds(
    lambda attempts, first, more: RetryPolicy(attempts, first, first + more),
    st.integers(min_value=1, max_value=100),
    st.floats(min_value=0, max_value=1000),
    spans,
)
attempts = st.integers(min_value=1, max_value=5000)


@given(policy=policies, attempt=attempts, jitter=parts)
def test_delays_lie_between_half_of_the_first_and_the_greatest(
    policy: RetryPolicy, attempt: int, jitter: float
) -> None:
    """This also applies after thousands of attempts. With the same jitter, a later attempt never waits less."""
    delay = policy.delay(attempt, jitter)
    assert policy.first / 2 <= delay <= policy.greatest
    assert delay <= policy.delay(attempt + 1, jitter)
    assert delay <= policy.delay(attempt, 0)


@given(policy=policies, attempt=attempts)
def test_delays_double_until_the_greatest(policy: RetryPolicy, attempt: int) -> None:
    assert policy.delay(1, 0) == policy.first
    assert policy.delay(attempt + 1, 0) == min(policy.greatest, 2 * policy.delay(attempt, 0)) or attempt > 60


@given(policy=policies, attempt=attempts, jitter=parts, after=st.none() | spans)
def test_a_failed_attempt_is_repeated_until_the_last_attempt(
    policy: RetryPolicy, attempt: int, jitter: float, after: float | None
) -> None:
    """``Retry(after=…)`` sets the delay, but not the number of attempts."""
    step = decide(outcome(Verdict.FAILED, after), attempt, policy, jitter)
    if attempt >= policy.max_attempts:
        assert isinstance(step, DeadLetter)
    elif after is not None:
        assert step == Retry(after)
    else:
        assert step == Retry(policy.delay(attempt, jitter))


@given(policy=policies, attempt=attempts)
def test_each_other_verdict_has_one_next_step(policy: RetryPolicy, attempt: int) -> None:
    """It does not depend on the number of attempts. A task that was dropped or not started has used none of them."""
    assert isinstance(decide(outcome(Verdict.REJECTED), attempt, policy), DeadLetter)
    assert isinstance(decide(outcome(Verdict.EXPIRED), attempt, policy), Expire)
    assert isinstance(decide(outcome(Verdict.DONE), attempt, policy), Settle)
    assert isinstance(decide(outcome(Verdict.DROPPED), attempt, policy), Return)
    assert isinstance(decide(outcome(Verdict.NOT_STARTED), attempt, policy), Return)


@pytest.mark.parametrize(
    ("end", "with_checkpoint", "without"),
    [(End.DIED, False, True), (End.FAILED, True, True), (End.STOPPED, False, False)],
)
def test_an_attempt_counts_depending_on_its_end_and_on_a_new_checkpoint(
    end: End, *, with_checkpoint: bool, without: bool
) -> None:
    """See the table in docs/checkpoints.md."""
    assert attempts_after(3, end, new_checkpoint=True) == 2 + with_checkpoint
    assert attempts_after(3, end) == 2 + without


@given(after=st.floats(max_value=0, allow_nan=False))
def test_a_negative_delay_counts_as_zero(after: float) -> None:
    assert decide(outcome(Verdict.FAILED, after), 1, RetryPolicy(2, 1, 1)) == Retry(0)


# ---------------------------------------------------------------- commits


INTERVAL = 5.0


class CommitLaws(RuleBasedStateMachine):
    """The policy as the committer uses it. A commit is sent if it is due or urgent. A reply comes later, or never."""

    every = 1

    def __init__(self) -> None:
        super().__init__()
        self.now = 50.0
        self.policy = CommitPolicy(self.now, every=self.every, interval=INTERVAL)
        self.sent_at: float | None = None
        self.failed_at: float | None = None
        self.kept_at = self.now
        self.settled_since: float | None = None
        self.count = 0
        self.answer_by = 0.0

    @rule(seconds=st.sampled_from([0.0, GAP / 2, GAP, RETRY, INTERVAL / 2, 30.0, 60.0, KEEP_ALIVE]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(count=st.integers(min_value=1, max_value=3))
    def settle(self, count: int) -> None:
        self.policy.settled(self.now, count)
        self.settled_since = self.now if self.settled_since is None else self.settled_since
        self.count += count

    @precondition(lambda self: self.policy.due(self.now))
    @rule()
    def send(self) -> None:
        assert self.sent_at is None or self.now - self.sent_at >= GAP - 1e-9
        assert self.failed_at is None or self.now - self.failed_at >= RETRY - 1e-9
        if self.settled_since is not None:
            assert self.count >= self.every or self.now - self.settled_since >= INTERVAL, "too often"
        self._send()

    @precondition(lambda self: self.policy.urgent(self.now))
    @rule()
    def send_at_once(self) -> None:
        """A task waits for this commit, so only a failure delays it."""
        assert self.failed_at is None or self.now - self.failed_at >= RETRY - GAP - 1e-9
        self._send()

    def _send(self) -> None:
        assert not self.policy.in_flight, "two commits at once could be answered in the wrong order"
        self.policy.sent(self.now)
        self.sent_at = self.kept_at = self.now
        self.answer_by = self.now + ANSWER_SECONDS
        self.settled_since, self.count = None, 0

    @precondition(lambda self: self.policy.in_flight)
    @rule(failed=st.booleans())
    def answer(self, failed: bool) -> None:
        self.policy.answered(self.now, failed=failed)
        assert not self.policy.in_flight
        self.failed_at = self.now if failed else None

    @precondition(lambda self: self.policy.overdue(self.now))
    @rule()
    def wait_longer(self) -> None:
        """The broker is unreachable, so the reply may still come."""
        self.policy.wait_longer(self.now)
        self.answer_by = self.now + ANSWER_SECONDS / 2

    @invariant()
    def a_commit_is_due_some_time(self) -> None:
        """A settled offset waits no longer than the interval, or the pause after a failure."""
        if not self.policy.in_flight:
            assert self.policy.due(self.now + max(RETRY, INTERVAL) + 1e-9)
            assert self.policy.urgent(self.now + RETRY)
            assert self.count < self.every or self.policy.due(self.now + RETRY + 1e-9)

    @invariant()
    def offsets_are_kept_alive(self) -> None:
        due = not self.policy.in_flight and self.now - self.kept_at >= KEEP_ALIVE
        assert self.policy.keep_alive_due(self.now) == due
        soon = not self.policy.in_flight and self.now - self.kept_at >= HOLD_KEEP_ALIVE
        assert self.policy.keep_alive_due(self.now, holding=True) == soon

    @invariant()
    def an_answer_is_overdue_once_the_time_for_it_has_passed(self) -> None:
        """Otherwise a commit whose reply was lost would stop all commits."""
        assert self.policy.overdue(self.now) == (self.policy.in_flight and self.now >= self.answer_by)


class SparingCommitLaws(CommitLaws):
    """With ``KAFKA_COMMIT_EVERY`` above 1."""

    every = 4


TestSparingCommitLaws = SparingCommitLaws.TestCase
TestCommitLaws = CommitLaws.TestCase


# ---------------------------------------------------------------- sampling


bursts = st.lists(st.tuples(st.integers(min_value=0, max_value=2), st.integers(min_value=0, max_value=9)), max_size=40)


@given(limit=st.integers(min_value=0, max_value=12), bursts=bursts)
def test_a_sampler_counts_the_lines_that_it_leaves_out(limit: int, bursts: list[tuple[int, int]]) -> None:
    """It allows the first ``limit`` lines of each second, and counts every other line once."""
    sampler, second, reported = Sampler(limit), 1_000, 0
    allowed: dict[int, int] = {}
    for step, lines in bursts:
        second += step
        so_far = allowed.get(second, 0)
        now_allowed = sampler.allow(lines, second)
        assert now_allowed == min(lines, limit - so_far)
        allowed[second] = so_far + now_allowed
        if now_allowed:
            reported, sampler.suppressed = reported + sampler.suppressed, 0
    assert max(allowed.values(), default=0) <= limit
    assert sum(allowed.values()) + reported + sampler.suppressed == sum(lines for _, lines in bursts)
