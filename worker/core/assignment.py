"""The lanes of a process: one per assigned partition, each under a lease of its own, taking turns."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from worker.core.lane import Lane
from worker.core.model import End
from worker.core.notes import NOTHING, Notes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from worker.core.model import Partition, Record, Task
    from worker.core.starts import Starts


class Assignment:
    """What this process owns. A new lease is given on every assignment, also of a partition it had before."""

    def __init__(self, ordering: str = "partition", *, batches: bool = False) -> None:
        self.lanes: dict[Partition, Lane] = {}
        self._ordering = ordering
        self._batches = batches
        self._turns: deque[Lane] = deque()
        self._leases = 0

    def assign(
        self, bases: Mapping[Partition, int | None], notes: Mapping[Partition, Notes] | None = None
    ) -> list[Lane]:
        """Open a lane for each partition, where the group stands at an offset; one that was open is closed first."""
        opened = []
        for partition, base in bases.items():
            self.close([partition])
            self._leases += 1
            noted = (notes or {}).get(partition, NOTHING)
            lane = Lane(partition, self._leases, base=base, notes=noted, ordering=self._ordering, batches=self._batches)
            self.lanes[partition] = lane
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

    def admit(self, records: Iterable[Record | End]) -> tuple[int, int]:
        """Queue records; those of partitions that are not ours, or are leaving, are let go.

        Returns how many records there were and the bytes kept.
        """
        count = kept = 0
        partition = lane = None
        for record in records:
            if record.partition is not partition:  # most are of the same as the one before
                partition = record.partition
                lane = self.lanes.get(partition)
            if lane is None or lane.leaving:
                continue
            if isinstance(record, End):
                lane.end(record.offset)
            else:
                count += 1
                kept += lane.admit(record)
        return count, kept

    # -- starting

    def take(self, starts: Starts, now: float, *, handed: int) -> list[Task]:
        """The tasks to hand over next to a service that has ``handed`` already, the lanes taking turns."""
        tasks: list[Task] = []
        while len(tasks) < starts.limit:
            taken, last = self._take_round(starts, now, starts.limit - len(tasks), alone=not (tasks or handed))
            tasks += taken
            if last or not taken:
                break
        return tasks

    def _take_round(self, starts: Starts, now: float, limit: int, *, alone: bool) -> tuple[list[Task], bool]:
        """What each lane gives in its turn, and whether nothing may be handed over beside it."""
        tasks: list[Task] = []
        ready = self._ready(now)
        share = limit if starts.one_lane else max(1, limit // max(1, len(ready)))
        for lane in ready:
            careful = starts.alone or lane.doubtful
            if len(tasks) >= limit or (careful and (tasks or not alone)):
                return tasks, True
            below = math.inf if starts.free and not lane.doubtful else lane.permit
            taken = lane.take(1 if careful else min(share, limit - len(tasks)), now, below=below)
            if taken:
                tasks += taken
                self._pass_turn(lane)
                self._note_start(lane, taken[-1].record.offset)
            if careful or (taken and starts.one_lane):
                return tasks, True  # a careful one whose permit is on its way has to be alone, too
        return tasks, False

    def _ready(self, now: float) -> list[Lane]:
        return [lane for lane in self._turns if lane.queue.head(now) is not None]

    def _pass_turn(self, lane: Lane) -> None:
        self._turns.remove(lane)
        self._turns.append(lane)

    @staticmethod
    def _note_start(lane: Lane, offset: int) -> None:
        if offset >= max(lane.permit, lane.wish):
            lane.wish = offset + 1

    def ask(self, starts: Starts, now: float, *, handed: int) -> None:
        """Set the permits to ask for, so that what is to start next may start when its turn comes."""
        ready = self._ready(now)
        if not ready:
            return
        first = ready[0]
        strict = starts.strict or first.doubtful
        if strict or starts.alone:
            if not (handed or (strict and first.unconfirmed)):
                first.ask(1, now)
        else:
            lot = max(starts.limit, starts.ahead)  # of long tasks: one that runs and one that waits
            share = starts.limit if starts.one_lane else max(1, lot // len(ready))
            further = starts.further // len(ready)
            for lane in ready:
                if not lane.doubtful:  # whose tasks are noted one by one, each when those before it are answered
                    lane.ask(2 * share + further, now, least=share + further // 2)

    @property
    def waits_for_permits(self) -> bool:
        """Whether permits have been asked for that no commit has brought yet."""
        return any(lane.wish > lane.permit for lane in self._turns)

    def next_ready(self) -> float:
        """When the first task that waits may start its next attempt (infinity: none waits)."""
        return min([lane.queue.next_ready() for lane in self._turns], default=math.inf)

    def peek(self, count: int) -> list[Record]:
        """The next so many records, the lanes taking turns, as it looks now."""
        rows = [deque(lane.queue.peek(count)) for lane in self._turns]
        records: list[Record] = []
        while len(records) < count and any(rows):
            records += [row.popleft().record for row in rows if row]
        return records[:count]

    # -- how much there is

    def ready(self, now: float, *, one_lane: bool) -> int:
        """Tasks that could start now: of all partitions, or of the one that has most."""
        counts = [lane.queue.startable(now)[0] for lane in self._ready(now)]
        return max(counts, default=0) if one_lane else sum(counts)

    @property
    def queued(self) -> int:
        """Records that have not been handed over."""
        return sum([len(lane.queue) for lane in self._turns])

    @property
    def queued_bytes(self) -> int:
        """Bytes of those records."""
        return sum([lane.queue.size for lane in self._turns])

    def startable(self, now: float) -> tuple[int, int]:
        """Records and bytes of the lanes that do not wait for another attempt."""
        rows = [lane.queue.startable(now) for lane in self._turns]
        return sum([count for count, _ in rows]), sum([size for _, size in rows])
