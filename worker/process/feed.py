"""What goes in: fetching, pausing, asking for permits, and handing tasks over to the service thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.core import starts
from worker.core.flow import BUFFER_BYTES, BUFFER_RECORDS, Fetch, Intake, Pace, has_its_share
from worker.core.relief import Relief

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.core.assignment import Assignment
    from worker.core.lane import Lane
    from worker.core.lifecycle import Lifecycle
    from worker.core.model import End, Record, Task
    from worker.core.starts import Starts
    from worker.handlers.batch import BatchRunner
    from worker.handlers.runner import Runner
    from worker.kafka.ports import Consumer
    from worker.metrics import Metrics
    from worker.process.committer import Committer
    from worker.process.config import ProcessConfig
    from worker.process.service import Service
    from worker.process.settlement import Settlement

IDLE_WAIT = 0.1  # seconds in the client's poll while there is nothing to do
PERMIT_WAIT = 0.002  # the same while a task waits for a commit: its answer does not end the client's poll
# Answers under way: more would only fill memory while the broker is away.
MAX_UNCONFIRMED = 10_000
MAX_UNCONFIRMED_BYTES = 32 * 1024 * 1024


class Feed:
    """Keeps the service supplied, and no more than that. Poll thread."""

    def __init__(
        self,
        config: ProcessConfig,
        consumer: Consumer,
        assignment: Assignment,
        service: Service,
        runner: Runner | BatchRunner,
        answers: Settlement,
        committer: Committer,
        lifecycle: Lifecycle,
        metrics: Metrics,
    ) -> None:
        self.handed = 0  # tasks the service has, those of ended leases included
        self.pace = Pace()
        self._config = config
        self._consumer = consumer
        self._assignment = assignment
        self._service = service
        self._runner = runner
        self._answers = answers
        self._committer = committer
        self._lifecycle = lifecycle
        self._metrics = metrics
        self._intake = Intake()
        self._relief = Relief()
        self._gathering_since: float | None = None  # when the first task of a batch was there

    # -- handing over

    def hand_over(self, now: float) -> None:
        """Keep the service supplied: the next chunk when one task is left, or none where tasks are very short."""
        answers = self._answers
        if answers.outstanding >= MAX_UNCONFIRMED or answers.outstanding_bytes >= MAX_UNCONFIRMED_BYTES:
            return
        if not self._lifecycle.may_start:
            return
        rule = self._rule(now)
        if not self._batch_is_due(rule, now):
            return
        while self.handed < rule.ahead:
            tasks = self._assignment.take(rule, now, handed=self.handed)
            if not tasks:
                break
            self._pass_on(tasks)
        self._assignment.ask(rule, now, handed=self.handed)

    def ask(self, now: float) -> None:
        """Ask for the permits of what is to start next, if nothing runs: before there is any waiting for records."""
        if not self.handed and self._lifecycle.may_start:
            self._assignment.ask(self._rule(now), now, handed=0)

    def _rule(self, now: float) -> Starts:
        config = self._config
        at_most_once = config.guarantee == "at-most-once"
        free = not at_most_once and self._committer.overdue(now)  # while the broker is away, work goes on
        if config.batch_size > 1:
            return starts.of_batches(size=config.batch_size, one_lane=config.batch_per_partition, free=free)
        return starts.of_singles(
            chunk=self.pace.chunk(),
            seconds=self.pace.seconds,
            round_trip=self._committer.round_trip,
            idle=not self.handed and not at_most_once,
            strict=config.max_attempts == 1,
            free=free,
        )

    def _batch_is_due(self, rule: Starts, now: float) -> bool:
        """Whether a batch is full, or its first task has waited long enough for company; and all of it may start."""
        size = self._config.batch_size
        if size == 1:
            return True
        ready = self._assignment.ready(now, one_lane=self._config.batch_per_partition)
        if not ready:
            self._gathering_since = None
            return False
        if self._gathering_since is None:
            self._gathering_since = now
        if ready < size and now - self._gathering_since < self._config.batch_wait:
            return False
        self._assignment.ask(rule, now, handed=self.handed)
        return rule.free or not self._assignment.waits_for_permits

    def _pass_on(self, tasks: list[Task]) -> None:
        if self._config.peek:
            row = [task.record for task in tasks] + self._assignment.peek(self._config.peek)
            for at, task in enumerate(tasks, 1):
                task.upcoming = tuple(row[at : at + self._config.peek])
        self._gathering_since = None
        self.handed += len(tasks)
        self._service.hand_over(tasks)

    def recall(self, lanes: Sequence[Lane]) -> None:
        """Take back what the service has not started of these lanes."""
        for task in self._service.recall(lanes):
            self.handed -= 1
            task.lane.put_back(task)

    # -- fetching

    def fetch(self, now: float) -> bool:
        """Take records if there is room, waiting if there is nothing else to do. False: a wait is still due."""
        idle = not self.handed and not self._answers.outstanding
        running = self._runner.running
        if running is not None:
            self.pace.running(running[1])
        startable, startable_bytes = self._assignment.startable(now)
        buffer = self._buffer()
        fetch = self._intake.decide(
            ahead=startable + max(0, self.handed - 1),
            ahead_bytes=startable_bytes,
            buffer=buffer,
            idle=idle,
            closed=self._lifecycle.leaving,
            now=now,
        )
        relief = self._look_around(now)
        if relief and fetch.limit is None and startable_bytes < BUFFER_BYTES:
            fetch = fetch._replace(limit=max(1, buffer // len(self._assignment.lanes)))
        self._apply_pause(fetch._replace(paused=fetch.paused or relief), idle=idle, now=now)
        waits_for_commit = self._committer.in_flight and bool(startable)
        if fetch.limit is None:
            if waits_for_commit:
                self._admit(self._consumer.poll(1, 0.0))  # only to be told of it: that happens inside a poll
            return False
        longest = PERMIT_WAIT if waits_for_commit else IDLE_WAIT
        timeout = min(longest, self._next_due(now)) if idle else 0.0
        self._admit(self._consumer.poll(fetch.limit, timeout))
        return idle

    def _look_around(self, now: float) -> bool:
        """Whether lanes with their share stand back now, for one whose records wait behind theirs in the client."""
        if self._relief.due(now):
            lanes = self._assignment.lanes.values()
            empty = [lane for lane in lanes if not (lane.queue or lane.handed or lane.paused)]
            self._relief.look([lane for lane in empty if self._consumer.end(lane.partition) > lane.seen], now)
        return self._relief.under_way(now)

    def _admit(self, records: list[Record | End]) -> None:
        if records:
            count, kept = self._assignment.admit(records)
            self._metrics.add("records_total", count)
            self._metrics.add("record_bytes_total", kept)

    def _buffer(self) -> int:
        """Records to keep ahead of the slot: what the pace asks for, and enough for a batch and a look ahead."""
        config = self._config
        least = 2 * config.batch_size if config.batch_size > 1 else 0
        return max(self.pace.buffer(), least, config.peek + 2 if config.peek else 0)

    def _apply_pause(self, fetch: Fetch, *, idle: bool, now: float) -> None:
        """Pause and resume single partitions, once per change."""
        wanted = {lane: self._to_pause(lane, fetch, idle=idle, now=now) for lane in self._assignment.lanes.values()}
        pause = [lane for lane, paused in wanted.items() if paused and not lane.paused]
        resume = [lane for lane, paused in wanted.items() if lane.paused and not paused]
        if pause:
            self._consumer.pause([lane.partition for lane in pause])
            self._metrics.add("pauses_total", len(pause))
        if resume:
            self._consumer.resume([lane.partition for lane in resume])
        for lane in (*pause, *resume):
            lane.paused = wanted[lane]

    def _to_pause(self, lane: Lane, fetch: Fetch, *, idle: bool, now: float) -> bool:
        if self._lifecycle.leaving:
            return True
        lanes, queue = len(self._assignment.lanes), lane.queue
        if len(queue) >= BUFFER_RECORDS or queue.size >= BUFFER_BYTES:
            return True  # whatever it waits for, it is enough
        if not fetch.paused and not queue.waits(now):
            return False
        running = self._runner.running
        startable, size = (len(queue), queue.size) if queue.waits(now) else queue.startable(now)
        waiting = startable + lane.handed - (running is not None and running[0].lane is lane)
        buffer = max(self._buffer(), 1) if idle else self._buffer()
        return has_its_share(waiting, size, buffer=buffer, lanes=lanes)

    def _next_due(self, now: float) -> float:
        """Seconds until something is due by the clock."""
        due = min(self._answers.next_repeat(), now + 1)
        if self._lifecycle.may_start:
            due = min(due, self._assignment.next_ready())
            if self._gathering_since is not None:
                due = min(due, self._gathering_since + self._config.batch_wait)
        return max(0.001, due - now)
