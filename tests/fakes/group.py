"""A consumer group: members, a sticky assignment, and partitions that change hands only when they were let go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.kafka.ports import KafkaFailure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.fakes.broker import FakeBroker
    from tests.fakes.consumer import FakeConsumer
    from worker.core.model import Partition
    from worker.kafka.ports import Position


class Group:
    """The coordinator's side. Like the real one it checks who commits, not what is theirs."""

    def __init__(self, broker: FakeBroker) -> None:
        self.committed: dict[Partition, Position] = {}
        self.commits: list[tuple[str, Partition, int]] = []  # every one that was applied, with its member
        self.generation = 0
        self._broker = broker
        self._owned: dict[FakeConsumer, set[Partition]] = {}
        self._target: dict[FakeConsumer, set[Partition]] = {}
        self._pinned: dict[Partition, FakeConsumer] = {}

    def move(self, partition: Partition, member: FakeConsumer) -> None:
        """From now on the partition goes to this member, as long as that is there: what moves is a test's choice."""
        self._pinned[partition] = member
        self.rebalance()

    def join(self, member: FakeConsumer) -> None:
        """Under a new generation."""
        self._owned.setdefault(member, set())
        self.rebalance()

    def leave(self, member: FakeConsumer) -> None:
        """By itself, or fenced because it was not heard of: what it owned is free."""
        if self._owned.pop(member, None) is not None:
            self.rebalance()

    def has(self, member: FakeConsumer) -> bool:
        """Whether the member is in the group, as far as the coordinator knows."""
        return member in self._owned

    def expire(self) -> None:
        """Fence members that have not polled for too long."""
        if self._broker.away:
            return
        for member in [member for member in self._owned if member.overdue]:
            self.leave(member)

    def rebalance(self) -> None:
        """Share the partitions anew, moving as few as possible."""
        self.generation += 1
        topics = {topic for member in self._owned for topic in member.topics}
        partitions = sorted(p for t in topics if t in self._broker.topics for p in self._broker.topics[t].logs)
        # Who holds most keeps most; else a partition would move without need.
        members = sorted(self._owned, key=lambda member: (-len(self._owned[member]), member.name))
        self._target = {}
        for place, member in enumerate(members):
            size = len(partitions) // len(members) + (place < len(partitions) % len(members))
            self._target[member] = set(sorted(self._owned[member] & set(partitions))[:size])
            member.quota = size
        taken = set().union(*self._target.values())
        free = [partition for partition in partitions if partition not in taken]
        for member in members:
            while free and len(self._target[member]) < member.quota:
                self._target[member].add(free.pop(0))
        for partition, member in self._pinned.items():
            if member in self._target:
                for target in self._target.values():
                    target.discard(partition)
                self._target[member].add(partition)

    def to_revoke(self, member: FakeConsumer) -> list[Partition]:
        """What the member must let go."""
        return sorted(self._owned[member] - self._target[member])

    def to_assign(self, member: FakeConsumer) -> list[Partition]:
        """What the member may take: its share, as far as nobody holds it any more."""
        held = set().union(*self._owned.values())
        return sorted(self._target[member] - held)

    def assign(self, member: FakeConsumer, partitions: list[Partition]) -> None:
        """These are the member's now."""
        self._owned[member] |= set(partitions)

    def release(self, member: FakeConsumer, partitions: list[Partition]) -> None:
        """The member has let these go."""
        if self.has(member):
            self._owned[member] -= set(partitions)

    def commit(self, member: FakeConsumer, positions: Mapping[Partition, Position]) -> KafkaFailure | None:
        """Take a commit, unless its sender is not in the group or a test has scripted a fault."""
        fault = self._broker.commit_faults.popleft() if self._broker.commit_faults else None
        if not self.has(member):
            return KafkaFailure("UNKNOWN_MEMBER_ID", "not in the group")
        if fault is None or fault.applied:
            self.stand(member.name, positions)
        return fault.failure if fault else None

    def stand(self, name: str, positions: Mapping[Partition, Position]) -> None:
        """From now on the group stands here."""
        self.committed.update(positions)
        self.commits += [(name, partition, position.offset) for partition, position in positions.items()]
