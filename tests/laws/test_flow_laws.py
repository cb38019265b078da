"""Laws of the buffer: how much is fetched, and when fetching pauses and resumes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from worker.core.flow import (
    BUFFER_BYTES,
    BUFFER_RECORDS,
    BUFFER_SECONDS,
    CHUNK_RECORDS,
    CHUNK_SECONDS,
    LONG_SECONDS,
    UNPOLLED_SECONDS,
    FetchPlan,
    FlowControl,
    TaskDuration,
    has_its_share,
)

RESUME_SECONDS = 1.0  # until the first record comes after a resume, as measured

seconds = st.floats(min_value=1e-6, max_value=7200)
counts = st.integers(min_value=0, max_value=2 * BUFFER_RECORDS)


class FlowLaws(RuleBasedStateMachine):
    """Any situation may follow any other."""

    def __init__(self) -> None:
        super().__init__()
        self.flow = FlowControl()
        self.now = 100.0
        self.polled_at = 100.0
        self.paused = False
        self._plan(ahead=0, ahead_bytes=0, buffer=1, idle=True, closed=False)

    @rule(
        ahead=counts | st.integers(min_value=0, max_value=3),
        ahead_bytes=st.sampled_from([0, BUFFER_BYTES - 1, BUFFER_BYTES]),
        buffer=counts | st.integers(min_value=0, max_value=3),
        idle=st.booleans(),
        closed=st.sampled_from([False, False, False, True]),
        passed=st.sampled_from([0.0, 0.05, 0.5, UNPOLLED_SECONDS, 5.0]),
    )
    def plan(self, *, passed: float, ahead: int, ahead_bytes: int, buffer: int, idle: bool, closed: bool) -> None:
        self.now += passed
        target = max(buffer, 1) if idle else buffer
        plan = self._plan(ahead=ahead, ahead_bytes=ahead_bytes, buffer=buffer, idle=idle, closed=closed)
        room = not closed and ahead < target and ahead_bytes < BUFFER_BYTES
        if plan.limit is not None and not plan.paused:
            assert room, "fetched although there was no room"
            assert ahead + plan.limit <= target, "fetched more than the buffer holds"
        if plan.limit is None:
            assert not plan.paused, "paused and not polled: a rebalance would wait forever"
            assert not closed, "while leaving the client is polled in every turn"
            assert self.now - self.polled_at < UNPOLLED_SECONDS, "neither paused nor polled for too long"
        else:
            assert plan.limit > 0
            self.polled_at = self.now
        if room and ahead <= target // 2:
            assert not plan.paused, "still paused when the buffer is half empty"
        if self.paused and ahead > target // 2:
            assert plan.paused, "resumed before it pays: what was fetched is thrown away at every pause"
        if room and not self.paused:
            assert not plan.paused, "paused with room left"
        if closed:
            assert plan.paused
        self.paused = plan.paused

    def _plan(self, *, ahead: int, ahead_bytes: int, buffer: int, idle: bool, closed: bool) -> FetchPlan:
        return self.flow.plan(
            ahead=ahead, ahead_bytes=ahead_bytes, buffer=buffer, idle=idle, closed=closed, now=self.now
        )


TestFlowLaws = FlowLaws.TestCase


class Slot:
    """A slot that runs tasks of one length from an endless topic, turn by turn. The client resumes slowly."""

    def __init__(self, task_seconds: float) -> None:
        self.task_seconds = task_seconds
        self.duration, self.flow = TaskDuration(), FlowControl()
        self.now = 100.0
        self.waiting = 0
        self.busy_until: float | None = None
        self.pauses = 0
        self.dry: list[float] = []  # when the slot had nothing to do
        self._paused = False
        self._flows_at = 0.0  # when records come again

    def turn(self) -> None:
        """Finish the tasks that have ended, start the next one, and fetch."""
        while self.busy_until is not None and self.busy_until <= self.now:
            self.duration.observe(1, self.task_seconds)
            self._start(self.busy_until)
        if self.busy_until is None:
            self._start(self.now)
        if self.busy_until is not None:
            self.duration.running(self.now - (self.busy_until - self.task_seconds))
        self._fetch()

    def _start(self, at: float) -> None:
        self.busy_until = at + self.task_seconds if self.waiting else None
        self.waiting = max(0, self.waiting - 1)
        if self.busy_until is None:
            self.dry.append(at)

    def _fetch(self) -> None:
        idle = self.busy_until is None
        plan = self.flow.plan(
            ahead=self.waiting, ahead_bytes=0, buffer=self.duration.buffer(), idle=idle, closed=False, now=self.now
        )
        if plan.paused and not self._paused:
            self.pauses += 1
        if self._paused and not plan.paused:
            self._flows_at = self.now + RESUME_SECONDS
        self._paused = plan.paused
        if plan.limit is not None and not plan.paused and self.now >= self._flows_at:
            self.waiting += plan.limit

    def run(self, tasks: int, turn_seconds: float) -> None:
        """Run for the time of that many tasks, with a turn every ``turn_seconds``."""
        end = self.now + tasks * self.task_seconds + 2
        while self.now < end:
            self.turn()
            self.now += turn_seconds


@given(task_seconds=st.floats(min_value=0.005, max_value=0.9))
def test_short_tasks_are_never_paused(task_seconds: float) -> None:
    """Tasks of less than a second make room in the buffer before the client has to be paused."""
    slot = Slot(task_seconds)
    slot.run(tasks=30, turn_seconds=min(0.05, task_seconds))
    assert slot.pauses == 0


@given(task_seconds=st.floats(min_value=1.1, max_value=LONG_SECONDS - 1))
def test_tasks_of_more_than_a_second_never_wait_for_a_refill(task_seconds: float) -> None:
    """Fetching resumes before the buffer is empty, early enough for the second that a resume takes."""
    slot = Slot(task_seconds)
    slot.run(tasks=8, turn_seconds=min(0.05, task_seconds / 20) if task_seconds < 10 else 0.5)
    assert [at for at in slot.dry if at > 100.0 + RESUME_SECONDS] == []


@given(history=st.lists(st.tuples(st.integers(min_value=0, max_value=600), seconds), max_size=20), running=seconds)
def test_chunk_and_buffer_stay_within_their_bounds(history: list[tuple[int, float]], running: float) -> None:
    """After any history, a chunk has at least one task. The estimate limits the tasks in a chunk and in the buffer."""
    duration = TaskDuration()
    for count, total in history:
        duration.observe(count, total)
    duration.running(running)
    assert duration.seconds >= running
    assert 1 <= duration.chunk() <= CHUNK_RECORDS
    assert duration.chunk() == 1 or duration.chunk() * duration.seconds <= CHUNK_SECONDS * 1.001
    assert 0 <= duration.buffer() <= BUFFER_RECORDS
    assert (duration.buffer() == 0) == (duration.seconds > LONG_SECONDS)
    assert duration.buffer() <= BUFFER_SECONDS / duration.seconds + 1


def test_tasks_that_take_no_time_do_not_fill_the_memory() -> None:
    duration = TaskDuration()
    duration.observe(1_000, 0.0)
    assert (duration.chunk(), duration.buffer()) == (CHUNK_RECORDS, BUFFER_RECORDS)


@given(waiting=counts, size=st.integers(0, 2 * BUFFER_BYTES), buffer=counts, partitions=st.integers(1, 500))
def test_the_shares_of_all_partitions_make_up_the_buffer(waiting: int, size: int, buffer: int, partitions: int) -> None:
    """With more partitions than places in the buffer, each one holds one record, or none if tasks are very long."""
    if has_its_share(waiting, size, buffer=buffer, partitions=partitions):
        assert waiting >= buffer // partitions or size >= BUFFER_BYTES // partitions
    else:
        assert buffer
        assert waiting == 0 or waiting * partitions < buffer
        assert size * partitions < BUFFER_BYTES


@given(first=seconds, then=seconds)
def test_the_estimate_follows_the_observed_durations(first: float, then: float) -> None:
    """After twenty tasks of another length, little of the old estimate is left."""
    duration = TaskDuration()
    duration.observe(100, 100 * first)
    duration.observe(20, 20 * then)
    assert abs(duration.seconds - then) <= 0.001 * abs(first - then) + 1e-9
