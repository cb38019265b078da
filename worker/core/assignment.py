"""The lanes of a process: one per assigned partition, each under a lease of its own, taking turns."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from worker.core.lane import Lane

if TYPE_CHECKING:
    from collections.abc import Iterable

    from worker.core.model import Partition, Record, Task


class Assignment:
    """What this process owns. A new lease is given on every assignment, also of a partition it had before."""

    def __init__(self) -> None:
        self.lanes: dict[Partition, Lane] = {}
        self._turns: deque[Lane] = deque()
        self._leases = 0

    def assign(self, partitions: Iterable[Partition]) -> list[Lane]:
        """Open a lane for each partition; a lane that was open for it is closed first."""
        opened = []
        for partition in partitions:
            self.close([partition])
            self._leases += 1
            lane = self.lanes[partition] = Lane(partition, self._leases)
            self._turns.append(lane)
            opened.append(lane)
        return opened

    def close(self, partitions: Iterable[Partition]) -> None:
        """End the leases of these partitions."""
        for partition in partitions:
            lane = self.lanes.pop(partition, None)
            if lane is not None:
                lane.close()
                self._turns.remove(lane)

    def admit(self, records: Iterable[Record]) -> int:
        """Queue records; those of partitions that are not ours, or are leaving, are let go. Returns the bytes kept."""
        admitted = 0
        for record in records:
            lane = self.lanes.get(record.partition)
            if lane is not None and not lane.leaving:
                admitted += lane.admit(record)
        return admitted

    def take(self, limit: int, now: float) -> list[Task]:
        """Up to ``limit`` tasks, the lanes taking turns."""
        ready = [lane for lane in self._turns if lane.ready(now)]
        if not ready:
            return []
        share = max(1, limit // len(ready))
        tasks: list[Task] = []
        for lane in ready:
            if len(tasks) >= limit:
                break
            tasks += lane.take(min(share, limit - len(tasks)), now)
            self._turns.remove(lane)
            self._turns.append(lane)
        return tasks

    def next_ready(self) -> float:
        """When the first waiting lane may start its next attempt (infinity: none waits)."""
        return min((lane.ready_at for lane in self._turns if lane.queue and not lane.stalled), default=math.inf)

    @property
    def queued(self) -> int:
        """Records that have not been handed over."""
        return sum([len(lane.queue) for lane in self._turns])

    @property
    def queued_bytes(self) -> int:
        """Bytes of those records."""
        return sum([lane.queued_bytes for lane in self._turns])

    def startable(self, now: float) -> tuple[int, int]:
        """Records and bytes of the lanes that do not wait for another attempt."""
        lanes = [lane for lane in self._turns if not lane.waits(now)]
        return sum([len(lane.queue) for lane in lanes]), sum([lane.queued_bytes for lane in lanes])
