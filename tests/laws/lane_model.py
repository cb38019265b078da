"""The two threads and the broker around an assignment, one step at a time, with everything written down."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

from worker.core.assignment import Assignment
from worker.core.model import Outcome, Partition, Record, Task, Verdict
from worker.metrics import Metrics
from worker.process.committer import Committer

if TYPE_CHECKING:
    from worker.core.lane import Lane

LONG = 1_000_000


class Model:
    """Does what poller, service and answers do to lanes, and notes what must not happen."""

    def __init__(self) -> None:
        self.assignment = Assignment()
        self.now = 0.0
        self.handed: deque[Task] = deque()  # the service's queue
        self.running: Task | None = None
        self.inbox: deque[Outcome] = deque()  # the poll thread's mailbox
        self.produced: list[Task] = []  # answers under way
        self.admitted: defaultdict[Lane, set[int]] = defaultdict(set)
        self.answered: defaultdict[Lane, set[int]] = defaultdict(set)
        self.overtaken: list[tuple[int, int]] = []
        self.foreign_commits: list[Partition] = []
        self._done: defaultdict[Lane, set[int]] = defaultdict(set)  # finished for good
        self._ended: dict[Lane, int | None] = {}  # watermarks of leases when they ended
        self._next_offset: defaultdict[int, int] = defaultdict(int)
        self._committer = Committer(self, self.assignment, Metrics(), lambda: self.now)  # type: ignore[arg-type]

    # -- the broker

    def assign(self, number: int) -> None:
        self._end(number)
        self.assignment.assign([Partition("t", number)])

    def deliver(self, number: int, gap: int, size: int) -> None:
        partition = Partition("t", number)
        offset = self._next_offset[number] + gap - 1
        lane = self.assignment.lanes.get(partition)
        kept = self.assignment.admit([Record(partition, offset, None, b"x" * size)])
        self._next_offset[number] = offset + 1
        if lane is None or lane.leaving:
            assert kept == 0
        else:
            assert kept == size
            self.admitted[lane].add(offset)

    def leave(self, number: int) -> None:
        lane = self.assignment.lanes.get(Partition("t", number))
        if lane is not None:
            lane.leave()

    def close(self, number: int) -> None:
        self._end(number)
        self.assignment.close([Partition("t", number)])

    def _end(self, number: int) -> None:
        lane = self.assignment.lanes.get(Partition("t", number))
        if lane is not None:
            self._ended[lane] = lane.watermark

    def commit(self, offsets: dict[Partition, int]) -> None:
        """The consumer, as the committer calls it: only the watermark of a lease that we have may be committed."""
        for partition, offset in offsets.items():
            lane = self.assignment.lanes.get(partition)
            if lane is None or offset != lane.watermark:
                self.foreign_commits.append(partition)
        self._committer.answered(offsets, None)

    # -- the poll thread

    def ready(self) -> list[Lane]:
        return [lane for lane in self.assignment.lanes.values() if lane.ready(self.now)]

    def take(self, limit: int) -> list[Task]:
        tasks = self.assignment.take(limit, self.now)
        assert all(task.lane.open and not task.lane.leaving for task in tasks)
        self.handed.extend(tasks)
        return tasks

    def collect(self, *, again: bool = False, after: int = 0) -> None:
        outcome = self.inbox.popleft()
        task, verdict = outcome.task, outcome.verdict
        if not task.lane.open:
            task.lane.done()
        elif verdict is Verdict.NOT_STARTED:
            task.lane.put_back(task)
        elif verdict is Verdict.FAILED and again:
            task.lane.put_back(task, self.now + after)
        else:
            task.lane.done()
            task.lane.unconfirmed += 1
            self._done[task.lane].add(task.record.offset)
            self.produced.append(task)

    def confirm(self, pick: int) -> None:
        task = self.produced.pop(pick % len(self.produced))
        task.lane.unconfirmed -= 1
        self._committer.settled(task.lane, task.record.offset)
        if task.lane.open:
            self.answered[task.lane].add(task.record.offset)
        else:
            assert task.lane.watermark == self._ended[task.lane], "settled after the end of the lease"
        self.now += 1
        self._committer.tick(self.now)

    # -- the service thread

    def look(self) -> None:
        task = self.handed.popleft()
        if task.lane.stalled:
            self.inbox.append(Outcome(task, Verdict.NOT_STARTED))
            return
        lane, offset = task.lane, task.record.offset
        before = {lower for lower in self.admitted[lane] if lower < offset} - self._done[lane]
        finished = {o.task.record.offset for o in self.inbox if o.task.lane is lane and o.verdict is Verdict.OK}
        self.overtaken += [(offset, lower) for lower in before - finished]
        self.running = task

    def finish(self, *, good: bool) -> None:
        task, self.running = self.running, None
        assert task is not None
        if not good:
            task.lane.stalled = True
        self.inbox.append(Outcome(task, Verdict.OK if good else Verdict.FAILED))

    # -- what is where

    def count_handed(self, lane: Lane) -> int:
        tasks = [*self.handed, *(outcome.task for outcome in self.inbox)]
        return sum(task.lane is lane for task in tasks) + (self.running is not None and self.running.lane is lane)

    def somewhere(self, lane: Lane) -> set[int]:
        tasks = [*lane.queue, *lane._back, *self.handed, *self.produced, *(outcome.task for outcome in self.inbox)]
        if self.running is not None:
            tasks.append(self.running)
        return {task.record.offset for task in tasks if task.lane is lane}

    def run_dry(self) -> None:
        """Let everything finish well."""
        self.now += LONG
        while self.handed or self.running or self.inbox or self.produced or self.take(3):
            while self.handed or self.running:
                self.look() if self.running is None else self.finish(good=True)
            while self.inbox:
                self.collect()
            while self.produced:
                self.confirm(0)
