"""Laws of the record of a long task, under any sequence of events."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from worker.core.long_task import PROGRESS_SECONDS, RETRY_SECONDS, YIELD_SECONDS, LongTask
from worker.core.task_state import CANCELLING, HEARTBEAT_SECONDS, WAITING, Origin, TaskState

ORIGIN = Origin("r", 0, 1)


class Records(RuleBasedStateMachine):
    """A topic that accepts or refuses records, and a task with events in any order."""

    @initialize(epoch=st.integers(1, 3))
    def begin(self, epoch: int) -> None:
        self.now = 0.0
        self.task = LongTask(TaskState(ORIGIN, "a-0", epoch, 1, 1))
        self.writing: list[TaskState | None] = []
        self.topic: TaskState | None = None
        self.written_at: list[float] = []
        self.last: bytes | None = None
        self.urgent_since_write = False
        self.reported = False
        self.outranked_at: float | None = None  # since the last write

    @rule(seconds=st.floats(0, 30))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: not self.task.over)
    @rule(fraction=st.floats(0, 1))
    def progress(self, fraction: float) -> None:
        self.urgent_since_write |= not self.task.announced
        self.reported = True
        self.task.progress(fraction, "m")

    @precondition(lambda self: not self.task.over)
    @rule(data=st.binary(max_size=1))
    def checkpoint(self, data: bytes) -> None:
        self.last, self.urgent_since_write, self.reported = data, True, True
        self.task.checkpoint(data)

    @precondition(lambda self: not self.task.over)
    @rule(name=st.sampled_from([CANCELLING, WAITING]))
    def become(self, name: str) -> None:
        self.urgent_since_write = True
        self.task.become(name)

    @precondition(lambda self: not self.task.over)
    @rule()
    def start_again(self) -> None:
        before = self.task.state
        self.urgent_since_write = True
        self.task.started(TaskState(ORIGIN, "a-0", 1, 2, 2))
        assert self.task.state.start > before.start
        assert self.task.state.resume == before.resume
        assert not self.task.state.made_checkpoint

    @rule()
    def write_over(self) -> None:
        self.reported = self.urgent_since_write = True
        self.task.written_over()

    @rule(epoch=st.integers(0, 9))
    def outrank(self, epoch: int) -> None:
        made = self.task.state.made_checkpoint
        self.reported = self.urgent_since_write = True
        self.task.outranked(epoch, self.now)
        assert self.task.state.epoch > epoch
        assert self.task.state.made_checkpoint == made
        if self.outranked_at is None:
            self.outranked_at = self.now

    @rule()
    def settle(self) -> None:
        self.task.settle()

    @rule()
    def write(self) -> None:
        if self.task.due(self.now):
            assert self.outranked_at is None or self.now - self.outranked_at >= YIELD_SECONDS
            self.outranked_at = None
            if not self.urgent_since_write and not self.task.over and self.written_at:
                assert self.now - self.written_at[-1] >= PROGRESS_SECONDS
            self.writing.append(self.task.take(self.now, int(self.now)))
            self.written_at.append(self.now)
            self.urgent_since_write = False

    @precondition(lambda self: self.writing)
    @rule()
    def confirm(self) -> None:
        self.topic = self.writing.pop()
        self.task.confirmed(removed=self.topic is None)

    @precondition(lambda self: self.writing)
    @rule(applied=st.booleans())
    def fail(self, applied: bool) -> None:
        value = self.writing.pop()
        if applied:
            self.topic = value
        self.urgent_since_write = True
        self.task.failed(self.now, too_large=False)

    @invariant()
    def one_record_at_a_time(self) -> None:
        assert len(self.writing) <= 1

    @invariant()
    def a_short_task_writes_nothing(self) -> None:
        assert self.reported or not self.written_at

    @invariant()
    def the_last_checkpoint_wins(self) -> None:
        assert self.task.state.resume == self.last

    def teardown(self) -> None:
        """After the last write, the topic has the state of the task, or no record if the task is settled."""
        if not hasattr(self, "task"):
            return
        for _ in range(3):
            self.now += HEARTBEAT_SECONDS + RETRY_SECONDS
            self.write()
            if self.writing:
                self.confirm()
        if self.task.over:
            assert self.topic is None
            assert self.task.done
        elif self.reported:
            assert self.topic is not None
            assert (self.topic.resume, self.topic.state) == (self.last, self.task.state.state)


TestRecords = Records.TestCase
