"""An in-memory Kafka with topics, groups with rebalances, and faults that a test scripts. It uses an injected clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.testing.consumer import FakeConsumer
from worker.testing.group import Group
from worker.testing.producer import FakeProducer
from worker.testing.storage import MAX_BYTES, Storage, Topic

if TYPE_CHECKING:
    from worker.testing.clock import Clock


class FakeBroker(Storage):
    """The broker and its groups. It creates the clients that share them."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.groups: dict[str, Group] = {}

    def create(self, name: str, partitions: int = 4, max_bytes: int = MAX_BYTES) -> str:
        """Create a topic."""
        self.topics[name] = Topic(name, partitions, max_bytes)
        for group in self.groups.values():
            group.rebalance()
        return name

    def group(self, name: str) -> Group:
        """Return the group in its current state."""
        return self.groups.setdefault(name, Group(self))

    def consumer(self, group: str, *, max_poll_interval: float = 300.0) -> FakeConsumer:
        """Return a consumer that joins the group when it subscribes."""
        return FakeConsumer(self, self.group(group), max_poll_interval)

    def producer(self) -> FakeProducer:
        """Return a producer."""
        return FakeProducer(self)
