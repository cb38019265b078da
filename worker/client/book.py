"""Tracks which requests wait for an answer, and the latest answers. It uses neither Kafka nor a clock. Thread-safe."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from worker.client.futures import TaskFuture
    from worker.client.ids import Origin, TaskId

CLOCK_SKEW_MS = 300_000  # an answer may have an earlier time than its request, because clocks differ
_ENTRY = 300  # approximate bytes of an answer in addition to its value


class Found(NamedTuple):
    """What is known about an answer: its bytes if it was already read, and whether to search for it in the past."""

    answer: bytes | None
    behind: bool


class Book:
    """Matches answers to requests by origin.

    The latest answers without a waiting future are kept, up to ``limit`` bytes: an answer can come before Kafka's
    confirmation of its request, and an id can be requested after its answer was read.
    """

    def __init__(self, limit: int, since_ms: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._waiting: dict[Origin, list[TaskFuture]] = {}
        self._recent: OrderedDict[Origin, tuple[int, bytes]] = OrderedDict()
        self._bytes = 0
        self._read = 0  # answers read so far
        self._evicted = 0  # number of the last answer that is no longer kept
        # Every answer dated since then was read, as number `_covered_from` or later.
        self._covered_ms, self._covered_from = since_ms, 1

    def mark(self) -> int:
        """Return the number of the next answer."""
        with self._lock:
            return self._read + 1

    def evicted_since(self, mark: int) -> bool:
        """Return whether an answer with this number or a later one is no longer kept."""
        with self._lock:
            return self._evicted >= mark

    def expect(self, future: TaskFuture, origin: Origin, mark: int) -> Found:
        """Wait for the answer to a request that was submitted at ``mark`` and is now confirmed."""
        with self._lock:
            answer = self._kept(origin)
            if answer is None:
                self._waiting.setdefault(origin, []).append(future)
            return Found(answer, answer is None and self._evicted >= mark)

    def find(self, task_id: TaskId, future: TaskFuture) -> Found:
        """Wait for the answer to an earlier request."""
        with self._lock:
            answer = self._kept(task_id.origin)
            if answer is not None:
                return Found(answer, behind=False)
            # If another future waits for it, the search is done or will be.
            known = task_id.origin in self._waiting or self._covers(task_id.timestamp_ms)
            self._waiting.setdefault(task_id.origin, []).append(future)
            return Found(None, not known)

    def take(self, origin: Origin, value: bytes) -> list[TaskFuture]:
        """Record an answer, and return the futures that wait for it."""
        with self._lock:
            self._keep(origin, value)
            return self._waiting.pop(origin, [])

    def forget(self, origin: Origin, future: TaskFuture) -> None:
        """Record that the future no longer waits."""
        with self._lock:
            left = [one for one in self._waiting.pop(origin, []) if one is not future]
            if left:
                self._waiting[origin] = left

    def waits(self, origins: Iterable[Origin]) -> bool:
        """Return whether one of these is still unanswered."""
        with self._lock:
            return any(origin in self._waiting for origin in origins)

    def covered(self, since_ms: int, mark: int) -> None:
        """Record that every answer dated since then was read, as number ``mark`` or later."""
        with self._lock:
            if not self._covers(since_ms + CLOCK_SKEW_MS):
                self._covered_ms, self._covered_from = since_ms, mark

    def drain(self) -> list[tuple[Origin, TaskFuture]]:
        """Return all waiting futures with their origins, and stop waiting."""
        with self._lock:
            waiting = [(origin, future) for origin, futures in self._waiting.items() for future in futures]
            self._waiting.clear()
            return waiting

    def remove(self, origins: Iterable[Origin]) -> list[TaskFuture]:
        """Return the futures that wait for these, and stop waiting."""
        with self._lock:
            return [future for origin in origins for future in self._waiting.pop(origin, [])]

    # -- with the lock held

    def _covers(self, timestamp_ms: int) -> bool:
        return timestamp_ms - CLOCK_SKEW_MS >= self._covered_ms and self._evicted < self._covered_from

    def _kept(self, origin: Origin) -> bytes | None:
        entry = self._recent.get(origin)
        return entry[1] if entry else None

    def _keep(self, origin: Origin, value: bytes) -> None:
        self._read += 1
        if origin in self._recent:  # a second answer, or the same one read again: the first one counts
            self._recent[origin] = (self._read, self._recent[origin][1])
            self._recent.move_to_end(origin)
            return
        self._recent[origin] = (self._read, value)
        self._bytes += len(value) + _ENTRY
        while self._bytes > self._limit:
            _, (self._evicted, old) = self._recent.popitem(last=False)
            self._bytes -= len(old) + _ENTRY
