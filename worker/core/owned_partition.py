"""One assigned partition: its lease, its waiting tasks, its offsets and its start log."""

from __future__ import annotations

import bisect
import dataclasses
import math
from typing import TYPE_CHECKING

from worker.core.commit_metadata import EMPTY, MOST_DETACHED, CommitMetadata, Detached
from worker.core.former_ranges import FormerRanges
from worker.core.keyed_queue import KeyedQueue
from worker.core.lease import Lease
from worker.core.metadata_room import MetadataRoom
from worker.core.model import Task
from worker.core.offsets import OffsetLedger
from worker.core.queues import PartitionQueue
from worker.core.start_log import StartLog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from worker.core.crash import Crash
    from worker.core.model import Partition, Record
    from worker.core.queues import TaskQueue

MAX_RANGES = 1_000  # more do not fit into the commit metadata


class OwnedPartition:
    """What a process knows about one partition under one lease. Used only on the poll thread.

    ``start_offset`` is the group's committed offset when the lease began, or None if there was none.
    """

    __slots__ = (
        "_blocking",
        "_committed_ranges",
        "_end",
        "_former",
        "_highest_answered",
        "_in_order",
        "_out_of_order",
        "cancelled_from",
        "changed",
        "committed",
        "committed_detached",
        "committing",
        "detached",
        "floor",
        "given_up",
        "in_flight",
        "lease",
        "needs_commit",
        "offsets",
        "partition",
        "paused",
        "queue",
        "room",
        "start_offset",
        "starts",
        "unconfirmed",
        "unseen_from",
    )

    def __init__(
        self,
        partition: Partition,
        *,
        start_offset: int | None = None,
        metadata: CommitMetadata = EMPTY,
        ordering: str = "partition",
        batches: bool = False,
        crash: Crash | None = None,
    ) -> None:
        self.partition = partition
        self.lease = Lease(partition)
        self.queue = _queue_for(ordering)
        self._in_order = ordering == "partition"
        self.offsets = OffsetLedger()
        self.starts = StartLog(metadata, crash)
        self.start_offset = start_offset
        self.committed: tuple[int, str] | None = None  # the last position that is known to be committed
        self.committing = False  # a later position was sent and may be applied: its commit is under way, or failed
        self.cancelled_from = math.inf  # no task from this offset on starts, because it is to be cancelled in its turn
        self.floor = 0  # at-most-once: the former committed offset, which lies above detached tasks
        self.needs_commit = False  # no task starts before the group has committed an offset, even if that takes long
        self.changed = False  # something has changed that no commit contains yet
        self.given_up = False  # the partition does not wait for its running task any more
        self.paused = False  # the client does not fetch it
        self.in_flight = 0  # tasks the executor has
        self.unconfirmed = 0  # tasks whose answer is being delivered
        self.detached: dict[int, Detached] = dict(metadata.detached)  # offset -> task that runs in another process
        self.committed_detached: Mapping[int, Detached] = metadata.detached  # the same, as recorded by the last commit
        self._committed_ranges = metadata.completed  # answered above the position, as recorded by the last commit
        self._blocking: dict[int, Task] = {}  # those of them that were admitted
        self.room = MetadataRoom()
        self._end = 0  # the last end that was reached
        self.unseen_from = math.inf  # produced since this lease began, so no earlier owner can have started it
        self._former = FormerRanges(metadata.completed)
        self._out_of_order = batches or ordering != "partition"  # answers may come in any order
        self._highest_answered = metadata.completed[-1][1] if metadata.completed else -1

    # -- fetched

    def charge_crash(self) -> None:
        """Charge the task that crashed the previous owner. Call it once the checkpoints of its tasks are known."""
        self.changed = self.starts.charge_crash(self.start_offset or 0) or self.changed

    def admit(self, record: Record) -> int:
        """Queue a record, or settle it if an earlier owner has answered it. Return the bytes that were kept."""
        offset = record.offset
        self.offsets.admit(offset)
        if self._former.ranges and self._former.take(offset):
            self.settle(offset)
            return 0
        if offset in self.detached:
            task = self._blocking[offset] = Task(record, self.lease)
            self.queue.block(task)
            return task.size
        if self.starts.admit(offset):
            self.changed = True
        task = Task(record, self.lease, self.starts.attempts.get(offset, 0))
        self.queue.push(task)
        return task.size

    @property
    def next_offset(self) -> int:
        """Return the next offset; no record below it is still to come."""
        return max(self.offsets.last + 1, self._end, self.start_offset or 0)

    def reached_end(self, offset: int) -> None:
        """Record that every record below ``offset`` was admitted."""
        self._end = offset
        if (self.start_offset is None or offset > self.start_offset) and self.offsets.reached_end(offset):
            self.changed = True

    # -- dispatched

    @property
    def has_suspect(self) -> bool:
        """Return whether the lowest unanswered task is a crash suspect. Then it must run alone."""
        return self.starts.suspects is not None and self.starts.is_suspect(self.lowest_here)

    @property
    def lowest_here(self) -> int:
        """Return the lowest unanswered offset that does not run in another process."""
        if not self.detached:
            return self.lowest
        return next((offset for offset in self.offsets.incomplete() if offset not in self.detached), self.next_offset)

    @property
    def lowest(self) -> int:
        """Return the lowest unanswered offset."""
        lowest = self.offsets.lowest
        return self.position if lowest is None else lowest

    def take(self, limit: int, now: float, *, below: float) -> list[Task]:
        """Dispatch up to ``limit`` tasks with offsets below ``below``.

        A failed task waits until a commit has recorded its failure.
        """
        below = min(below, self.cancelled_from)
        if self._out_of_order:
            below = min(below, self._start_below())
            limit = min(limit, max(1, self._room()))  # one at a time without room
        tasks = self.queue.take(limit, below, now, held=self.starts.held)
        if tasks:
            self.in_flight += len(tasks)
            highest = tasks[-1].record.offset
            if self._out_of_order:  # tasks that waited for their keys come key by key
                highest = max([task.record.offset for task in tasks])
            self.starts.started(highest)
        return tasks

    def head(self, now: float) -> int | None:
        """Return the offset of the next task to dispatch; None if none may start now."""
        return self.queue.head(now, min(self.cancelled_from, self._start_below() if self._out_of_order else math.inf))

    def _start_below(self) -> float:
        """Return the offset below which tasks fit into the commit metadata."""
        if self.has_room:
            return math.inf
        self.room.full = True
        first = self.lowest_here + 1  # its answer shortens the metadata, because the position moves
        if self.room.reserve(self.in_flight + self.unconfirmed, self._distance) <= 0:
            return first
        return max(first, self._highest_answered)  # answers between answered ones mostly shorten the metadata too

    def pull(self, offset: int) -> Task | None:
        """Take the waiting task with this offset, to be answered without a start; None if it does not wait."""
        if (task := self.queue.pull(offset)) is not None:
            self.in_flight += 1
        return task

    def has_room_for(self, offset: int) -> bool:
        """Return whether the waiting task with this offset may be answered and still fit into the commit metadata."""
        if offset < self._start_below():
            return True
        # In order, the head of the queue may start without room, so it may be answered as well.
        return not self._out_of_order and [task.record.offset for task in self.queue.peek(1)] == [offset]

    @property
    def has_room(self) -> bool:
        """Return whether another task may be answered out of order and still fit into the commit metadata."""
        return self._room() > 0

    def _room(self) -> int:
        """Return how many more tasks may start out of order if each of them must be recorded."""
        return self.room.left(self.in_flight + self.unconfirmed, self._distance)

    @property
    def _distance(self) -> int:
        return max(0, self.offsets.last - self.position)

    def request_starts(self, count: int, now: float, *, least: int = 1) -> None:
        """Request the start of the next ``count`` tasks if fewer than ``least`` of them may start."""
        head = self.head(now)
        if head is None:
            return
        failed = self._failed_next(head, least) if self.starts.waiting else set()
        limit = head + 1 if count == 1 else min(head + count, self.offsets.last + 1)  # offsets may have gaps
        enough = self.starts.confirmed >= head + least or self.starts.confirmed > self.offsets.last
        if failed or not enough:
            self.starts.request(-1 if enough else limit, failed)
            self.changed = self.changed or bool(failed)

    def postpone_restarts(self) -> None:
        """Let the failed tasks whose start is requested wait again, because a task of any partition runs alone."""
        self.changed = self.starts.postpone_restarts() or self.changed

    def _failed_next(self, head: int, count: int) -> set[int]:
        """Return the failed tasks whose next start has to be requested: the head or, in order, a batch of ``count``.

        For the next owner, what is requested may have started. In order, a crash counts against the lowest of it, which
        did start. Without order, retries start when they are due, so they are requested one by one.
        """
        row = [task.record.offset for task in self.queue.peek(count)] if self._in_order else [head]
        return {offset for offset in self.starts.waiting.intersection(row) if offset < self.cancelled_from}

    def finish(self, task: Task) -> None:
        """Record that a dispatched task will not come back and needs no answer."""
        self.in_flight -= 1
        self.queue.finish(task)

    def requeue(self, task: Task, ready_at: float = 0.0) -> None:
        """Take back a dispatched task. It does not start again before ``ready_at``."""
        self.in_flight -= 1
        if self.lease.leaving:
            self.queue.finish(task)
        else:
            self.queue.requeue(task, ready_at)

    def fail(self, task: Task, error: str = "") -> None:
        """Record that an attempt failed with an error of this type and that another follows."""
        self.starts.failed(task.record.offset, task.attempt, error)
        self.room.unrecorded += 1
        self.changed = True

    # -- detached

    def can_detach(self, task: Task) -> bool:
        """Return whether this running task is ours, and whether the commit metadata have room for it."""
        return task.claim is self.lease and len(self.detached) < MOST_DETACHED and not self.room.is_nearly_full

    def detach(self, task: Task, holder: str) -> None:
        """Let the running task continue without the partition, which is leaving. The next commit records it."""
        self.in_flight -= 1
        self.detached[task.record.offset] = Detached(task.attempt, holder)
        self.changed = True

    def reattach(self, task: Task) -> None:
        """Undo a detachment: the task ended before the partition moved, so it is settled as usual."""
        self.in_flight += 1
        del self.detached[task.record.offset]
        self.changed = True

    def settle_detached(self, offset: int) -> None:
        """Record that the holder has answered the task. Its record may still be to come."""
        del self.detached[offset]
        task = self._blocking.pop(offset, None)
        if task is None:
            self._former.add(offset)
            self.changed = True
            return
        self.queue.unblock(task, None)
        self.settle(offset)

    def vacate(self, offset: int) -> None:
        """Take the right to answer from the holder, effective when a commit has recorded it."""
        self.detached[offset] = self.detached[offset]._replace(vacated=True)
        self.changed = True

    def forget_detached(self, offset: int) -> None:
        """Forget a detached task whose record was deleted and which cannot start again."""
        del self.detached[offset]
        self.changed = True

    def has_admitted(self, offset: int) -> bool:
        """Return whether the record of a detached task is here, so that the task could start."""
        return offset in self._blocking

    def take_over(self, offset: int, attempts: int, ready_at: float) -> None:
        """Start an admitted task again after ``attempts`` attempts elsewhere. No commit may be under way."""
        del self.detached[offset]
        task = self._blocking.pop(offset)
        task.attempt = attempts
        self.starts.failed(offset, attempts)
        self.queue.unblock(task, ready_at)
        self.changed = True

    # -- answered

    def answering(self, task: Task) -> None:
        """Record that a dispatched task has ended and that its answer is being delivered."""
        self.finish(task)
        self.unconfirmed += 1

    def answering_again(self) -> None:
        """Record that the answer to a task that was never dispatched here is being delivered."""
        self.unconfirmed += 1

    def answered(self, *offsets: int) -> None:
        """Record that answers that were being delivered are confirmed."""
        self.unconfirmed -= len(offsets)
        self.settle(*offsets)

    def settle(self, *offsets: int) -> None:
        """Record that the answers to these offsets are confirmed."""
        self.offsets.settle(*offsets)
        self.room.unrecorded += len(offsets)
        self._highest_answered = max(self._highest_answered, *[offset + 1 for offset in offsets])
        self.changed = True
        if self.starts.attempts:
            for offset in offsets:
                self.starts.settled(offset)

    def unsettle(self, tasks: Sequence[Task]) -> None:
        """Record that the transaction with the answers to these tasks was aborted."""
        self.offsets.unsettle(*[task.record.offset for task in tasks])
        for task in tasks:
            if task.attempt > 1:
                self.starts.attempts[task.record.offset] = task.attempt - 1
        self.changed = True

    def is_settled(self, offset: int) -> bool:
        """Return whether this process no longer has to answer the request with this offset."""
        if offset < self.position:
            return True
        return offset <= self.offsets.last and not self.offsets.is_incomplete(offset)

    @property
    def busy(self) -> bool:
        """Return whether a task is running or its answer is being delivered."""
        return self.in_flight > 0 or self.unconfirmed > 0

    @property
    def at_rest(self) -> bool:
        """Return whether none of its tasks is running, as far as the next owner is concerned."""
        return self.given_up or not self.busy

    # -- committed

    @property
    def position(self) -> int:
        """Return the offset to commit: every admitted offset below it is answered."""
        if self.offsets.watermark is not None:
            return self.offsets.watermark
        if self.start_offset is not None:
            return self.start_offset
        return self.offsets.lowest or 0

    @property
    def has_position(self) -> bool:
        """Return whether there is anything to commit."""
        return self.start_offset is not None or self.offsets.last >= 0 or self.offsets.watermark is not None

    def metadata(self, *, clean: bool, process: str = "", transaction_id: str = "") -> CommitMetadata:
        """Return the metadata for the next owner. If ``clean``, no task of this partition is running any more.

        ``process`` is the token of this process.
        """
        recorded = self.starts.record(self.position, clean=clean, process=process)
        completed = self.offsets.completed(MAX_RANGES)
        if self._former.ranges:
            completed = (*completed, *self._former.above(max(self.offsets.last + 1, self.position)))
        detached = dict(self.detached)
        return dataclasses.replace(recorded, completed=completed, transaction_id=transaction_id, detached=detached)

    def recorded(self, characters: int) -> None:
        """Record that commit metadata of this size was sent."""
        self.committing = True
        self.room.recorded(characters)

    def confirm(
        self, position: tuple[int, str], start_limit: int, restarts: Mapping[int, int], recorded: CommitMetadata
    ) -> None:
        """Record a confirmed commit, with the starts and the metadata that it recorded."""
        self.committed, self.committing, self.needs_commit = position, False, False
        self.committed_detached, self._committed_ranges = recorded.detached, recorded.completed
        self.starts.confirm(start_limit, restarts)

    def has_committed(self, offset: int) -> bool:
        """Return whether a confirmed commit keeps the next owner from starting or answering this settled request.

        Only what that commit recorded counts: its metadata may have had no room for all answered requests.
        """
        if offset < (self.start_offset or 0 if self.committed is None else self.committed[0]):
            return True
        at = bisect.bisect_right(self._committed_ranges, offset, key=lambda answered: answered[0])
        return at > 0 and offset < self._committed_ranges[at - 1][1]

    # -- ended

    def leave(self) -> None:
        """Drop tasks that have not started, because the partition was revoked. Running tasks may still be settled."""
        self.lease.leave()
        self.queue.clear()

    def end(self) -> None:
        """End the lease: nothing of it may be answered or committed any more."""
        self.lease.end()
        self.queue.clear()


def _queue_for(ordering: str) -> TaskQueue:
    return PartitionQueue() if ordering == "partition" else KeyedQueue(by_key=ordering == "key")
