"""Tasks that must not overtake each other."""

from __future__ import annotations

import bisect
import operator
from collections import deque
from typing import Generic, Protocol, TypeVar


class HasOffset(Protocol):
    """What an ordering group needs to know about a task."""

    @property
    def offset(self) -> int:
        """Return the offset of the record."""


T = TypeVar("T", bound=HasOffset)
_OFFSET = operator.attrgetter("offset")


class OrderingGroup(Generic[T]):
    """Tasks of one partition or one key. They start in offset order, and none overtakes another.

    The executor sets ``blocked`` when an attempt fails or may not have started. Then it starts no task of the group
    until the poll thread has taken back every task of the group that was in flight. A long task that runs beside others
    blocks its group in the same way, so that the tasks behind it wait for its end.
    """

    __slots__ = ("_returned", "beside", "blocked", "detached", "in_flight", "queue", "ready_at", "unanswered")

    def __init__(self) -> None:
        self.queue: deque[T] = deque()
        self.blocked = False
        self.beside = False  # its running task is a long one, beside which other groups run
        self.in_flight = 0  # tasks the executor has
        self.detached = 0  # tasks that run in another process; no task of the group starts before they are settled
        self.ready_at = 0.0  # when the head of the queue may start its next attempt
        self.unanswered = 0  # unanswered tasks, if the group is a key
        self._returned: list[T] = []

    def is_open(self, now: float) -> bool:
        """Return whether the next task of the group may be dispatched now."""
        return not self.blocked and not self.detached and now >= self.ready_at

    def insert(self, task: T) -> None:
        """Add a task that was detached, at its place in the queue."""
        bisect.insort(self.queue, task, key=_OFFSET)

    def set_aside(self) -> None:
        """Let the running task continue beside others. No task of the group starts before it ends."""
        self.blocked = self.beside = True

    def requeue(self, task: T, ready_at: float) -> None:
        """Take back a dispatched task. It does not start again before ``ready_at``."""
        self.in_flight -= 1
        self.ready_at = max(self.ready_at, ready_at)  # several tasks of a batch may have failed
        self._returned.append(task)
        self.unblock()

    def unblock(self) -> None:
        """Open the group when the executor has none of its tasks left. Only then is the order certain."""
        if self.in_flight or not self.blocked:
            return
        self.blocked = self.beside = False
        self._returned.sort(key=_OFFSET, reverse=True)
        self.queue.extendleft(self._returned)
        self._returned.clear()

    def remove(self, offset: int) -> T | None:
        """Remove and return a waiting task; None if it is not here. The next task need not wait for its attempt."""
        rows: tuple[deque[T] | list[T], ...] = (self.queue, self._returned)
        for row in rows:
            for at, task in enumerate(row):
                if task.offset == offset:
                    if offset == min(map(_OFFSET, (*self.queue, *self._returned))):
                        self.ready_at = 0.0
                    del row[at]
                    return task
        return None

    def clear(self) -> None:
        """Drop every waiting task."""
        self.queue.clear()
        self._returned.clear()
