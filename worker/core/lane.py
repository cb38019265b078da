"""One assigned partition under one lease: what waits, what is being worked on, and what is settled.

The poll thread owns a lane. The service thread reads ``stalled`` before it starts a task and sets it when an attempt
failed, so that no later record of the partition overtakes the failed one; everything else it leaves alone.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from worker.core.ledger import Ledger
from worker.core.model import Task

if TYPE_CHECKING:
    from worker.core.model import Partition, Record


WAIT_SECONDS = 1.0  # a resumed partition needs about as long until its first record comes


class Lane:
    """Ordering ``partition``: tasks start in offset order, and none overtakes one that waits for another attempt."""

    __slots__ = (
        "_back",
        "committed",
        "handed",
        "lease",
        "leaving",
        "ledger",
        "open",
        "partition",
        "paused",
        "queue",
        "queued_bytes",
        "ready_at",
        "stalled",
        "unconfirmed",
    )

    def __init__(self, partition: Partition, lease: int) -> None:
        self.partition = partition
        self.lease = lease
        self.open = True  # the lease is valid: results may be answered and committed
        self.leaving = False  # revoked, and only waiting for what runs
        self.stalled = False  # nothing handed over may start until all of it has come back
        self.paused = False  # fetching is paused at the client
        self.queue: deque[Task] = deque()
        self.queued_bytes = 0
        self.handed = 0  # tasks the service thread has
        self.unconfirmed = 0  # tasks whose answer is on its way
        self.ready_at = 0.0  # the head of the queue waits until then for its next attempt
        self.committed: int | None = None  # the last offset whose commit was sent
        self._back: list[Task] = []
        self.ledger = Ledger()

    def admit(self, record: Record) -> int:
        """Queue a record; returns its bytes."""
        self.ledger.admit(record.offset)
        task = Task(record, self)
        self.queue.append(task)
        self.queued_bytes += task.size
        return task.size

    def waits(self, now: float) -> bool:
        """Whether what is queued cannot start for a while, since the head waits for its next attempt."""
        return bool(self.queue) and self.ready_at > now + WAIT_SECONDS

    def ready(self, now: float) -> bool:
        """Whether a task of this lane may be handed over now."""
        return bool(self.queue) and not self.stalled and now >= self.ready_at

    def take(self, limit: int, now: float) -> list[Task]:
        """Hand over up to ``limit`` tasks, in order; none while an earlier one waits for its next attempt."""
        if not self.ready(now):
            return []
        tasks = [self.queue.popleft() for _ in range(min(limit, len(self.queue)))]
        self.handed += len(tasks)
        self.queued_bytes -= sum([task.size for task in tasks])
        return tasks

    def done(self) -> None:
        """A handed-over task will not come back."""
        self.handed -= 1
        if self.stalled:
            self._restore()

    def put_back(self, task: Task, ready_at: float = 0.0) -> None:
        """A handed-over task comes back, to start (again) not before ``ready_at``."""
        self.handed -= 1
        if ready_at:
            self.ready_at = ready_at
        if not self.leaving:
            self._back.append(task)
        self._restore()

    def _restore(self) -> None:
        # Only when the service has none of this lane left is the order certain again.
        if self.handed or self.leaving:
            return
        self.stalled = False
        for task in sorted(self._back, key=lambda task: task.record.offset, reverse=True):
            self.queue.appendleft(task)
            self.queued_bytes += task.size
        self._back.clear()

    @property
    def watermark(self) -> int | None:
        """The offset to commit, if any: everything admitted below it is answered."""
        return self.ledger.watermark

    @property
    def uncommitted(self) -> int | None:
        """The watermark, if it was not sent to the broker yet."""
        watermark = self.ledger.watermark
        return watermark if watermark != self.committed else None

    @property
    def unsettled(self) -> int:
        """Admitted records without a confirmed answer."""
        return self.ledger.unsettled

    @property
    def busy(self) -> bool:
        """Whether a task of this lane runs or its answer is on its way."""
        return self.handed > 0 or self.unconfirmed > 0

    def leave(self) -> None:
        """The partition is to go: let go of all that has not started. What runs may still be settled."""
        self.leaving = True
        self.stalled = True
        self.queue.clear()
        self._back.clear()
        self.queued_bytes = 0

    def close(self) -> None:
        """The lease has ended: nothing of this lane may be answered or committed any more."""
        self.leave()
        self.open = False
