"""What happens when partitions come and go. Called inside the client's poll, on the poll thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from worker.core.notes import NOTHING, Notes, NotesError, decode, gaps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from worker.core.assignment import Assignment
    from worker.core.lane import Lane
    from worker.core.model import Partition
    from worker.kafka.ports import KafkaFailure, Position
    from worker.metrics import Metrics
    from worker.process.committer import Committer
    from worker.vocabulary import Event

log = structlog.get_logger("rebalance")


class Rebalance:
    """The listener of the consumer.

    ``hold(lanes)`` returns when nothing of these lanes runs or waits for its confirmation, or their time is up;
    ``abandon(lane)`` asks the running task of a lost lane to stop; ``decide()`` returns when nothing is under way any
    more that could commit a lost lane; ``joined()`` is called after every assignment, and ``begin(partitions)`` returns
    where to begin instead of the committed offsets.
    """

    def __init__(
        self,
        assignment: Assignment,
        committer: Committer,
        metrics: Metrics,
        hold: Callable[[Sequence[Lane]], None],
        abandon: Callable[[Lane], None],
        decide: Callable[[], None],
        joined: Callable[[], None],
        begin: Callable[[Sequence[Partition]], Mapping[Partition, int]],
    ) -> None:
        self._assignment = assignment
        self._committer = committer
        self._metrics = metrics
        self._hold = hold
        self._abandon = abandon
        self._decide = decide
        self._joined = joined
        self._begin = begin

    def assigned(self, positions: Mapping[Partition, Position | None]) -> Mapping[Partition, int]:
        """A new lease for each, with what the former owner has noted."""
        self._note("partitions.assigned", list(positions))
        noted = {partition: self._read(partition, position) for partition, position in positions.items()}
        bases = {partition: position.offset if position else None for partition, position in positions.items()}
        for lane in self._assignment.assign(bases, noted):
            lane.confirmed = positions[lane.partition]
            self._tell_of_lost(lane, noted[lane.partition])
        self._joined()
        return self._begin(list(positions))

    @staticmethod
    def _read(partition: Partition, position: Position | None) -> Notes:
        if position is None:
            return NOTHING
        try:
            return decode(position.notes, position.offset)
        except NotesError as error:
            log.warning("notes.ignored", partition=str(partition), offset=position.offset, reason=str(error))
            return NOTHING

    def _tell_of_lost(self, lane: Lane, noted: Notes) -> None:
        """At-most-once: what a former owner has started and not answered will not be started again."""
        if noted.started is None or lane.base is None:
            return
        lane.changed = True  # told once
        missing = gaps(noted.started, lane.base, noted.done)
        count = sum(stop - first for first, stop in missing)
        self._metrics.add("lost_total", count)
        log.warning("tasks.lost", partition=str(lane.partition), offsets=[f"{a}-{b - 1}" for a, b in missing][:50])

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """Let go of what has not started, hold for what runs, commit, and end the leases."""
        self._note("partitions.revoked", partitions)
        lanes = self._lanes(partitions)
        for lane in lanes:
            lane.leave()
        self._hold(lanes)
        self._committer.commit_now(lanes, working=False)
        self._assignment.close(partitions)

    def lost(self, partitions: Sequence[Partition]) -> None:
        """End the leases at once: the partitions may already run elsewhere.

        A coordinator may forget that it has given us up, and take what we have sent before for what it is: it has to be
        decided before we are given anything again (docs/decisions/0074).
        """
        self._note("partitions.lost", partitions)
        for lane in self._lanes(partitions):
            self._abandon(lane)
        self._assignment.close(partitions)
        self._decide()

    def committed(self, positions: Mapping[Partition, Position], failure: KafkaFailure | None) -> None:
        """Pass the answer to a commit on."""
        self._committer.answered(positions, failure)

    def _lanes(self, partitions: Sequence[Partition]) -> list[Lane]:
        return [self._assignment.lanes[p] for p in partitions if p in self._assignment.lanes]

    def _note(self, event: Event, partitions: Sequence[Partition]) -> None:
        self._metrics.add("rebalances_total", label=event.removeprefix("partitions."))
        log.info(event, partitions=[str(partition) for partition in partitions])
