"""Commits what is settled, under a valid lease only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from worker.core.commits import CommitPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from worker.core.assignment import Assignment
    from worker.core.lane import Lane
    from worker.core.model import Partition
    from worker.kafka.ports import Consumer, KafkaFailure
    from worker.metrics import Metrics

log = structlog.get_logger("committer")


class Committer:
    """Turns settled offsets into commits, asynchronous while polling, synchronous inside a rebalance. Poll thread."""

    def __init__(
        self, consumer: Consumer, assignment: Assignment, metrics: Metrics, clock: Callable[[], float]
    ) -> None:
        self._consumer = consumer
        self._assignment = assignment
        self._metrics = metrics
        self._clock = clock
        self._policy = CommitPolicy(clock())
        self._dirty: set[Lane] = set()
        self._under_way: set[Lane] = set()  # in the commit that was not answered yet

    def settled(self, lane: Lane, offset: int) -> None:
        """The answer to ``offset`` is confirmed. After the end of its lease that is only counted."""
        if not lane.open:
            self._metrics.add("dropped_total")
        elif lane.ledger.settle(offset):
            self._dirty.add(lane)

    def tick(self, now: float) -> None:
        """Send a commit if one is due."""
        if self._dirty and self._policy.due(now):
            self._send(self._offsets(self._dirty), now)
        elif self._policy.keep_alive_due(now):
            self._send({lane.partition: lane.watermark for lane in self._lanes() if lane.watermark is not None}, now)

    @property
    def pending(self) -> bool:
        """Whether something settled is not known to be committed."""
        return self._policy.in_flight or any(lane.open for lane in self._dirty)

    def commit_now(self, lanes: Iterable[Lane]) -> None:
        """Commit these lanes and wait for it: for callbacks, in which no other answer could arrive."""
        chosen = set(lanes)
        for lane in chosen & self._under_way:
            lane.committed = None  # the answer will not be heard here, and it may be a failure
        offsets = self._offsets(chosen & (self._dirty | self._under_way))
        self._dirty -= chosen
        self._under_way -= chosen
        if not offsets:
            return
        failure = self._consumer.commit_now(offsets)
        self._count(offsets, failure)

    def answered(self, offsets: Mapping[Partition, int], failure: KafkaFailure | None) -> None:
        """The answer to an asynchronous commit."""
        self._policy.answered(self._clock(), failed=failure is not None)
        self._under_way.clear()
        self._count(offsets, failure)

    def _send(self, offsets: dict[Partition, int], now: float) -> None:
        self._dirty.clear()
        if offsets:
            self._policy.sent(now)
            self._under_way = {self._assignment.lanes[partition] for partition in offsets}
            self._consumer.commit(offsets)

    def _offsets(self, lanes: Iterable[Lane]) -> dict[Partition, int]:
        offsets = {}
        for lane in lanes:
            if lane.open and lane.uncommitted is not None:
                offsets[lane.partition] = lane.committed = lane.uncommitted
        return offsets

    def _lanes(self) -> Iterable[Lane]:
        return self._assignment.lanes.values()

    def _count(self, offsets: Mapping[Partition, int], failure: KafkaFailure | None) -> None:
        if failure is None:
            self._metrics.add("commits_total")
            return
        self._metrics.add("commit_failures_total", label=failure.code)
        log.warning("commit.failed", code=failure.code, reason=failure.message)
        for partition in offsets:
            lane = self._assignment.lanes.get(partition)
            if lane is not None and lane.watermark is not None:
                lane.committed = None
                self._dirty.add(lane)
