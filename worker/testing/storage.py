"""The contents of an in-memory broker: topics with their records, and the faults that a test has scripted."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from worker.core.model import Partition, Record
from worker.kafka.ports import KafkaFailure
from worker.testing.murmur2 import partition_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.core.model import Headers
    from worker.testing.clock import Clock

MAX_BYTES = 1_048_588  # the broker's default for max.message.bytes
_BATCH_BYTES = 61  # the head of a record batch
_LENGTHS_BYTES = 10  # approximate lengths, time and offset of one small record


class Fault(NamedTuple):
    """A request that fails: its error, and whether it was applied anyway. "Failed" means "unknown"."""

    failure: KafkaFailure
    applied: bool


class Topic:
    """A topic's records by partition, and the faults of the next deliveries."""

    def __init__(self, name: str, partitions: int, max_bytes: int) -> None:
        self.logs: dict[Partition, list[Record]] = {Partition(name, number): [] for number in range(partitions)}
        self.ends = dict.fromkeys(self.logs, 0)
        self.max_bytes = max_bytes
        self.delay = 0.002  # seconds until a delivery is confirmed
        self.faults: deque[Fault] = deque()
        self._turn = 0

    def place(self, key: bytes | None) -> Partition:
        """Return the partition for a key. Without one, go round robin, where the real client chooses at random."""
        partitions = list(self.logs)
        if key is not None:
            return partitions[partition_of(key, len(partitions))]
        self._turn += 1
        return partitions[self._turn % len(partitions)]

    def too_large(self, key: bytes | None, value: bytes | None, headers: Headers) -> bool:
        """Return whether a batch with only this record is larger than ``max.message.bytes``."""
        size = _BATCH_BYTES + _LENGTHS_BYTES + len(key or b"") + len(value or b"")
        size += sum(len(name.encode()) + len(content or b"") + 2 for name, content in headers)
        return size > self.max_bytes

    def append(self, partition: Partition, key: bytes | None, value: bytes | None, headers: Headers, now: float) -> int:
        """Add a record. Return its offset."""
        offset = self.ends[partition]
        self.logs[partition].append(Record(partition, offset, key, value, headers, int(now * 1000)))
        self.ends[partition] = offset + 1
        return offset


class Storage:
    """A broker's topics, and whether it replies to requests. Its clients share it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.topics: dict[str, Topic] = {}
        self.resume_delay = 0.0  # seconds from ``resume`` to the next record
        self.commit_delay = 0.001
        self.late_copies = 0.0  # seconds after which a copy of each commit arrives, from an old connection; 0: none
        self.commit_faults: deque[Fault] = deque()
        self._away = False
        self._backlog: list[Callable[[], None]] = []  # what clients requested during an outage

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        number: int | None = None,
        headers: Headers = (),
    ) -> tuple[Partition, int]:
        """Put a record there directly. Return its position."""
        found = self.topics[topic]
        partition = found.place(key) if number is None else Partition(topic, number)
        return partition, found.append(partition, key, value, headers, self.clock())

    def skip(self, topic: str, number: int, count: int = 1) -> None:
        """Leave a gap in the offsets, as compaction and transaction markers do."""
        self.topics[topic].ends[Partition(topic, number)] += count

    def records(self, topic: str) -> list[Record]:
        """Return everything in a topic, partition by partition."""
        return [record for log in self.topics[topic].logs.values() for record in log]

    # -- faults

    def fail(self, topic: str, code: str, count: int = 1, *, applied: bool = False) -> None:
        """Let the next deliveries to this topic fail."""
        self.topics[topic].faults.extend([Fault(KafkaFailure(code, "scripted"), applied)] * count)

    def fail_commits(self, code: str, count: int = 1, *, applied: bool = False) -> None:
        """Let the next commits fail."""
        self.commit_faults.extend([Fault(KafkaFailure(code, "scripted"), applied)] * count)

    def leave(self, seconds: float | None = None) -> None:
        """Begin an outage, for a while or until ``come_back``: requests wait, nothing is fetched, no member expires."""
        self._away = True
        if seconds is not None:
            self.clock.after(seconds, self.come_back)

    def come_back(self) -> None:
        """Reply again, beginning with the requests that wait."""
        self._away, backlog, self._backlog = False, self._backlog, []
        for request in backlog:
            request()

    @property
    def away(self) -> bool:
        """Return whether requests get no reply now."""
        return self._away

    def request(self, request: Callable[[], None], delay: float) -> None:
        """Serve a client's request after ``delay`` seconds, or at the end of the outage."""

        def arrive() -> None:
            if self._away:
                self._backlog.append(request)
            else:
                request()

        self.clock.after(delay, arrive)
