"""Which tasks may start next in the orderings ``key`` and ``unordered``."""

from __future__ import annotations

import heapq
import math
from collections import deque
from typing import TYPE_CHECKING

from worker.core.ordering_group import OrderingGroup

if TYPE_CHECKING:
    from collections.abc import Collection

    from worker.core.model import Task


_Retry = tuple[float, int, "Task"]  # when it is due, its offset, and the task


class KeyedQueue:
    """A queue in which a task that waits for its next attempt delays nothing else, or only its own key.

    New tasks wait in ``_fresh``. When the turn of a task with a blocked key comes, it moves to the queue of its group.
    A task without an ordered key goes to ``_retries`` when it comes back, or when it is held as its turn comes.
    """

    def __init__(self, *, by_key: bool) -> None:
        self._fresh: deque[Task] = deque()
        self._retries: list[_Retry] = []
        self._groups: dict[bytes, OrderingGroup[Task]] | None = {} if by_key else None
        self._blocked_groups: dict[OrderingGroup[Task], None] = {}  # groups with tasks in their own queue
        self._queued = 0
        self.size = 0

    def __len__(self) -> int:
        return self._queued

    def push(self, task: Task) -> None:
        """See ``TaskQueue``."""
        self._group(task)
        self._fresh.append(task)
        self._count(task)

    def _group(self, task: Task) -> None:
        """Put a task into the group of its key."""
        key = task.record.key
        if self._groups is not None and key is not None:
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = OrderingGroup()
            group.unanswered += 1
            task.group = group

    def _count(self, task: Task) -> None:
        self._queued += 1
        self.size += task.size

    def head(self, now: float, below: float = math.inf) -> int | None:
        """See ``TaskQueue``."""
        if (retry := self._next_retry(now, below)) is not None:
            return retry[1]
        for group in self._blocked_groups:
            if group.queue and group.is_open(now) and group.queue[0].record.offset < below:
                return group.queue[0].record.offset
        self._set_aside(now)
        return self._fresh[0].record.offset if self._fresh and self._fresh[0].record.offset < below else None

    def _set_aside(self, now: float, held: Collection[int] = ()) -> None:
        """Move held tasks and those of blocked keys from the head to where failed tasks wait, so that others start."""
        while self._fresh:
            task = self._fresh[0]
            group, offset = task.group, task.record.offset
            is_blocked = group is not None and (group in self._blocked_groups or not group.is_open(now))
            if not is_blocked and offset not in held:
                return
            self._fresh.popleft()
            if group is None:
                heapq.heappush(self._retries, (now, offset, task))
            else:
                group.queue.append(task)
                self._blocked_groups[group] = None

    def take(self, limit: int, below: float, now: float, *, held: Collection[int] = ()) -> list[Task]:
        """See ``TaskQueue``."""
        tasks = self._take_returned(limit, below, now, held)
        while len(tasks) < limit:
            self._set_aside(now, held)
            if not self._fresh or not _may_start(self._fresh[0].record.offset, below, held):
                break
            tasks.append(self._fresh.popleft())
        for task in tasks:
            if task.group is not None:
                task.group.in_flight += 1
        self._queued -= len(tasks)
        self.size -= sum([task.size for task in tasks])
        return tasks

    def _take_returned(self, limit: int, below: float, now: float, held: Collection[int]) -> list[Task]:
        """Take tasks that came back, and tasks that waited for others of their key."""
        tasks: list[Task] = []
        while len(tasks) < limit and (retry := self._next_retry(now, below, held)) is not None:
            self._remove_retry(retry)
            tasks.append(retry[2])
        for group in list(self._blocked_groups):
            queue = group.queue
            while len(tasks) < limit and queue and group.is_open(now):
                if not _may_start(queue[0].record.offset, below, held):
                    break
                tasks.append(queue.popleft())
            if not queue and group.is_open(now):
                del self._blocked_groups[group]
        return tasks

    def _next_retry(self, now: float, below: float, held: Collection[int] = ()) -> _Retry | None:
        """Return the retry to start next: the first that is due, or else the lowest that may start."""
        retries = self._retries
        if not retries or retries[0][0] > now:
            return None
        if _may_start(retries[0][1], below, held):
            return retries[0]
        # While the commit metadata are full, only low offsets may start. They must not wait behind the first one.
        due = [retry for retry in retries if retry[0] <= now and _may_start(retry[1], below, held)]
        return min(due, key=lambda retry: retry[1], default=None)

    def _remove_retry(self, retry: _Retry) -> None:
        if retry is self._retries[0]:
            heapq.heappop(self._retries)
        else:
            self._retries.remove(retry)
            heapq.heapify(self._retries)

    def requeue(self, task: Task, ready_at: float) -> None:
        """See ``TaskQueue``."""
        self._count(task)
        if task.group is None:
            heapq.heappush(self._retries, (ready_at, task.record.offset, task))
            return
        task.group.blocked = True
        self._blocked_groups[task.group] = None
        task.group.requeue(task, ready_at)

    def finish(self, task: Task) -> None:
        """See ``TaskQueue``."""
        if task.group is not None:
            task.group.in_flight -= 1
            self._answered(task, task.group)

    def _answered(self, task: Task, group: OrderingGroup[Task]) -> None:
        group.unanswered -= 1
        group.unblock()
        if not group.unanswered and task.record.key is not None and self._groups is not None:
            self._blocked_groups.pop(group, None)
            self._groups.pop(task.record.key, None)

    def block(self, task: Task) -> None:
        """See ``TaskQueue``."""
        self._group(task)
        if task.group is not None:
            task.group.detached += 1

    def unblock(self, task: Task, ready_at: float | None) -> None:
        """See ``TaskQueue``."""
        group = task.group
        if group is not None:
            group.detached -= 1
        if ready_at is None:
            if group is not None:
                self._answered(task, group)
            return
        self._count(task)
        if group is None:
            heapq.heappush(self._retries, (ready_at, task.record.offset, task))
            return
        group.ready_at = ready_at
        group.insert(task)
        self._blocked_groups[group] = None

    def pull(self, offset: int) -> Task | None:
        """See ``TaskQueue``."""
        task = self._removed(offset)
        if task is not None:
            self._queued -= 1
            self.size -= task.size
            if task.group is not None:
                task.group.in_flight += 1
        return task

    def _removed(self, offset: int) -> Task | None:
        for task in self._fresh:
            if task.record.offset == offset:
                self._fresh.remove(task)
                return task
        for retry in self._retries:
            if retry[1] == offset:
                self._remove_retry(retry)
                return retry[2]
        return next(filter(None, (group.remove(offset) for group in self._blocked_groups)), None)

    def is_waiting(self, now: float) -> bool:  # noqa: ARG002 - see TaskQueue
        """See ``TaskQueue``: other tasks of the partition can always start."""
        return False

    def startable(self, now: float, *, held: Collection[int] = ()) -> tuple[int, int]:
        """See ``TaskQueue``."""
        count = len(self._fresh) + sum([ready_at <= now and at not in held for ready_at, at, _ in self._retries])
        queues = [group.queue for group in self._blocked_groups if group.queue and group.is_open(now)]
        count += sum([len(queue) for queue in queues if queue[0].record.offset not in held])
        return count, self.size * count // self._queued if count else 0

    def next_ready(self) -> float:
        """See ``TaskQueue``."""
        later = self._retries[0][0] if self._retries else math.inf
        groups = [group for group in self._blocked_groups if group.queue and not (group.blocked or group.detached)]
        return min([later, *(group.ready_at for group in groups)])

    def clear(self) -> None:
        """See ``TaskQueue``."""
        for group in self._blocked_groups:
            group.clear()
        self._blocked_groups.clear()
        self._fresh.clear()
        self._retries.clear()
        self._queued = self.size = 0

    def peek(self, count: int) -> list[Task]:
        """See ``TaskQueue``."""
        return [self._fresh[at] for at in range(min(count, len(self._fresh)))]


def _may_start(offset: int, below: float, held: Collection[int]) -> bool:
    return offset < below and offset not in held
