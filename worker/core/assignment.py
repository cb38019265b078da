"""The partitions that a process owns, each under a separate lease. They take turns."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from worker.core.commit_metadata import EMPTY, CommitMetadata
from worker.core.model import PartitionEnd
from worker.core.owned_partition import OwnedPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from worker.core.crash import Crash
    from worker.core.dispatch import DispatchRule
    from worker.core.model import Partition, Record, Task


class Admitted(NamedTuple):
    """The result of admitting records: how many were queued, their bytes, and the repeated ones, which were dropped."""

    records: int
    size: int
    repeated: list[Record]


class Assignment:
    """The partitions that this process owns. Each assignment begins a new lease. Used on the poll thread."""

    def __init__(self, ordering: str = "partition", *, batches: bool = False) -> None:
        self.partitions: dict[Partition, OwnedPartition] = {}
        self._ordering = ordering
        self._batches = batches
        self._turns: deque[OwnedPartition] = deque()

    def __iter__(self) -> Iterator[OwnedPartition]:
        return iter(self.partitions.values())

    def __len__(self) -> int:
        return len(self.partitions)

    def owner_of(self, task: Task) -> OwnedPartition | None:
        """Return the partition of the task if this process still owns it under the same lease, else None."""
        owned = self.partitions.get(task.record.partition)
        return owned if owned is not None and owned.lease is task.claim else None

    def assign(
        self,
        offsets: Mapping[Partition, int | None],
        metadata: Mapping[Partition, CommitMetadata] | None = None,
        crashes: Mapping[Partition, Crash | None] | None = None,
    ) -> list[OwnedPartition]:
        """Begin a lease for each partition, at the group's committed offset. An older lease ends first.

        ``crashes`` says which task the previous owner was running when it died, if that is known.
        """
        added = []
        for partition, offset in offsets.items():
            self.end([partition])
            left = (metadata or {}).get(partition, EMPTY)
            owned = OwnedPartition(
                partition,
                start_offset=offset,
                metadata=left,
                ordering=self._ordering,
                batches=self._batches,
                crash=(crashes or {}).get(partition),
            )
            self.partitions[partition] = owned
            self._turns.append(owned)
            added.append(owned)
        return added

    def end(self, partitions: Iterable[Partition]) -> None:
        """End the leases of these partitions."""
        for partition in partitions:
            owned = self.partitions.pop(partition, None)
            if owned is not None:
                owned.end()
                self._turns.remove(owned)

    def admit(self, records: Iterable[Record | PartitionEnd]) -> Admitted:
        """Queue records. Drop those of partitions that are not owned or are leaving.

        Also drop a second record with the same offset. A broker that continued after its disk was full may have one,
        and an offset can have only one answer.
        """
        count = kept = 0
        repeated: list[Record] = []
        partition = owned = None
        for record in records:
            if record.partition is not partition:  # most records are of the same partition as the one before
                partition = record.partition
                owned = self.partitions.get(partition)
            if owned is None or owned.lease.leaving:
                continue
            if isinstance(record, PartitionEnd):
                owned.unseen_from = min(owned.unseen_from, record.offset)
                owned.reached_end(record.offset)
            elif record.offset <= owned.offsets.last and owned.offsets.has_seen(record.offset):
                repeated.append(record)
            else:
                count += 1
                kept += owned.admit(record)
        return Admitted(count, kept, repeated)

    # -- dispatching

    def take(self, rule: DispatchRule, now: float, *, in_flight: int) -> list[Task]:
        """Return the tasks to dispatch next to an executor that has ``in_flight`` already. Partitions take turns."""
        tasks: list[Task] = []
        while len(tasks) < rule.limit:
            taken, last = self._take_round(rule, now, rule.limit - len(tasks), alone=not (tasks or in_flight))
            tasks += taken
            if last or not taken:
                break
        return tasks

    def _take_round(self, rule: DispatchRule, now: float, limit: int, *, alone: bool) -> tuple[list[Task], bool]:
        """Take tasks from each partition in turn. Also return whether nothing may be dispatched beside them."""
        tasks: list[Task] = []
        ready = self._ready(now)
        share = limit if rule.one_partition else max(1, limit // max(1, len(ready)))
        for owned in ready:
            suspect = owned.has_suspect
            single = rule.alone or suspect
            if len(tasks) >= limit or (single and (tasks or not alone)):
                return tasks, True
            exact = suspect or owned.needs_commit
            at_once = rule.at_once and not owned.needs_commit and owned.position >= owned.unseen_from
            below = math.inf if (rule.unlimited and not exact) or at_once else owned.starts.confirmed
            taken = owned.take(1 if single else min(share, limit - len(tasks)), now, below=below)
            if taken:
                tasks += taken
                self._turns.remove(owned)
                self._turns.append(owned)
                if single and self.waits_for_commit:
                    for other in self._turns:
                        other.postpone_restarts()
            # A single task whose start is being recorded must also run alone. In an outage, failed tasks wait for that
            # much longer, and those of other partitions need not wait for them.
            if (single and (taken or exact or not rule.unlimited)) or (taken and rule.one_partition):
                return tasks, True
        return tasks, False

    def _ready(self, now: float) -> list[OwnedPartition]:
        return [owned for owned in self._turns if owned.head(now) is not None]

    def request_starts(self, rule: DispatchRule, now: float, *, in_flight: int) -> None:
        """Request that the next commit records the starts of the next tasks, so that they may start in their turn."""
        ready = self._ready(now)
        if not ready:
            return
        first = ready[0]
        strict = rule.strict or first.has_suspect
        if strict or rule.alone:
            if not (in_flight or (strict and first.unconfirmed)):
                count = 1 if rule.alone or first.has_suspect else rule.limit
                first.request_starts(count, now, least=count)
            return
        ahead = max(rule.limit, rule.ahead)  # for long tasks: one that runs and one that waits
        share = rule.limit if rule.one_partition else max(1, ahead // len(ready))
        further = rule.further // len(ready)
        for owned in ready:
            if not owned.has_suspect:  # each suspect is recorded alone, once those before it are answered
                owned.request_starts(2 * share + further, now, least=share + further // 2)

    @property
    def waits_for_commit(self) -> bool:
        """Return whether a task waits for the commit that records its start."""
        return any(owned.starts.outstanding for owned in self._turns)

    def next_ready(self) -> float:
        """Return when the first task that waits for its next attempt may start; infinity if none waits."""
        return min([owned.queue.next_ready() for owned in self._turns], default=math.inf)

    def peek(self, count: int) -> list[Record]:
        """Return the next ``count`` records in the current order of turns."""
        rows = [deque(owned.queue.peek(count)) for owned in self._turns]
        records: list[Record] = []
        while len(records) < count and any(rows):
            records += [row.popleft().record for row in rows if row]
        return records[:count]

    # -- counts

    def ready(self, now: float, *, one_partition: bool, outage: bool = False) -> int:
        """Return the number of tasks that could start now, of all partitions or the fullest one. See ``startable``."""
        counts = [owned.queue.startable(now, held=owned.starts.held if outage else ())[0] for owned in self._ready(now)]
        return max(counts, default=0) if one_partition else sum(counts)

    @property
    def queued(self) -> int:
        """Return the number of records that have not been dispatched."""
        return sum([len(owned.queue) for owned in self._turns])

    @property
    def queued_bytes(self) -> int:
        """Return the bytes of those records."""
        return sum([owned.queue.size for owned in self._turns])

    def startable(self, now: float, *, outage: bool = False) -> tuple[int, int]:
        """Return the number and the approximate bytes of the tasks that wait for no next attempt.

        In an ``outage``, the failed tasks that wait for a commit do not count either if others may overtake them.
        """
        rows = [owned.queue.startable(now, held=owned.starts.held if outage else ()) for owned in self._turns]
        return sum([count for count, _ in rows]), sum([size for _, size in rows])
