"""A consumer group: members, a sticky assignment, and partitions that move only after their release."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

from worker.kafka.ports import KafkaFailure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.core.model import Partition
    from worker.kafka.ports import Position
    from worker.testing.storage import Storage


class Member(Protocol):
    """What a group knows about a consumer."""

    name: str
    client_id: str
    topics: list[str]
    quota: int

    @property
    def overdue(self) -> bool:
        """Return whether the coordinator should count it as dead."""


class Group:
    """The coordinator's side. Like the real one, it checks who commits but not who owns the partition."""

    def __init__(self, broker: Storage) -> None:
        self.committed: dict[Partition, Position] = {}
        self.pending: Counter[Partition] = Counter()  # open transactions that may commit a position
        self.commits: list[tuple[str, Partition, int]] = []  # every applied commit, with its member
        self.generation = 0
        self._broker = broker
        self._owned: dict[Member, set[Partition]] = {}
        self._target: dict[Member, set[Partition]] = {}
        self._pinned: dict[Partition, Member] = {}

    def move(self, partition: Partition, member: Member) -> None:
        """Assign the partition to this member for as long as it is in the group."""
        self._pinned[partition] = member
        self.rebalance()

    def join(self, member: Member) -> None:
        """Let the member join, under a new generation."""
        self._owned.setdefault(member, set())
        self.rebalance()

    def leave(self, member: Member) -> None:
        """Remove a member that has left or timed out, and free what it owned."""
        if self._owned.pop(member, None) is not None:
            self.rebalance()

    def members(self) -> list[tuple[Member, set[Partition]]]:
        """Return the members and the partitions that each of them owns."""
        return list(self._owned.items())

    def has(self, member: Member) -> bool:
        """Return whether the coordinator knows the member."""
        return member in self._owned

    def expire(self) -> None:
        """Fence members that have not polled for too long."""
        if self._broker.away:
            return
        for member in [member for member in self._owned if member.overdue]:
            self.leave(member)

    def rebalance(self) -> None:
        """Assign the partitions again, moving as few as possible."""
        self.generation += 1
        topics = {topic for member in self._owned for topic in member.topics}
        partitions = sorted(p for t in topics if t in self._broker.topics for p in self._broker.topics[t].logs)
        # The member with the most partitions keeps the most, so that none moves without need.
        workers = [member for member in self._owned if member.topics]  # the others have given way
        members = sorted(workers, key=lambda member: (-len(self._owned[member]), member.name))
        self._target = {member: set() for member in self._owned}
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
            if member in members:
                for target in self._target.values():
                    target.discard(partition)
                self._target[member].add(partition)

    def to_revoke(self, member: Member) -> list[Partition]:
        """Return what the member must release."""
        return sorted(self._owned[member] - self._target[member])

    def to_assign(self, member: Member) -> list[Partition]:
        """Return what the member may take: its share, as far as no other member holds it."""
        held = set().union(*self._owned.values())
        return sorted(self._target[member] - held)

    def assign(self, member: Member, partitions: list[Partition]) -> None:
        """Record that the member owns these now."""
        self._owned[member] |= set(partitions)

    def release(self, member: Member, partitions: list[Partition]) -> None:
        """Record that the member has given these back."""
        if self.has(member):
            self._owned[member] -= set(partitions)

    def commit(self, member: Member, positions: Mapping[Partition, Position]) -> KafkaFailure | None:
        """Accept a commit, unless its sender is not in the group or a test has scripted a fault."""
        fault = self._broker.commit_faults.popleft() if self._broker.commit_faults else None
        if not self.has(member):
            return KafkaFailure("UNKNOWN_MEMBER_ID", "not in the group")
        if fault is None or fault.applied:
            self.set_committed(member.name, positions)
        return fault.failure if fault else None

    def set_committed(self, name: str, positions: Mapping[Partition, Position]) -> None:
        """Set the committed positions."""
        self.committed.update(positions)
        self.commits += [(name, partition, position.offset) for partition, position in positions.items()]
