"""Fetches records, and pauses and resumes partitions. Used on the poll thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from worker.core.fetch_fairness import FetchFairness
from worker.core.flow import BUFFER_BYTES, BUFFER_RECORDS, FetchPlan, FlowControl, has_its_share
from worker.core.model import key_text
from worker.core.task_state import Origin
from worker.executors.port import running_tasks

if TYPE_CHECKING:
    from worker.core.model import PartitionEnd, Record, Task
    from worker.core.owned_partition import OwnedPartition
    from worker.executors.port import Executor
    from worker.kafka.ports import Consumer
    from worker.process.committer import Committer
    from worker.process.dispatcher import Dispatcher
    from worker.process.responder import Responder
    from worker.process.shared import Shared

IDLE_WAIT = 0.1  # seconds in the client's poll while there is nothing to do
COMMIT_WAIT = 0.001  # the same while a task waits for a commit, because the reply does not end the client's poll
COMMIT_WAIT_LIMIT = 0.05  # that wait grows up to this, so that an unavailable broker does not get 1,000 polls a second

log = structlog.get_logger("fetcher")


class Fetcher:
    """Keep the queues filled as far as flow control allows."""

    def __init__(
        self,
        shared: Shared,
        consumer: Consumer,
        executor: Executor,
        dispatcher: Dispatcher,
        responder: Responder,
        committer: Committer,
    ) -> None:
        self.commit_wait = COMMIT_WAIT  # seconds to wait for the reply to a commit that a task needs
        self._config = shared.config
        self._consumer = consumer
        self._assignment = shared.assignment
        self._executor = executor
        self._dispatcher = dispatcher
        self._responder = responder
        self._committer = committer
        self._lifecycle = shared.lifecycle
        self._metrics = shared.metrics
        self._flow = FlowControl()
        self._fairness = FetchFairness()

    def fetch(self, now: float) -> bool:
        """Poll the client, and wait for records if there is nothing else to do.

        Return whether the loop should continue at once, because records or the reply to a commit came, or because the
        fetcher has already waited.
        """
        idle = not self._dispatcher.in_slot and not self._responder.outstanding
        running = self._executor.running if self._dispatcher.in_flight else None
        if running is not None:
            self._dispatcher.duration.running(running.seconds)
        outage = self._committer.starts_are_overdue(now)
        startable, startable_bytes = self._assignment.startable(now, outage=outage)
        plan = self._plan(now, startable, startable_bytes, idle=idle)
        self._apply_pause(plan, idle=idle, now=now)
        commit_in_flight = self._committer.in_flight
        waits_for_commit = commit_in_flight and (startable > 0 or outage)
        self.commit_wait = min(COMMIT_WAIT_LIMIT, self.commit_wait * 1.1) if waits_for_commit else COMMIT_WAIT
        go_on = False
        if plan.limit is not None:
            # The task that waits for a commit is already due, so its time does not say how long to wait.
            longest = self.commit_wait if waits_for_commit else self._until_due(now)
            go_on = self._admit(self._consumer.poll(plan.limit, longest if idle else 0.0)) or idle
        elif commit_in_flight:
            self._admit(self._consumer.poll(1, 0.0))  # the reply to a commit arrives inside a poll
        return go_on or (commit_in_flight and not self._committer.in_flight)

    def _plan(self, now: float, startable: int, startable_bytes: int, *, idle: bool) -> FetchPlan:
        buffer = self._buffer()
        plan = self._flow.plan(
            ahead=startable + max(0, self._dispatcher.in_slot - 1),
            ahead_bytes=startable_bytes,
            buffer=buffer,
            idle=idle,
            closed=self._lifecycle.leaving,
            now=now,
        )
        pauses_others = len(self._assignment) > 1 and self._check_fairness(now)
        if pauses_others and plan.limit is None and startable_bytes < BUFFER_BYTES:
            plan = plan._replace(limit=max(1, buffer // len(self._assignment)))
        return plan._replace(paused=plan.paused or pauses_others)

    def _check_fairness(self, now: float) -> bool:
        """Return whether partitions are paused for one whose records wait behind theirs in the client."""
        if self._fairness.is_due(now):
            empty = [owned for owned in self._assignment if not (owned.queue or owned.in_flight or owned.paused)]
            starved = [owned for owned in empty if self._has_more(owned)]
            self._fairness.check(starved, now)
        return self._fairness.pauses_others(now)

    def _admit(self, records: list[Record | PartitionEnd]) -> bool:
        if not records:
            return False
        count, kept, repeated = self._assignment.admit(records)
        self._metrics.add("records_total", count)
        self._metrics.add("record_bytes_total", kept)
        for record in repeated:
            self._metrics.add("repeated_offsets_total")
            log.error(
                "record.repeated", **Origin.of(record.partition, record.offset)._asdict(), key=key_text(record.key)
            )
        return count > 0

    def _buffer(self) -> int:
        """Return how many records to queue: two seconds of work, and enough for a batch and a look ahead."""
        config = self._config
        # With a state topic, one record of each partition shows whether other processes could help during a long task.
        least = 2 * config.batch_size if config.batch_size > 1 else int(bool(config.state_topic))
        return max(self._dispatcher.duration.buffer(), least, config.peek + 2 if config.peek else 0)

    def _apply_pause(self, plan: FetchPlan, *, idle: bool, now: float) -> None:
        """Pause and resume single partitions, once per change."""
        wanted = {owned: self._should_pause(owned, plan, idle=idle, now=now) for owned in self._assignment}
        pause = [owned for owned, paused in wanted.items() if paused and not owned.paused]
        resume = [owned for owned, paused in wanted.items() if owned.paused and not paused]
        if pause:
            self._consumer.pause([owned.partition for owned in pause])
            self._metrics.add("pauses_total", len(pause))
        if resume:
            self._consumer.resume([owned.partition for owned in resume])
        for owned in (*pause, *resume):
            owned.paused = wanted[owned]

    def _should_pause(self, owned: OwnedPartition, plan: FetchPlan, *, idle: bool, now: float) -> bool:
        if self._lifecycle.leaving or owned.lease.leaving:
            return True
        queue = owned.queue
        if len(queue) >= BUFFER_RECORDS or queue.size >= BUFFER_BYTES:
            return True  # enough, even if the task waits for an attempt
        if not plan.paused and not queue.is_waiting(now):
            return False
        held = owned.starts.held if self._committer.starts_are_overdue(now) else ()
        startable, size = (len(queue), queue.size) if queue.is_waiting(now) else queue.startable(now, held=held)
        waiting = startable + self._unstarted(owned)
        buffer = max(self._buffer(), 1) if idle else self._buffer()
        return has_its_share(waiting, size, buffer=buffer, partitions=len(self._assignment))

    def _unstarted(self, owned: OwnedPartition) -> int:
        """Return how many tasks of this partition the executor has that do not run yet."""
        return owned.in_flight - sum([task.claim is owned.lease for task in running_tasks(self._executor)])

    def _until_due(self, now: float) -> float:
        """Return the seconds until something is due by the clock, at most ``IDLE_WAIT``."""
        due = min(self._responder.next_due(), now + IDLE_WAIT)
        if self._lifecycle.may_start:
            due = min(due, self._dispatcher.next_due())
        return max(0.001, due - now)

    # -- waiting work

    def work_waits(self) -> bool:
        """Return whether a request waits."""
        return any(self._has_work(owned) for owned in self._assignment)

    def work_waits_behind(self, task: Task, now: float) -> bool:
        """Return whether some request could run now if this process were not running this task."""
        for owned in self._assignment:
            ordered = self._config.ordering == "partition" and owned.partition == task.record.partition
            if not ordered and not owned.queue.is_waiting(now) and self._has_work(owned):
                return True
        return False

    def _has_work(self, owned: OwnedPartition) -> bool:
        """Return whether a request of this partition waits in its queue, in the executor or in the client."""
        return bool(owned.queue) or self._unstarted(owned) > 0 or self._has_more(owned)

    def _has_more(self, owned: OwnedPartition) -> bool:
        """Return whether the client knows of records that were not fetched."""
        return self._consumer.end(owned.partition) > owned.next_offset
