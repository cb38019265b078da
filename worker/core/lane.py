"""One assigned partition under one lease: what waits, what is being worked on, what is settled, what is noted of it.

The poll thread owns a lane. The service thread looks at ``leaving`` before it starts a task and leaves the rest alone.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from worker.core.ledger import Ledger
from worker.core.model import Task
from worker.core.notes import CROWDED, NOTHING, TASK_CHARACTERS, Doubt, Notes
from worker.core.queues import queue_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.core.model import Partition, Record
    from worker.core.notes import Range

MOST_RANGES = 1_000  # more do not fit into the notes anyway


class Lane:
    """What one process knows of one partition, from its assignment to the end of the lease.

    *Permit*: tasks below this offset may be started, because a confirmed commit says that they may have been. ``wish``
    is the permit asked for. See docs/decisions/0065.
    """

    __slots__ = (
        "_done_before",
        "_ended",
        "_first_seen",
        "_former",
        "_scattered",
        "_top",
        "_unnoted",
        "attempts",
        "base",
        "changed",
        "confirmed",
        "doubt",
        "handed",
        "lease",
        "leaving",
        "ledger",
        "noted",
        "open",
        "partition",
        "paused",
        "permit",
        "pressed",
        "queue",
        "unconfirmed",
        "wish",
    )

    def __init__(
        self,
        partition: Partition,
        lease: int,
        *,
        base: int | None = None,
        notes: Notes = NOTHING,
        ordering: str = "partition",
        batches: bool = False,
    ) -> None:
        self.partition = partition
        self.lease = lease
        self.open = True  # the lease is valid: results may be answered and committed
        self.leaving = False  # revoked, and only waiting for what runs
        self.paused = False  # fetching is paused at the client
        self.queue = queue_for(ordering)
        self.handed = 0  # tasks the service thread has
        self.unconfirmed = 0  # tasks whose answer is on its way
        self.ledger = Ledger()
        self.base = base  # what was committed when the lease began
        self.confirmed: tuple[int, str] | None = None  # the last position that is known to be committed
        self.permit = -1
        self.wish = -1
        self.changed = False  # something is to be noted that no commit has carried yet
        self.noted = 0  # characters of the last notes
        self.pressed = False  # nothing new may start before there are shorter notes
        self.attempts: dict[int, int] = dict(notes.attempts)  # starts of unanswered tasks that came to no good end
        self.doubt = _doubt(notes)
        self._former = notes
        self._ended = 0  # the last end that was reached
        self._done_before = deque(notes.done)
        self._scattered = (
            batches or ordering != "partition"
        )  # answers may come in any order, so that the notes can grow
        self._top = notes.done[-1][1] if notes.done else -1  # behind the highest answered offset
        self._unnoted = 0  # tasks that were answered or have failed since the last notes were made
        self._first_seen = notes.working is None

    # -- coming in

    def admit(self, record: Record) -> int:
        """Queue a record, or settle it if a former owner has answered it; returns the bytes kept."""
        offset = record.offset
        self.ledger.admit(offset)
        if self._done_before and self._was_done(offset):
            self.settle(offset)
            return 0
        if not self._first_seen:
            self._look_at_first(offset)
        task = Task(record, self, self.attempts.get(offset, 0))
        self.queue.push(task)
        return task.size

    def _was_done(self, offset: int) -> bool:
        ranges = self._done_before
        while ranges and ranges[0][1] <= offset:
            ranges.popleft()
        return bool(ranges) and ranges[0][0] <= offset

    def _look_at_first(self, offset: int) -> None:
        """The former owner died: the first of what it may have started is what it most likely died of."""
        former = self._former
        self._first_seen = True
        if former.working is None or offset >= former.working:
            return
        before = former.doubt.times if former.doubt and offset < former.doubt.until else 0
        self.attempts[offset] = former.attempts.get(offset, before) + 1
        self.changed = True

    @property
    def seen(self) -> int:
        """Nothing below this offset is still to come."""
        return max(self.ledger.last + 1, self._ended, self.base or 0)

    def end(self, offset: int) -> None:
        """All that there is below ``offset`` has been admitted."""
        self._ended = offset
        if (self.base is None or offset > self.base) and self.ledger.end(offset):
            self.changed = True

    # -- going out

    @property
    def doubtful(self) -> bool:
        """Whether a process may have died of the next task: then nothing else may be there to be blamed."""
        return self.doubt is not None and self.lowest < self.doubt.until

    @property
    def lowest(self) -> int:
        """The lowest offset that is not answered."""
        lowest = self.ledger.lowest
        return self.position if lowest is None else lowest

    def take(self, limit: int, now: float, *, below: float) -> list[Task]:
        """Hand over up to ``limit`` tasks with offsets below ``below``."""
        if self._scattered:
            # What runs or is being answered may come back, and then it has to be noted: only as many as will fit.
            room = (CROWDED - self.noted) // TASK_CHARACTERS - self.handed - self.unconfirmed - self._unnoted
            if room <= 0:
                self.pressed = True
                below = min(below, self._top)  # what lies between answered ones makes the notes shorter
            limit = min(limit, max(1, room))
        tasks = self.queue.take(limit, below, now)
        self.handed += len(tasks)
        return tasks

    def ask(self, count: int, now: float, *, least: int = 1) -> None:
        """Ask for the permits of the next ``count`` tasks, if less than ``least`` of them have one."""
        head = self.queue.head(now)
        if head is None or self.permit >= head + least or self.permit > self.ledger.last:
            return
        if count == 1:
            self.wish = max(self.wish, head + 1)
        else:
            # Offsets may have gaps, and then these are fewer tasks than they seem.
            self.wish = max(self.wish, min(head + count, self.ledger.last + 1))

    def done(self, task: Task) -> None:
        """A handed-over task will not come back."""
        self.handed -= 1
        self.queue.done(task)

    def put_back(self, task: Task, ready_at: float = 0.0) -> None:
        """A handed-over task comes back, to start (again) not before ``ready_at``."""
        self.handed -= 1
        if self.leaving:
            self.queue.done(task)
        else:
            self.queue.put_back(task, ready_at)

    def failed(self, task: Task) -> None:
        """An attempt came to no good end; another will follow."""
        self.attempts[task.record.offset] = task.attempt
        self._unnoted += 1
        self.changed = True

    # -- being answered

    def settle(self, *offsets: int) -> None:
        """The answers to these offsets are certain."""
        settle = self.ledger.settle
        for offset in offsets:
            settle(offset)
        self._unnoted += len(offsets)
        self._top = max(self._top, max(offsets) + 1)
        self.changed = True
        if self.attempts:
            for offset in offsets:
                self.attempts.pop(offset, None)

    @property
    def position(self) -> int:
        """The offset to commit: everything admitted below it is answered."""
        if self.ledger.watermark is not None:
            return self.ledger.watermark
        if self.base is not None:
            return self.base
        return self.ledger.lowest or 0

    def confirm(self, position: tuple[int, str], permit: int) -> None:
        """A position was committed, and with it the permit that had been asked for."""
        self.confirmed = position
        self.permit = max(self.permit, permit)

    def note(self, characters: int) -> None:
        """Notes of so many characters were made."""
        self.noted = characters
        self.pressed = False
        self._unnoted = 0

    @property
    def known(self) -> bool:
        """Whether there is a position to commit at all."""
        return self.base is not None or self.ledger.last >= 0 or self.ledger.watermark is not None

    def notes(self, *, working: bool, serial: str = "") -> Notes:
        """What the next owner has to know; ``working``: what may have been started is still under way."""
        until = max(self.permit, self.wish) if working else -1
        doubt = self.doubt if self.doubt is not None and self.doubt.until > self.position else None
        if not self._first_seen:  # nothing has come yet that could be blamed: whoever comes next has to do that
            until, doubt = max(until, self._former.working or -1), self._former.doubt
        return Notes(
            working=until if until > self.position else None,
            doubt=doubt,
            attempts=self.attempts,
            done=(*self.ledger.done(MOST_RANGES), *self._still_to_come()),
            serial=serial,
        )

    def _still_to_come(self) -> Iterator[Range]:
        """What a former owner has answered and this one has not come to."""
        at = max(self.ledger.last + 1, self.position)
        for first, stop in self._done_before:
            if stop > at:
                yield max(first, at), stop

    @property
    def unsettled(self) -> int:
        """Admitted records without a confirmed answer."""
        return self.ledger.unsettled

    @property
    def busy(self) -> bool:
        """Whether a task of this lane runs or its answer is on its way."""
        return self.handed > 0 or self.unconfirmed > 0

    # -- the end

    def leave(self) -> None:
        """The partition is to go: let go of all that has not started. What runs may still be settled."""
        self.leaving = True
        self.queue.clear()

    def close(self) -> None:
        """The lease has ended: nothing of this lane may be answered or committed any more."""
        self.leave()
        self.open = False


def _doubt(notes: Notes) -> Doubt | None:
    """What may be what processes died of: narrowed down to what the last one may have started, if it died."""
    if notes.working is None:
        return notes.doubt
    return Doubt(notes.working, notes.doubt.times + 1 if notes.doubt else 1)
