"""One member of a group on the fake broker."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from worker.core.model import PartitionEnd
from worker.kafka.ports import KafkaFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from worker.core.model import Partition, Record
    from worker.kafka.ports import CommitListener, Position, RebalanceListener
    from worker.testing.group import Group
    from worker.testing.storage import Storage

_names = itertools.count(1)
_Answer = tuple["Mapping[Partition, Position]", "KafkaFailure | None"]

OPEN_AGAIN = 1.0  # seconds between two attempts to start with partitions, as in ``worker.kafka.member_partitions``


class FakeConsumer:
    """See ``worker.kafka.ports.Consumer``. As with the real client, callbacks run inside ``poll`` and ``close``."""

    def __init__(self, broker: Storage, group: Group, max_poll_interval: float) -> None:
        self.name = f"member-{next(_names)}"
        self.client_id = self.name
        self.protocol = "consumer"
        self.stale = False
        self.topics: list[str] = []
        self.quota = 0
        self.paused: set[Partition] = set()
        self.closed = False
        self._broker, self._group, self._clock = broker, group, broker.clock
        self._max_poll_interval = max_poll_interval
        self._polled_at = broker.clock()
        self.deaf = False  # the coordinator does not reply to requests for committed offsets
        self._topics: list[str] = []  # those of ``subscribe``, even after giving way
        self._rebalances: RebalanceListener | None = None
        self._commits: CommitListener | None = None
        self._revoked_at = 0.0
        self._revoking: set[Partition] = set()  # revoked, and not released yet
        self._unopened: set[Partition] = set()  # assigned, but the listener could not start with them yet
        self._open_at = 0.0  # the real client waits a second after an attempt that failed
        self._positions: dict[Partition, int] = {}  # of the partitions that this member believes it owns
        self._ended: dict[Partition, int] = {}  # the ends that were reported
        self._flows_at: dict[Partition, float] = {}
        self._answers: list[_Answer] = []
        self._kept: BaseException | None = None

    # -- the port

    @property
    def member_id(self) -> str:
        return "" if self.closed else self.name

    def subscribe(self, topics: Sequence[str], partitions: RebalanceListener, commits: CommitListener) -> None:
        self.topics, self._rebalances, self._commits = list(topics), partitions, commits
        self._topics = self.topics
        self._polled_at = self._clock()
        self._group.join(self)

    def give_way(self, topic: str) -> bool:  # noqa: ARG002 - in this group a member without topics is enough
        if self._revoking or self._broker.away:
            return False
        self.topics = []
        self._group.rebalance()
        return True

    def take_part(self) -> None:
        self.topics = self._topics
        self._group.rebalance()

    def poll(self, limit: int, timeout: float) -> list[Record | PartitionEnd]:
        assert not self.closed
        assert limit > 0
        self._group.expire()
        self._polled_at = self._clock()
        self._serve()
        records = self._fetch(limit)
        if not records and timeout > 0 and self._kept is None:
            self._clock.wait(timeout, until=self._something_to_do)
            self._serve()
            records = self._fetch(limit)
        self._polled_at = self._clock()
        self._check()
        self._take(records)
        return [*records, *self._ends()]

    def pause(self, partitions: Sequence[Partition]) -> None:
        self.paused |= {partition for partition in partitions if partition in self._positions}

    def resume(self, partitions: Sequence[Partition]) -> None:
        for partition in self.paused & set(partitions):
            self._flows_at[partition] = self._clock() + self._broker.resume_delay
        self.paused -= set(partitions)

    def end(self, partition: Partition) -> int:
        return self._broker.topics[partition.topic].ends[partition] if partition in self._positions else -1

    def commit(self, positions: Mapping[Partition, Position]) -> None:
        self._send(positions, lambda failure: self._answers.append((dict(positions), failure)))

    def membership(self) -> object:
        return self

    def coordinator_answers(self) -> bool:
        return not self._broker.away

    def release(self, partitions: Sequence[Partition]) -> None:
        released = self._revoking & set(partitions)
        self._revoking -= released
        for partition in released:
            self._positions.pop(partition, None)
        self._group.release(self, sorted(released))

    def close(self) -> None:
        if self.closed:
            return
        revoked = sorted(set(self._positions) - self._revoking - self._unopened)
        if revoked and self._group.has(self):
            self._notify("revoked", revoked)
        self.closed = True
        self._positions.clear()
        self._group.leave(self)
        self._check()

    # -- for the group

    @property
    def overdue(self) -> bool:
        """Return whether the coordinator should count this member as dead."""
        now = self._clock()
        # A member that does not give back revoked partitions holds up the group for as long as one that does not poll.
        holds = bool(self._revoking) and now - self._revoked_at > self._max_poll_interval
        return holds or now - self._polled_at > self._max_poll_interval

    # -- inside a poll

    def _something_to_do(self) -> bool:
        in_group = self._group.has(self)
        rebalance = in_group and not self._revoking and bool(self._to_revoke() or self._group.to_assign(self))
        return bool(self._answers) or (not self._broker.away and (rebalance or not in_group)) or bool(self._fetch(1))

    def _to_revoke(self) -> list[Partition]:
        """Return the partitions to revoke: one revocation at a time, as with the real client."""
        return [] if self._revoking else self._group.to_revoke(self)

    def _serve(self) -> None:
        """Deliver replies to commits, then the rebalance."""
        answers, self._answers = self._answers, []
        for positions, failure in answers:
            self._call(self._commits, "committed", positions, failure)
        if not self._broker.away:
            self._rebalance()

    def _rebalance(self) -> None:
        if not self._group.has(self):
            if self._revoking:  # the real client learns it only when all are released
                return
            known = sorted(set(self._positions) - self._unopened)
            self._positions.clear()
            self._unopened.clear()
            if known:
                self._notify("lost", known)
            self._group.join(self)
        if revoked := self._to_revoke():
            unopened = self._unopened & set(revoked)
            self._unopened -= unopened
            self._revoking, self._revoked_at = set(revoked), self._clock()
            self.release(sorted(unopened))
            if self._revoking:
                self._notify("revoked", sorted(self._revoking))
        elif self._group.has(self) and not self._revoking and (assigned := self._group.to_assign(self)):
            self._group.assign(self, assigned)
            self._positions.update(dict.fromkeys(assigned, 0))
            self._unopened |= set(assigned)
        self._open()

    def _open(self) -> None:
        """Let the listener start with new partitions, as soon as it can."""
        assigned = sorted(self._unopened)
        if not assigned or self.deaf or self._clock() < self._open_at:
            return
        if not self._call(self._rebalances, "ready", assigned):
            return
        positions = {partition: self._group.committed.get(partition) for partition in assigned}
        begin = self._call(self._rebalances, "assigned", positions)
        if begin is None:
            self._open_at = self._clock() + OPEN_AGAIN
            return
        self._unopened.clear()
        for partition, position in positions.items():
            self._positions[partition] = begin.get(partition, position.offset if position else 0)
            self._ended.pop(partition, None)
        self.paused -= set(assigned)

    def _fetch(self, limit: int) -> list[Record]:
        """Return available records from as few partitions as possible, like the real client's queue. Moves nothing."""
        records: list[Record] = []
        if self._broker.away:
            return records
        for partition, position in self._positions.items():
            if self._revoking or partition in self._unopened:
                continue
            if partition in self.paused or self._flows_at.get(partition, 0) > self._clock():
                continue
            log = self._broker.topics[partition.topic].logs[partition]
            there = (record for record in log if record.offset >= position)
            records += itertools.islice(there, limit - len(records))
        return records

    def _take(self, records: list[Record]) -> None:
        for record in records:
            self._positions[record.partition] = record.offset + 1
        for partition in dict.fromkeys(record.partition for record in records):
            # Move it to the end of the queue, so that a long backlog does not starve the others.
            self._positions[partition] = self._positions.pop(partition)

    def _ends(self) -> list[PartitionEnd]:
        """Return the ends that were reached just now."""
        reached = []
        for partition, position in self._positions.items():
            topic = self._broker.topics[partition.topic]
            end, log = topic.ends[partition], topic.logs[partition]
            if self._revoking or partition in self._unopened:
                continue
            caught_up = not log or log[-1].offset < position
            if caught_up and partition not in self.paused and self._ended.get(partition) != end:
                self._ended[partition] = end
                reached.append(PartitionEnd(partition, end))
        return [] if self._broker.away else reached

    def _send(self, offsets: Mapping[Partition, Position], answer: Callable[[KafkaFailure | None], None]) -> None:
        sent, known = dict(offsets), self._group.has(self)
        removed = KafkaFailure("UNKNOWN_MEMBER_ID", "not in the group when it was sent")
        self._broker.request(
            lambda: answer(self._group.commit(self, sent) if known else removed), self._broker.commit_delay
        )
        if self._broker.late_copies and known:
            self._broker.request(lambda: self._take_copy(sent), self._broker.late_copies)

    def _take_copy(self, sent: Mapping[Partition, Position]) -> None:
        self._group.commit(self, sent)

    # -- callbacks

    def _notify(self, what: str, partitions: list[Partition]) -> None:
        self._call(self._rebalances, what, partitions)

    def _call(self, listener: object, what: str, *arguments: object) -> Any:
        try:
            return getattr(listener, what)(*arguments)
        except BaseException as error:  # noqa: BLE001 - kept, and raised when the call is over
            self._kept = self._kept or error
            return None

    def _check(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            raise kept
