"""A consumer group under the consumer protocol: the owners of partitions, and the times at which members learn changes.

A member learns with its next heartbeat which partitions it gets and which it must give up. A member that changes its
subscription sends a heartbeat at once. So the partitions of a member that gives way are idle until the heartbeats of
their new owners, and a member that returns gets partitions one interval later.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol

from benchmarks.simulation.costs import DELIVERY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    import simpy


class Request(NamedTuple):
    """A request with ``seconds`` of work, sent at the time ``sent`` to the partition with this number."""

    sent: float
    seconds: float
    partition: int


class Member(Protocol):
    phase: float  # time of its heartbeats within each interval
    target: int  # partitions that it has or will get
    owned: dict[int, Partition]

    def added(self, partition: Partition) -> None: ...
    def removed(self, partition: Partition) -> None: ...
    def arrived(self, partition: Partition) -> None:
        """React to the first request in a partition of this member."""

    def release_at(self, partition: Partition) -> float:
        """Return when it can give up a partition that the group wants back, which is never in the past."""


class Partition:
    __slots__ = ("idle_since", "number", "owner", "requests")

    def __init__(self, number: int) -> None:
        self.number = number
        self.requests: deque[Request] = deque()
        self.owner: Member | None = None
        self.idle_since = 0.0


class Group:
    """A group. It calls ``on_wait`` with the seconds for which a partition had no owner.

    ``moves`` has the reason of each move, and the seconds until the new owner had the partition.
    """

    def __init__(self, env: simpy.Environment, random: Random, partitions: int, heartbeat: float) -> None:
        self.partitions = [Partition(number) for number in range(partitions)]
        self.heartbeat = heartbeat
        self.changes = 0
        self.idle_seconds = 0.0  # of all partitions together
        self.moves: list[tuple[str, float]] = []  # reason and seconds
        self.active: dict[Member, None] = {}
        self._env = env
        self._random = random
        self._nobody: list[Partition] = []  # partitions without any possible owner

    def begin(self, members: Sequence[Member]) -> None:
        """Share the partitions among the members without any delay."""
        for member in members:
            member.phase = self._random.uniform(0, self.heartbeat)
            self.active[member] = None
        order = self.partitions[:]
        self._random.shuffle(order)
        for number, partition in enumerate(order):
            member = members[number % len(members)]
            member.target += 1
            self._give(partition, member)

    def give_way(self, member: Member) -> None:
        """Give the partitions of the member to others, until it takes part again."""
        self.changes += 1
        del self.active[member]
        member.target = 0
        left = list(member.owned.values())
        for partition in left:
            self._take(partition)
        self._assign(left, self._env.now, "give way")

    def take_part(self, member: Member) -> None:
        """Give a new or returning member its share."""
        self.changes += 1
        now = self._env.now
        member.phase, member.target = now % self.heartbeat, 0
        self.active[member] = None
        share = len(self.partitions) // len(self.active)
        waiting, self._nobody = self._nobody, []
        self._assign(waiting, now, "give way")
        loads = [(-m.target, self._random.random(), m) for m in self.active if m is not member and m.owned]
        heapq.heapify(loads)
        while member.target < share and loads and -loads[0][0] > member.target + 1:
            target, tie, giver = loads[0]
            giver.target -= 1
            member.target += 1
            self._want_back(giver, member, now)
            heapq.heapreplace(loads, (target + 1, tie, giver))

    def _want_back(self, giver: Member, member: Member, begin: float) -> None:
        """Move one of the giver's partitions to the member, with a heartbeat of each."""

        def revoke() -> None:
            if not giver.owned or giver not in self.active:
                giver.target += 1
                member.target -= 1
                return
            partition = self._random.choice(list(giver.owned.values()))
            at = giver.release_at(partition)
            if at > self._env.now:
                self._at(at, lambda: release(partition))
            else:
                release(partition)

        def release(partition: Partition) -> None:
            if partition.owner is not giver:
                member.target -= 1
                return
            self._take(partition)
            self._deliver(partition, member, begin, "take part")

        self._at(self._next_heartbeat(giver), revoke)

    def _assign(self, partitions: list[Partition], begin: float, why: str) -> None:
        """Assign each partition to a member that has the fewest."""
        if not self.active:
            self._nobody.extend(partitions)
            return
        all_loads = ((m.target, self._random.random(), m) for m in self.active)
        loads = heapq.nsmallest(len(partitions), all_loads)
        for partition in partitions:
            target, tie, member = loads[0]
            member.target += 1
            heapq.heapreplace(loads, (target + 1, tie, member))
            self._deliver(partition, member, begin, why)

    def _deliver(self, partition: Partition, member: Member, begin: float, why: str) -> None:
        def give() -> None:
            if member not in self.active:
                self._assign([partition], begin, why)
                return
            self.moves.append((why, self._env.now - begin))
            self._give(partition, member)

        self._at(self._next_heartbeat(member) + DELIVERY, give)

    def _next_heartbeat(self, member: Member) -> float:
        now = self._env.now
        wait = (member.phase - now) % self.heartbeat
        return float(now + (wait if wait > 1e-6 else self.heartbeat))  # noqa: PLR2004 - just sent

    def _give(self, partition: Partition, member: Member) -> None:
        self.idle_seconds += self._env.now - partition.idle_since
        partition.owner = member
        member.owned[partition.number] = partition
        member.added(partition)

    def _take(self, partition: Partition) -> None:
        owner = partition.owner
        assert owner is not None
        partition.owner, partition.idle_since = None, self._env.now
        del owner.owned[partition.number]
        owner.removed(partition)

    def _at(self, when: float, action: Callable[[], None]) -> None:
        timeout = self._env.timeout(max(0.0, when - self._env.now))
        assert timeout.callbacks is not None
        timeout.callbacks.append(lambda _event: action())
