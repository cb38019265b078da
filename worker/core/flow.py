"""How much to fetch and how much to dispatch. Buffers are measured in time, not in records.

Pausing a partition discards the records that the client has fetched from it. After a resume, the first record may take
half a second while other partitions are fetched: librdkafka's pending request waits for new records of those
(measured). So a process keeps about two seconds of work queued. It pauses only when a full queue has kept it from
polling for a second, and resumes before the queue is empty. Records that wait behind a retry do not count as work, so
that other partitions are still fetched.
"""

from __future__ import annotations

import math
from typing import NamedTuple

BUFFER_SECONDS = 2.0
BUFFER_RECORDS = 4096
BUFFER_BYTES = 8 * 1024 * 1024
CHUNK_SECONDS = 0.05
CHUNK_RECORDS = 2048
LONG_SECONDS = 300.0  # beside such a task the time that a resume takes does not matter, so queue nothing
UNPOLLED_SECONDS = 1.0  # after this long without a poll the client must be paused, so that it can be polled


class TaskDuration:
    """A running estimate of the duration of a task. It starts at one second, to be careful until tasks prove short."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 1.0

    def observe(self, count: int, total_seconds: float) -> None:
        """Record that ``count`` tasks took ``total_seconds`` together."""
        if count:
            keep = 0.5**count
            self.seconds = keep * self.seconds + (1 - keep) * (total_seconds / count)

    def running(self, seconds: float) -> None:
        """Raise the estimate to at least ``seconds``, the time that the running task has taken so far."""
        self.seconds = max(self.seconds, seconds)

    def chunk(self) -> int:
        """Return how many tasks to dispatch at a time: about 50 ms of work, at least one."""
        return max(1, min(CHUNK_RECORDS, int(CHUNK_SECONDS / max(self.seconds, 1e-6))))

    def buffer(self) -> int:
        """Return how many records to queue: about two seconds of work, and none beside very long tasks."""
        if self.seconds > LONG_SECONDS:
            return 0
        return min(BUFFER_RECORDS, math.ceil(BUFFER_SECONDS / max(self.seconds, 1e-6)))


class FetchPlan(NamedTuple):
    """What to do with the client now: fetch up to ``limit`` records. None means: do not poll it.

    If ``paused``, pause the partitions that have their share. The others are still fetched, so that a deep partition
    does not starve a shallow one.
    """

    limit: int | None
    paused: bool


def has_its_share(waiting: int, waiting_bytes: int, *, buffer: int, partitions: int) -> bool:
    """Return whether a partition with ``waiting`` records has its share of a buffer for ``partitions`` partitions."""
    share = max(1, buffer // partitions) if buffer else 0
    return waiting >= share or waiting_bytes >= BUFFER_BYTES // partitions


class FlowControl:
    """Decide when to fetch, pause and resume."""

    __slots__ = ("_paused", "_polled_at")

    def __init__(self) -> None:
        self._paused = False
        self._polled_at = 0.0

    def plan(self, *, ahead: int, ahead_bytes: int, buffer: int, idle: bool, closed: bool, now: float) -> FetchPlan:
        """Return the plan for ``ahead`` queued records. ``idle``: the slot is free. ``closed``: fetch nothing."""
        target = max(buffer, 1) if idle else buffer
        room = 0 if closed or ahead_bytes >= BUFFER_BYTES else target - ahead
        if self._paused:
            self._paused = closed or room <= 0 or ahead > target // 2
        elif room <= 0 and (closed or now - self._polled_at >= UNPOLLED_SECONDS):
            self._paused = True
        if room <= 0 and not self._paused:
            return FetchPlan(None, paused=False)
        self._polled_at = now
        return FetchPlan(max(1, room), paused=self._paused)
