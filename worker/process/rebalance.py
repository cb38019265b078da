"""Handles assigned, revoked and lost partitions. Used on the poll thread."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from worker.core.commit_metadata import EMPTY, CommitMetadata, MetadataError, decode
from worker.core.deadline import Deadline
from worker.core.detached import begin_with, lost
from worker.process.crash_reports import crash_of
from worker.process.store_bridge import StoreBridge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from worker.core.commit_metadata import Range
    from worker.core.model import Partition
    from worker.core.owned_partition import OwnedPartition
    from worker.kafka.ports import Consumer, Position
    from worker.process.committer import Committer
    from worker.process.crash_reports import CrashReport
    from worker.process.dispatcher import Dispatcher
    from worker.process.holder import Holder
    from worker.process.long_tasks import LongTasks
    from worker.process.responder import Responder
    from worker.process.shared import Shared
    from worker.process.snapshot import Snapshots
    from worker.vocabulary import Event

COMMIT_SECONDS = 10.0  # for the last commit of a partition without running tasks
GIVE_UP_SECONDS = 1.0  # to commit that a task was given up

log = structlog.get_logger("rebalance")


@dataclass(slots=True)
class _Held:
    """A revoked partition that is not released yet."""

    owned: OwnedPartition
    hold: Deadline
    grace: Deadline | None = None  # since its task was cancelled
    commit: Deadline | None = None  # since none of its tasks runs


class Rebalance:
    """Begins leases, holds revoked partitions for their running tasks, and ends leases. See ``RebalanceListener``.

    A revoked partition is held until its running task is settled or detached and the last commit is confirmed.
    ``serve`` checks that once per turn of the main loop. A task that outlasts the hold is cancelled, and after
    ``cancel_wait`` the partition is released anyway.
    """

    def __init__(
        self,
        shared: Shared,
        consumer: Consumer,
        committer: Committer,
        responder: Responder,
        dispatcher: Dispatcher,
        holder: Holder,
        store: StoreBridge | None,
        snapshots: Snapshots,
        long_tasks: LongTasks,
        crash_reports: Callable[[], Mapping[str, CrashReport]],
    ) -> None:
        self._cancel_wait = shared.config.cancel_wait
        self._starts_once = shared.guarantee.starts_once
        self._consumer = consumer
        self._assignment = shared.assignment
        self._committer = committer
        self._responder = responder
        self._dispatcher = dispatcher
        self._holder = holder
        self._store = store
        self._metrics = shared.metrics
        self._hold_seconds = shared.config.revoke_hold
        self._clock = shared.clock
        self._snapshots = snapshots
        self._long_tasks = long_tasks
        self._crash_reports = crash_reports
        self.held: dict[Partition, _Held] = {}  # the revoked partitions that are not released yet

    # -- assigned

    def ready(self, partitions: Sequence[Partition]) -> bool:
        """See ``RebalanceListener``.

        A coordinator may forget that it removed this member and accept what an earlier lease has sent. So the outcome
        of that must be known before a new lease reads the committed offsets.
        """
        return self._long_tasks.begin(partitions) and self._responder.quiesce()

    def assigned(self, positions: Mapping[Partition, Position | None]) -> Mapping[Partition, int] | None:
        """See ``RebalanceListener``: begin a lease for each, with what the previous owner recorded."""
        partitions = list(positions)
        beginning = self._store.begin(positions) if self._store is not None else None
        if self._store is not None and beginning is None:
            return None
        self._report("partitions.assigned", partitions)
        again = self._begin(positions)
        self._committer.fenced = False  # that was an earlier membership
        self._responder.assigned()
        self._holder.assigned(self._clock())
        if beginning is None:
            return again
        StoreBridge.resend(beginning, self._assignment, self._responder)
        return beginning.offsets

    def _begin(self, positions: Mapping[Partition, Position | None]) -> Mapping[Partition, int]:
        """Begin a lease for each. Return the offsets below the committed ones from which to read again."""
        offsets: dict[Partition, int | None] = {}
        left: dict[Partition, CommitMetadata] = {}
        again: dict[Partition, int] = {}
        for partition, position in positions.items():
            offsets[partition], left[partition] = None, EMPTY
            if position is not None:
                found = self._read(partition, position)
                offset, completed = begin_with(position.offset, found)
                offsets[partition], left[partition] = offset, dataclasses.replace(found, completed=completed)
                if missing := lost(position.offset, found):
                    self._report_lost_tasks(partition, missing)
                if offset < position.offset:
                    again[partition] = offset
        reports = self._crash_reports()
        crashes = {partition: crash_of(reports.get(found.started_by), partition) for partition, found in left.items()}
        for owned in self._assignment.assign(offsets, left, crashes):
            owned.committed = position = positions[owned.partition]
            owned.needs_commit = position is None and self._store is not None  # see ``StoreBridge``
            if position is not None:
                owned.floor = position.offset
                owned.room.recorded(len(position.metadata))
                owned.changed = left[owned.partition].unanswered_from is not None  # report lost requests only once
            self._long_tasks.assigned(owned, left[owned.partition].completed)
            owned.charge_crash()
        return again

    @staticmethod
    def _read(partition: Partition, position: Position | None) -> CommitMetadata:
        if position is None:
            return EMPTY
        try:
            return decode(position.metadata, position.offset)
        except MetadataError as error:
            log.warning("commit_metadata.ignored", partition=str(partition), offset=position.offset, reason=str(error))
            return EMPTY

    def _report_lost_tasks(self, partition: Partition, missing: Sequence[Range]) -> None:
        """Report requests that a previous owner started but did not answer (at-most-once). None starts again."""
        self._metrics.add("lost_total", sum(stop - first for first, stop in missing))
        self._snapshots.expedite()
        offsets = [f"{first}-{stop - 1}" for first, stop in missing][:50]
        log.warning("tasks.lost", partition=str(partition), offsets=offsets)

    # -- revoked

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """See ``RebalanceListener``: drop tasks that have not started, and hold the rest."""
        self._report("partitions.revoked", partitions)
        limit = self._hold_seconds[self._consumer.protocol]
        revoked = [self._assignment.partitions[one] for one in partitions if one in self._assignment.partitions]
        for owned in revoked:
            owned.leave()
            self.held[owned.partition] = _Held(owned, Deadline.after(limit, self._clock()))
        self._dispatcher.withdraw([owned.lease for owned in revoked])
        self._holder.revoked(self._clock())
        busy = [str(owned.partition) for owned in revoked if owned.busy]
        if busy:
            log.info("partitions.holding", partitions=busy, limit=limit)
        unknown = [one for one in partitions if one not in self.held]
        self._consumer.release(unknown)

    def serve(self, now: float, *, hurry: bool) -> None:
        """Release the held partitions that no task needs any more. In a ``hurry``, do not wait for running tasks."""
        if self._committer.fenced or self._responder.fenced:  # the client learns this only when all are released
            self.lost(list(self._assignment.partitions))
            return
        done = [partition for partition, held in self.held.items() if self._may_go(held, now, hurry=hurry)]
        for partition in done:
            del self.held[partition]
        self._assignment.end(done)
        self._consumer.release(done)

    def _may_go(self, held: _Held, now: float, *, hurry: bool) -> bool:
        owned = held.owned
        if owned.busy and not hurry and not held.hold.passed(now):
            self._holder.detach(owned, now)
        if not owned.busy:
            held.commit = held.commit or Deadline.after(COMMIT_SECONDS, now)
            known = self._committer.is_clean(owned) and not self._long_tasks.pending(owned.partition)
            return known or held.commit.passed(now)
        if not (hurry or held.hold.passed(now)):
            return False
        held.grace = held.grace or Deadline.after(self._cancel_wait, now)
        self._dispatcher.cancel("revoked", now, [owned.lease])
        if not held.grace.passed(now):
            return False
        if self._starts_once:  # a clean commit would let the task start again
            return True
        owned.given_up = True  # the next commit says that its attempt does not count
        held.commit = held.commit or Deadline.after(GIVE_UP_SECONDS, now)
        return self._committer.is_clean(owned) or held.commit.passed(now)

    # -- lost

    def lost(self, partitions: Sequence[Partition]) -> None:
        """See ``RebalanceListener``: end the leases at once."""
        if not any(partition in self._assignment.partitions for partition in partitions):
            return  # already known
        self._report("partitions.lost", partitions)
        self._assignment.end(partitions)
        held = [partition for partition in partitions if self.held.pop(partition, None)]
        self._consumer.release(held)

    def _report(self, event: Event, partitions: Sequence[Partition]) -> None:
        self._metrics.add("rebalances_total", label=event.removeprefix("partitions."))
        log.info(event, partitions=[str(partition) for partition in partitions])
