"""How much to take from the broker and how much to hand over: buffers measured in time, not in records.

Pausing throws the client's fetched records away and the first record after a resume may take a second
(librdkafka purges its fetch queue; measured). So a process keeps about two seconds of work queued, pauses only
when it could not poll for a second because there was no room, and resumes before the queue runs dry. Records that wait
for the next attempt of one before them do not count as work: other partitions must be fetched meanwhile.
"""

from __future__ import annotations

import math
from typing import NamedTuple

BUFFER_SECONDS = 2.0
BUFFER_RECORDS = 4096
BUFFER_BYTES = 8 * 1024 * 1024
CHUNK_SECONDS = 0.05
CHUNK_RECORDS = 2048
LONG_SECONDS = 300.0  # beside such a task the second a resume takes is nothing: hold nothing back
UNPOLLED_SECONDS = 1.0  # without a poll for this long the client must be paused, so that it can be polled


class Pace:
    """A running estimate of how long a task takes. Starts at a second: careful until tasks prove short."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 1.0

    def observe(self, count: int, total_seconds: float) -> None:
        """``count`` tasks took ``total_seconds`` together."""
        if count:
            keep = 0.5**count
            self.seconds = keep * self.seconds + (1 - keep) * (total_seconds / count)

    def running(self, seconds: float) -> None:
        """The running task has taken ``seconds`` so far: the estimate is at least that."""
        self.seconds = max(self.seconds, seconds)

    def chunk(self) -> int:
        """How many tasks to hand over at a time: about 50 ms of work, at least one."""
        return max(1, min(CHUNK_RECORDS, int(CHUNK_SECONDS / max(self.seconds, 1e-6))))

    def buffer(self) -> int:
        """How many records to keep ahead of the slot: about two seconds of work; none beside very long tasks."""
        if self.seconds > LONG_SECONDS:
            return 0
        return min(BUFFER_RECORDS, math.ceil(BUFFER_SECONDS / max(self.seconds, 1e-6)))


class Fetch(NamedTuple):
    """What to do with the client now: take up to ``limit`` records (None: leave it alone).

    ``paused``: lanes that have their share are to be paused. One that has less goes on being fetched, so that a
    shallow partition is not starved by a deep one.
    """

    limit: int | None
    paused: bool


def has_its_share(waiting: int, waiting_bytes: int, *, buffer: int, lanes: int) -> bool:
    """Whether a lane with ``waiting`` records ahead of the slot holds its part of a buffer for ``lanes`` lanes."""
    share = max(1, buffer // lanes) if buffer else 0
    return waiting >= share or waiting_bytes >= BUFFER_BYTES // lanes


class Intake:
    """Decides when to fetch, pause and resume."""

    __slots__ = ("_paused", "_polled_at")

    def __init__(self) -> None:
        self._paused = False
        self._polled_at = 0.0

    def decide(self, *, ahead: int, ahead_bytes: int, buffer: int, idle: bool, closed: bool, now: float) -> Fetch:
        """``ahead`` records wait before the slot, which is ``idle`` or not; ``closed``: take nothing at all."""
        target = max(buffer, 1) if idle else buffer
        room = 0 if closed or ahead_bytes >= BUFFER_BYTES else target - ahead
        if self._paused:
            self._paused = closed or room <= 0 or ahead > target // 2
        elif room <= 0 and (closed or now - self._polled_at >= UNPOLLED_SECONDS):
            self._paused = True
        if room <= 0 and not self._paused:
            return Fetch(None, paused=False)
        self._polled_at = now
        return Fetch(max(1, room), paused=self._paused)
