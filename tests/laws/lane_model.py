"""The two threads and the broker around an assignment, one step at a time, with everything written down."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict, deque
from typing import TYPE_CHECKING, NamedTuple

from tests.process_fake.world import CONFIG
from worker.core import notes
from worker.core.assignment import Assignment
from worker.core.model import End, Outcome, Partition, Record, Task, Verdict
from worker.kafka.ports import KafkaFailure, Position
from worker.metrics import Metrics
from worker.process.committer import Committer
from worker.process.rebalance import Rebalance

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.core.lane import Lane
    from worker.core.starts import Starts

LONG = 1_000_000
FAILED = KafkaFailure("REQUEST_TIMED_OUT", "scripted")


class Spoken(NamedTuple):
    """A commit under way, and what it vouches for: what its sender knew to be answered."""

    positions: Mapping[Partition, Position]
    vouched: Mapping[Partition, frozenset[int]]


class Model:
    """Does what poller, service, answers and broker do to lanes, and notes what must not happen."""

    def __init__(self, ordering: str, numbers: tuple[int, ...]) -> None:
        self.ordering, self.numbers = ordering, numbers
        self.now = 100.0
        # What the broker has.
        self.logs: dict[Partition, list[Record]] = {Partition("t", number): [] for number in numbers}
        self.ends = dict.fromkeys(self.logs, 0)
        self.group: dict[Partition, Position] = {}
        self.vouched: dict[Partition, frozenset[int]] = {}
        self.answered: defaultdict[Partition, set[int]] = defaultdict(set)
        # What must not happen, or has to be counted.
        self.overtaken: list[tuple[int, int]] = []
        self.again: list[tuple[Partition, int]] = []  # started although it was known to be answered
        self.early: list[tuple[Partition, int]] = []  # said to be answered, and was not
        self.uncounted: list[tuple[Partition, int]] = []
        self.longest = 0
        self.deaths: Counter[tuple[Partition, int]] = Counter()  # of processes, by the one task that ran
        self.begin()

    def begin(self) -> None:
        """A new process, which owns nothing yet."""
        self.assignment = Assignment(self.ordering)
        self.handed: deque[Task] = deque()  # the service's queue
        self.running: Task | None = None
        self.inbox: deque[Outcome] = deque()  # the poll thread's mailbox
        self.produced: list[Task] = []  # answers under way
        self.spoken: Spoken | None = None
        self.admitted: defaultdict[Lane, set[int]] = defaultdict(set)
        self.settled: defaultdict[Lane, set[int]] = defaultdict(set)
        self._finished: defaultdict[Lane, set[int]] = defaultdict(set)  # for good
        self._position: dict[Partition, int] = {}
        config = dataclasses.replace(CONFIG, ordering=self.ordering)
        self.committer = Committer(config, self, self.assignment, Metrics(), lambda: self.now)  # type: ignore[arg-type]
        self._rebalance = Rebalance(
            self.assignment,
            self.committer,
            Metrics(),
            hold=lambda _lanes: None,
            abandon=lambda _lane: None,
            decide=lambda: None,
            joined=lambda: None,
            begin=lambda _partitions: {},
        )

    # -- the broker

    def write(self, number: int, gap: int, key: bytes | None) -> None:
        partition = Partition("t", number)
        offset = self.ends[partition] + gap - 1
        self.logs[partition].append(Record(partition, offset, key, b"x" * gap))
        self.ends[partition] = offset + 1

    def mark(self, number: int) -> None:
        """The marker of a transaction."""
        self.ends[Partition("t", number)] += 1

    def assign(self, number: int) -> None:
        partition = Partition("t", number)
        if partition in self.assignment.lanes:
            return
        position = self.group.get(partition)
        self._rebalance.assigned({partition: position})
        self._position[partition] = position.offset if position else 0

    def deliver(self, number: int, count: int) -> None:
        """Records that were not fetched yet, or else the end of the partition."""
        partition = Partition("t", number)
        at = self._position.get(partition)
        if at is None:
            return
        records = [record for record in self.logs[partition] if record.offset >= at][:count]
        lane = self.assignment.lanes.get(partition)
        for record in records:
            self._position[partition] = record.offset + 1
            self.assignment.admit([record])
            if lane is not None and not lane.leaving:
                self.admitted[lane].add(record.offset)
                self._note_what_is_known(lane, record)
        if not records:
            self.assignment.admit([End(partition, self.ends[partition])])

    def _note_what_is_known(self, lane: Lane, record: Record) -> None:
        offset, partition = record.offset, record.partition
        if offset not in lane.ledger._unsettled:  # a former owner has answered it
            self.settled[lane].add(offset)
            self._finished[lane].add(offset)
            if offset not in self.answered[partition]:
                self.early.append((partition, offset))
        elif lane.attempts.get(offset, 0) < self.deaths[partition, offset]:
            self.uncounted.append((partition, offset))

    def revoke(self, number: int) -> None:
        """The partition goes; what of it has not started is taken back, and what runs was not waited for."""
        partition = Partition("t", number)
        lane = self.assignment.lanes.get(partition)
        if lane is None:
            return
        for task in [task for task in self.handed if task.lane is lane]:
            self.handed.remove(task)
            lane.leave()
            lane.put_back(task)
        self._rebalance.revoked([partition])
        self._position.pop(partition)

    def lose(self, number: int) -> None:
        partition = Partition("t", number)
        if partition in self.assignment.lanes:
            self._rebalance.lost([partition])
            self._position.pop(partition)

    def crash(self) -> None:
        """The process dies of what runs; a commit under way has arrived before or never will."""
        if self.running is not None:
            self._note_death(self.running)
        self.begin()

    def _note_death(self, task: Task) -> None:
        """Only what is sure to be counted: the lowest open one of its partition, of which it was noted."""
        partition, offset = task.record.partition, task.record.offset
        position = self.group.get(partition)
        noted = notes.decode(position.notes, position.offset) if position else notes.NOTHING
        done = {n for first, stop in noted.done for n in range(first, stop)} if position else set()
        start = position.offset if position else 0
        open_ones = [r.offset for r in self.logs[partition] if r.offset >= start and r.offset not in done]
        if task.lane.open and offset == min(open_ones) and noted.working is not None and offset < noted.working:
            self.deaths[partition, offset] += 1

    # -- as the consumer, to the committer

    def commit(self, positions: Mapping[Partition, Position]) -> None:
        self.spoken = self._speak(positions)

    def commit_now(self, positions: Mapping[Partition, Position]) -> KafkaFailure | None:
        self._apply(self._speak(positions))
        return None

    def _speak(self, positions: Mapping[Partition, Position]) -> Spoken:
        vouched = {}
        for partition, (offset, text) in positions.items():
            self.longest = max(self.longest, len(text))
            noted = notes.decode(text, offset)
            done = {n for first, stop in noted.done for n in range(first, stop)}
            said = {r.offset for r in self.logs[partition] if r.offset < offset or r.offset in done}
            self.early += [(partition, wrong) for wrong in said - self.answered[partition]]
            vouched[partition] = frozenset(self.settled[self.assignment.lanes[partition]])
        return Spoken(positions, vouched)

    def _apply(self, spoken: Spoken) -> None:
        self.group.update(spoken.positions)
        for partition, offsets in spoken.vouched.items():
            self.vouched[partition] = self.vouched.get(partition, frozenset()) | offsets

    def arrive(self, *, applied: bool, heard: bool) -> None:
        """The commit under way reaches the broker or not, and its sender hears of that or of a failure."""
        spoken, self.spoken = self.spoken, None
        assert spoken is not None
        if applied:
            self._apply(spoken)
        self._rebalance.committed(spoken.positions, None if applied and heard else FAILED)

    # -- the poll thread

    def take(self, starts: Starts) -> list[Task]:
        tasks = self.assignment.take(starts, self.now, handed=self.count_all_handed())
        assert all(task.lane.open and not task.lane.leaving for task in tasks)
        assert starts.free or all(task.record.offset < task.lane.permit for task in tasks), "started without a permit"
        self.handed.extend(tasks)
        self.assignment.ask(starts, self.now, handed=self.count_all_handed())
        return tasks

    def collect(self, *, after: float = 0.0) -> None:
        outcome = self.inbox.popleft()
        task, verdict = outcome.task, outcome.verdict
        lane = task.lane
        if not lane.open:
            lane.done(task)
        elif verdict is Verdict.NOT_STARTED:
            lane.put_back(task)
        elif verdict is Verdict.DROPPED:
            task.attempt -= 1
            lane.put_back(task)
        elif verdict is Verdict.FAILED:
            lane.failed(task)
            lane.put_back(task, self.now + after)
        else:
            lane.done(task)
            lane.unconfirmed += 1
            self._finished[lane].add(task.record.offset)
            self.produced.append(task)

    def confirm(self, pick: int) -> None:
        task = self.produced.pop(pick % len(self.produced))
        lane, offset = task.lane, task.record.offset
        lane.unconfirmed -= 1
        self.answered[task.record.partition].add(offset)
        if lane.open:
            self.settled[lane].add(offset)
        self.committer.settled(lane, offset)

    # -- the service thread

    def look(self) -> None:
        task = self.handed.popleft()
        if task.lane.leaving or (task.strand is not None and task.strand.stalled):
            self.inbox.append(Outcome(task, Verdict.NOT_STARTED))
            return
        self._note_start(task)
        task.attempt += 1
        self.running = task

    def _note_start(self, task: Task) -> None:
        lane, record = task.lane, task.record
        finished = {o.task.record.offset for o in self.inbox if o.task.lane is lane and o.verdict is Verdict.OK}
        for lower in self.admitted[lane] - self._finished[lane] - finished:
            if lower < record.offset and self._together(lane.partition, lower, record):
                self.overtaken.append((record.offset, lower))
        if lane.open and record.offset in self.vouched.get(record.partition, ()):
            self.again.append((record.partition, record.offset))

    def _together(self, partition: Partition, lower: int, record: Record) -> bool:
        """Whether one of them may not overtake the other."""
        if self.ordering == "partition":
            return True
        key = next(one.key for one in self.logs[partition] if one.offset == lower)
        return self.ordering == "key" and key is not None and key == record.key

    def finish(self, verdict: Verdict) -> None:
        task, self.running = self.running, None
        assert task is not None
        if verdict is not Verdict.OK and task.strand is not None:
            task.strand.stalled = True
        self.inbox.append(Outcome(task, verdict))

    # -- what is where

    def count_all_handed(self) -> int:
        return len(self.handed) + len(self.inbox) + (self.running is not None)

    def at_the_service(self, lane: Lane) -> list[Task]:
        tasks = [*self.handed, *(outcome.task for outcome in self.inbox)]
        tasks += [self.running] if self.running is not None else []
        return [task for task in tasks if task.lane is lane]

    def run_dry(self, starts: Starts) -> None:
        """Let everything finish well."""
        for number in self.numbers:
            self.assign(number)
        idle = 0
        while idle < 5:
            self.now += LONG
            before = self._so_far()
            if self.spoken is not None:
                self.arrive(applied=True, heard=True)
            for number in self.numbers:
                self.deliver(number, 5)
            self.take(starts)
            while self.handed or self.running:
                self.look() if self.running is None else self.finish(Verdict.OK)
            while self.inbox:
                self.collect()
            while self.produced:
                self.confirm(0)
            self.committer.tick(self.now)
            idle = idle + 1 if self._so_far() == before else 0

    def _so_far(self) -> tuple[dict[Partition, Position], int, dict[Partition, int]]:
        return dict(self.group), sum(map(len, self.answered.values())), dict(self._position)
