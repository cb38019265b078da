"""What may start next: the records of a lane that wait, under each of the three orderings.

A *strand* is a row of tasks of which none may overtake another: all of a partition, or all of a key. The service thread
sets ``stalled`` when an attempt of a strand has failed, and starts none of it until the poll thread has put all back.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from worker.core.model import Task

WAIT_SECONDS = 1.0  # a resumed partition needs about as long until its first record comes


class Strand:
    """Tasks that start in the order of their offsets, and what of them has come back to start again."""

    __slots__ = ("back", "handed", "queue", "ready_at", "stalled", "tasks")

    def __init__(self) -> None:
        self.queue: deque[Task] = deque()
        self.stalled = False  # nothing handed over may start until all of it has come back
        self.handed = 0  # tasks the service thread has
        self.ready_at = 0.0  # the head of the queue waits until then for its next attempt
        self.back: list[Task] = []
        self.tasks = 0  # of a key: those that are not answered yet

    def open(self, now: float) -> bool:
        """Whether its next task may be handed over now."""
        return not self.stalled and now >= self.ready_at

    def put_back(self, task: Task, ready_at: float) -> None:
        """A handed-over task comes back, to start (again) not before ``ready_at``."""
        self.handed -= 1
        if ready_at:
            self.ready_at = ready_at
        self.back.append(task)
        self.restore()

    def restore(self) -> None:
        """Only when the service has none of this strand left is the order certain again."""
        if self.handed or not self.stalled:
            return
        self.stalled = False
        self.back.sort(key=_offset, reverse=True)
        self.queue.extendleft(self.back)
        self.back.clear()


def _offset(task: Task) -> int:
    return task.record.offset


class Queue(Protocol):
    """What a lane keeps its tasks in. Poll thread."""

    size: int  # bytes of the tasks in it

    def __len__(self) -> int:
        """Tasks that have not been handed over."""

    def push(self, task: Task) -> None:
        """A new task, with a higher offset than all before."""

    def head(self, now: float) -> int | None:
        """The offset of the task that would be handed over next, if any may be."""

    def take(self, limit: int, below: float, now: float) -> list[Task]:
        """Hand over up to ``limit`` tasks with offsets below ``below``."""

    def put_back(self, task: Task, ready_at: float) -> None:
        """A handed-over task comes back, to start (again) not before ``ready_at``."""

    def done(self, task: Task) -> None:
        """A handed-over task will not come back."""

    def waits(self, now: float) -> bool:
        """Whether nothing of this partition can start for a while, whatever else is fetched of it."""

    def startable(self, now: float) -> tuple[int, int]:
        """Tasks, and about how many bytes of them, that do not wait for their own or another's next attempt."""

    def next_ready(self) -> float:
        """When something that waits for its next attempt may start (infinity: nothing does)."""

    def clear(self) -> None:
        """Let go of all tasks that are here."""

    def peek(self, count: int) -> list[Task]:
        """The next so many tasks, as it looks now."""


class Fifo:
    """Ordering ``partition``: one strand."""

    def __init__(self) -> None:
        self._strand = Strand()
        self._queue = self._strand.queue
        self.size = 0

    def __len__(self) -> int:
        return len(self._queue)

    def push(self, task: Task) -> None:
        """See ``Queue``."""
        task.strand = self._strand
        self._queue.append(task)
        self.size += task.size

    def head(self, now: float) -> int | None:
        """See ``Queue``."""
        return self._queue[0].record.offset if self._queue and self._strand.open(now) else None

    def take(self, limit: int, below: float, now: float) -> list[Task]:
        """See ``Queue``."""
        queue, count = self._queue, min(limit, len(self._queue))
        if not self._strand.open(now):
            return []
        while count and queue[count - 1].record.offset >= below:
            count -= 1
        tasks = [queue.popleft() for _ in range(count)]
        self._strand.handed += count
        self.size -= sum([task.size for task in tasks])
        return tasks

    def put_back(self, task: Task, ready_at: float) -> None:
        """See ``Queue``."""
        self._strand.stalled = True
        self.size += task.size
        self._strand.put_back(task, ready_at)

    def done(self, task: Task) -> None:  # noqa: ARG002 - see Queue
        """See ``Queue``."""
        strand = self._strand
        strand.handed -= 1
        if strand.stalled:
            strand.restore()

    def waits(self, now: float) -> bool:
        """See ``Queue``."""
        return bool(self._queue) and self._strand.ready_at > now + WAIT_SECONDS

    def startable(self, now: float) -> tuple[int, int]:
        """See ``Queue``."""
        return (0, 0) if self.waits(now) else (len(self._queue), self.size)

    def next_ready(self) -> float:
        """See ``Queue``."""
        return self._strand.ready_at if self._queue and not self._strand.stalled else math.inf

    def clear(self) -> None:
        """See ``Queue``."""
        self._queue.clear()
        self._strand.back.clear()
        self.size = 0

    def peek(self, count: int) -> list[Task]:
        """See ``Queue``."""
        return [self._queue[at] for at in range(min(count, len(self._queue)))]


class Loose:
    """Orderings ``key`` and ``unordered``: what waits for its next attempt holds up nothing, or nothing but its key.

    New tasks stand in ``_fresh``. One whose key is held up moves to the queue of its strand when its turn comes;
    one without a key to keep in order goes to ``_later`` when it comes back.
    """

    def __init__(self, *, by_key: bool) -> None:
        self._fresh: deque[Task] = deque()
        self._later: list[tuple[float, int, Task]] = []
        self._strands: dict[bytes, Strand] | None = {} if by_key else None
        self._held: dict[Strand, None] = {}  # with tasks in their own queue, in the order it came to that
        self._queued = 0
        self.size = 0

    def __len__(self) -> int:
        return self._queued

    def push(self, task: Task) -> None:
        """See ``Queue``."""
        key = task.record.key
        if self._strands is not None and key is not None:
            strand = self._strands.get(key)
            if strand is None:
                strand = self._strands[key] = Strand()
            strand.tasks += 1
            task.strand = strand
        self._fresh.append(task)
        self._enter(task)

    def _enter(self, task: Task) -> None:
        self._queued += 1
        self.size += task.size

    def head(self, now: float) -> int | None:
        """See ``Queue``."""
        if self._later and self._later[0][0] <= now:
            return self._later[0][1]
        for strand in self._held:
            if strand.queue and strand.open(now):
                return strand.queue[0].record.offset
        self._sort_out(now)
        return self._fresh[0].record.offset if self._fresh else None

    def _sort_out(self, now: float) -> None:
        """Move tasks at the head that must not start yet to where they belong."""
        while self._fresh:
            strand = self._fresh[0].strand
            if strand is None or (strand not in self._held and strand.open(now)):
                return
            strand.queue.append(self._fresh.popleft())
            self._held[strand] = None

    def take(self, limit: int, below: float, now: float) -> list[Task]:
        """See ``Queue``."""
        tasks = self._take_back(limit, below, now)
        while len(tasks) < limit:
            self._sort_out(now)
            if not self._fresh or self._fresh[0].record.offset >= below:
                break
            tasks.append(self._fresh.popleft())
        for task in tasks:
            if task.strand is not None:
                task.strand.handed += 1
        self._queued -= len(tasks)
        self.size -= sum([task.size for task in tasks])
        return tasks

    def _take_back(self, limit: int, below: float, now: float) -> list[Task]:
        """Those that come back, or had to let others of their key go first."""
        tasks: list[Task] = []
        while len(tasks) < limit and self._later and self._later[0][0] <= now and self._later[0][1] < below:
            tasks.append(heapq.heappop(self._later)[2])
        for strand in list(self._held):
            while strand.queue and strand.open(now) and len(tasks) < limit and strand.queue[0].record.offset < below:
                tasks.append(strand.queue.popleft())
            if not strand.queue and strand.open(now):
                del self._held[strand]
        return tasks

    def put_back(self, task: Task, ready_at: float) -> None:
        """See ``Queue``."""
        self._enter(task)
        if task.strand is None:
            heapq.heappush(self._later, (ready_at, task.record.offset, task))
            return
        task.strand.stalled = True
        self._held[task.strand] = None
        task.strand.put_back(task, ready_at)

    def done(self, task: Task) -> None:
        """See ``Queue``."""
        strand = task.strand
        if strand is None or self._strands is None:
            return
        strand.handed -= 1
        strand.tasks -= 1
        strand.restore()
        if not strand.tasks and task.record.key is not None:
            self._held.pop(strand, None)
            self._strands.pop(task.record.key, None)

    def waits(self, now: float) -> bool:  # noqa: ARG002 - see Queue
        """See ``Queue``: others of the partition may always start."""
        return False

    def startable(self, now: float) -> tuple[int, int]:
        """See ``Queue``."""
        count = len(self._fresh) + sum([ready_at <= now for ready_at, _, _ in self._later])
        count += sum([len(strand.queue) for strand in self._held if strand.open(now)])
        return count, self.size * count // self._queued if count else 0

    def next_ready(self) -> float:
        """See ``Queue``."""
        later = self._later[0][0] if self._later else math.inf
        return min([later, *(strand.ready_at for strand in self._held if strand.queue and not strand.stalled)])

    def clear(self) -> None:
        """See ``Queue``."""
        for strand in self._held:
            strand.queue.clear()
            strand.back.clear()
        self._held.clear()
        self._fresh.clear()
        self._later.clear()
        self._queued = self.size = 0

    def peek(self, count: int) -> list[Task]:
        """See ``Queue``."""
        return [self._fresh[at] for at in range(min(count, len(self._fresh)))]


def queue_for(ordering: str) -> Queue:
    """An empty queue for ``partition``, ``key`` or ``unordered``."""
    return Fifo() if ordering == "partition" else Loose(by_key=ordering == "key")
