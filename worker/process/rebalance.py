"""What happens when partitions come and go. Called inside the client's poll, on the poll thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from worker.core.assignment import Assignment
    from worker.core.lane import Lane
    from worker.core.model import Partition
    from worker.kafka.ports import KafkaFailure
    from worker.metrics import Metrics
    from worker.process.committer import Committer
    from worker.vocabulary import Event

log = structlog.get_logger("rebalance")


class Rebalance:
    """The listener of the consumer.

    ``hold(lanes)`` returns when nothing of these lanes runs or waits for its confirmation, or their time is up;
    ``abandon(lane)`` asks the running task of a lost lane to stop.
    """

    def __init__(
        self,
        assignment: Assignment,
        committer: Committer,
        metrics: Metrics,
        hold: Callable[[Sequence[Lane]], None],
        abandon: Callable[[Lane], None],
    ) -> None:
        self._assignment = assignment
        self._committer = committer
        self._metrics = metrics
        self._hold = hold
        self._abandon = abandon

    def assigned(self, partitions: Sequence[Partition]) -> None:
        """A new lease for each."""
        self._note("partitions.assigned", partitions)
        self._assignment.assign(partitions)

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """Let go of what has not started, hold for what runs, commit, and end the leases."""
        self._note("partitions.revoked", partitions)
        lanes = self._lanes(partitions)
        for lane in lanes:
            lane.leave()
        self._hold(lanes)
        self._committer.commit_now(lanes)
        self._assignment.close(partitions)

    def lost(self, partitions: Sequence[Partition]) -> None:
        """End the leases at once: the partitions may already run elsewhere."""
        self._note("partitions.lost", partitions)
        for lane in self._lanes(partitions):
            self._abandon(lane)
        self._assignment.close(partitions)

    def committed(self, offsets: Mapping[Partition, int], failure: KafkaFailure | None) -> None:
        """Pass the answer to a commit on."""
        self._committer.answered(offsets, failure)

    def _lanes(self, partitions: Sequence[Partition]) -> list[Lane]:
        return [self._assignment.lanes[p] for p in partitions if p in self._assignment.lanes]

    def _note(self, event: Event, partitions: Sequence[Partition]) -> None:
        self._metrics.add("rebalances_total", label=event.removeprefix("partitions."))
        log.info(event, partitions=[str(partition) for partition in partitions])
