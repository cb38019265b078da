"""An in-memory Kafka: topics, groups with rebalances, and faults that a test scripts. Its time is an injected clock."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from tests.fakes.consumer import FakeConsumer
from tests.fakes.group import Group
from tests.fakes.murmur2 import partition_of
from tests.fakes.producer import FakeProducer
from worker.core.model import Partition, Record
from worker.kafka.ports import KafkaFailure

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fakes.clock import Clock
    from worker.core.model import Headers

MAX_BYTES = 1_048_588  # the broker's default for max.message.bytes
_BATCH_BYTES = 61  # the head of a record batch
_LENGTHS_BYTES = 10  # lengths, time and offset of one small record; about


class Fault(NamedTuple):
    """A request that fails: its error, and whether it was done all the same. "Failed" means "unknown"."""

    failure: KafkaFailure
    applied: bool


class Topic:
    """A topic's records by partition, and what is to go wrong with the next ones."""

    def __init__(self, name: str, partitions: int, max_bytes: int) -> None:
        self.logs: dict[Partition, list[Record]] = {Partition(name, number): [] for number in range(partitions)}
        self.ends = dict.fromkeys(self.logs, 0)
        self.max_bytes = max_bytes
        self.delay = 0.002  # seconds until a delivery is confirmed
        self.faults: deque[Fault] = deque()
        self._turn = 0

    def place(self, key: bytes | None) -> Partition:
        """By the key; records without one take turns, where the real client draws lots."""
        partitions = list(self.logs)
        if key is not None:
            return partitions[partition_of(key, len(partitions))]
        self._turn += 1
        return partitions[self._turn % len(partitions)]

    def too_large(self, key: bytes | None, value: bytes | None, headers: Headers) -> bool:
        """Whether the batch that holds this record alone has more than ``max.message.bytes``."""
        size = _BATCH_BYTES + _LENGTHS_BYTES + len(key or b"") + len(value or b"")
        size += sum(len(name.encode()) + len(content or b"") + 2 for name, content in headers)
        return size > self.max_bytes

    def append(self, partition: Partition, key: bytes | None, value: bytes | None, headers: Headers, now: float) -> int:
        """Returns the offset."""
        offset = self.ends[partition]
        self.logs[partition].append(Record(partition, offset, key, value, headers, int(now * 1000)))
        self.ends[partition] = offset + 1
        return offset


class FakeBroker:
    """What consumers and producers made here share."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.topics: dict[str, Topic] = {}
        self.groups: dict[str, Group] = {}
        self.resume_delay = 0.0  # seconds from ``resume`` to the next record
        self.commit_delay = 0.001
        self.commit_faults: deque[Fault] = deque()
        self._away = False
        self._backlog: list[Callable[[], None]] = []  # what clients asked while we were away

    # -- what exists

    def create(self, name: str, partitions: int = 4, max_bytes: int = MAX_BYTES) -> str:
        """Make a topic."""
        self.topics[name] = Topic(name, partitions, max_bytes)
        for group in self.groups.values():
            group.rebalance()
        return name

    def group(self, name: str) -> Group:
        """The group, as it is now."""
        return self.groups.setdefault(name, Group(self))

    def consumer(self, group: str, *, max_poll_interval: float = 300.0) -> FakeConsumer:
        """A member-to-be of a group."""
        return FakeConsumer(self, self.group(group), max_poll_interval)

    def producer(self) -> FakeProducer:
        """A producer."""
        return FakeProducer(self)

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        number: int | None = None,
        headers: Headers = (),
    ) -> tuple[Partition, int]:
        """Put a record there directly; returns where it is."""
        found = self.topics[topic]
        partition = found.place(key) if number is None else Partition(topic, number)
        return partition, found.append(partition, key, value, headers, self.clock())

    def skip(self, topic: str, number: int, count: int = 1) -> None:
        """A gap in the offsets, as compaction and transaction markers leave it."""
        self.topics[topic].ends[Partition(topic, number)] += count

    def records(self, topic: str) -> list[Record]:
        """Everything in a topic, partition by partition."""
        return [record for log in self.topics[topic].logs.values() for record in log]

    # -- what goes wrong

    def fail(self, topic: str, code: str, count: int = 1, *, applied: bool = False) -> None:
        """The next deliveries to this topic fail."""
        self.topics[topic].faults.extend([Fault(KafkaFailure(code, "scripted"), applied)] * count)

    def fail_commits(self, code: str, count: int = 1, *, applied: bool = False) -> None:
        """The next commits fail."""
        self.commit_faults.extend([Fault(KafkaFailure(code, "scripted"), applied)] * count)

    def leave(self, seconds: float | None = None) -> None:
        """Be away, for a while or until ``come_back``: requests wait, nothing is fetched, nobody is expired."""
        self._away = True
        if seconds is not None:
            self.clock.after(seconds, self.come_back)

    def come_back(self) -> None:
        """Answer again, first what has been asked meanwhile."""
        self._away, backlog, self._backlog = False, self._backlog, []
        for request in backlog:
            request()

    @property
    def away(self) -> bool:
        """Whether requests stay unanswered now."""
        return self._away

    def ask(self, request: Callable[[], None], delay: float) -> None:
        """Do what a client asks after ``delay`` seconds, or when we are back."""

        def arrive() -> None:
            if self._away:
                self._backlog.append(request)
            else:
                request()

        self.clock.after(delay, arrive)
