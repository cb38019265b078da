"""The waiting tasks of one partition in the ordering ``partition``, and the interface of all task queues.

``keyed_queue`` has the other two orderings.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Protocol

from worker.core.ordering_group import OrderingGroup

if TYPE_CHECKING:
    from collections.abc import Collection

    from worker.core.model import Task

WAIT_SECONDS = 1.0  # the first record of a resumed partition arrives after about this time


class TaskQueue(Protocol):
    """The waiting tasks of one partition. Used on the poll thread."""

    size: int  # bytes of the waiting tasks

    def __len__(self) -> int:
        """Return the number of waiting tasks."""

    def push(self, task: Task) -> None:
        """Add a task with a higher offset than all before."""

    def head(self, now: float, below: float = math.inf) -> int | None:
        """Return the offset of the next task to dispatch, lower than ``below``; None if none may start now."""

    def take(self, limit: int, below: float, now: float, *, held: Collection[int] = ()) -> list[Task]:
        """Dispatch up to ``limit`` tasks with offsets below ``below`` that are not ``held``."""

    def requeue(self, task: Task, ready_at: float) -> None:
        """Take back a dispatched task. It does not start again before ``ready_at``."""

    def finish(self, task: Task) -> None:
        """Record that a dispatched task will not come back."""

    def block(self, task: Task) -> None:
        """Record that the task runs in another process, and keep the tasks that must not overtake it."""

    def unblock(self, task: Task, ready_at: float | None) -> None:
        """Let the task start here from ``ready_at`` on: that process will not answer it; None: it is settled."""

    def pull(self, offset: int) -> Task | None:
        """Take the waiting task with this offset regardless of its turn; None if it does not wait."""

    def is_waiting(self, now: float) -> bool:
        """Return whether no task of this partition can start for a while, even if more is fetched."""

    def startable(self, now: float, *, held: Collection[int] = ()) -> tuple[int, int]:
        """Return the number and the approximate bytes of the tasks that do not wait for any next attempt.

        Tasks that are ``held`` do not count either, unless they hold up the whole partition.
        """

    def next_ready(self) -> float:
        """Return when the first task that waits for its next attempt may start; infinity if none waits."""

    def clear(self) -> None:
        """Drop every waiting task."""

    def peek(self, count: int) -> list[Task]:
        """Return the next ``count`` tasks in the current order."""


class PartitionQueue:
    """The queue for the ordering ``partition``, with one group."""

    def __init__(self) -> None:
        self._group: OrderingGroup[Task] = OrderingGroup()
        self._queue = self._group.queue
        self.size = 0

    def __len__(self) -> int:
        return len(self._queue)

    def push(self, task: Task) -> None:
        """See ``TaskQueue``."""
        task.group = self._group
        self._queue.append(task)
        self.size += task.size

    def head(self, now: float, below: float = math.inf) -> int | None:
        """See ``TaskQueue``."""
        if not self._queue or not self._group.is_open(now):
            return None
        offset = self._queue[0].record.offset
        return offset if offset < below else None

    def take(self, limit: int, below: float, now: float, *, held: Collection[int] = ()) -> list[Task]:
        """See ``TaskQueue``. Nothing overtakes a task that is held."""
        queue, count = self._queue, min(limit, len(self._queue))
        if not count or not self._group.is_open(now):
            return []
        while count and queue[count - 1].record.offset >= below:
            count -= 1
        if held:
            ahead = (at for at, task in enumerate(itertools.islice(queue, count)) if task.record.offset in held)
            count = next(ahead, count)
        tasks = [queue.popleft() for _ in range(count)]
        self._group.in_flight += count
        self.size -= sum([task.size for task in tasks])
        return tasks

    def requeue(self, task: Task, ready_at: float) -> None:
        """See ``TaskQueue``."""
        self._group.blocked = True
        self.size += task.size
        self._group.requeue(task, ready_at)

    def finish(self, task: Task) -> None:  # noqa: ARG002 - see TaskQueue
        """See ``TaskQueue``."""
        group = self._group
        group.in_flight -= 1
        if group.blocked:
            group.unblock()

    def block(self, task: Task) -> None:
        """See ``TaskQueue``."""
        task.group = self._group
        self._group.detached += 1

    def unblock(self, task: Task, ready_at: float | None) -> None:
        """See ``TaskQueue``."""
        self._group.detached -= 1
        if ready_at is not None:
            self._group.ready_at = ready_at
            self._group.insert(task)
            self.size += task.size

    def pull(self, offset: int) -> Task | None:
        """See ``TaskQueue``."""
        task = self._group.remove(offset)
        if task is not None:
            self._group.in_flight += 1
            self.size -= task.size
        return task

    def is_waiting(self, now: float) -> bool:
        """See ``TaskQueue``."""
        group = self._group
        return bool(self._queue) and (group.beside or group.detached > 0 or group.ready_at > now + WAIT_SECONDS)

    def startable(self, now: float, *, held: Collection[int] = ()) -> tuple[int, int]:  # noqa: ARG002 - see TaskQueue
        """See ``TaskQueue``."""
        return (0, 0) if self.is_waiting(now) else (len(self._queue), self.size)

    def next_ready(self) -> float:
        """See ``TaskQueue``."""
        group = self._group
        return group.ready_at if self._queue and not (group.blocked or group.detached) else math.inf

    def clear(self) -> None:
        """See ``TaskQueue``."""
        self._group.clear()
        self.size = 0

    def peek(self, count: int) -> list[Task]:
        """See ``TaskQueue``."""
        return [self._queue[at] for at in range(min(count, len(self._queue)))]
