"""The partitions of one member of the group, from assignment until they are gone. Poll thread, or one it waits for.

**Assignment.** A new partition begins at the group's committed offset. If the coordinator or the owner cannot say which
that is, the partition is assigned paused, and the consumer tries again between polls.

**Revocation.** A revoked partition may have a task that takes hours. The callback does not wait for it: it tells
librdkafka that the application will unassign later (``incremental_assign([])``) and returns. Polling continues, commits
get their replies, and ``incremental_unassign`` follows when the owner has released everything. This was checked with
librdkafka 2.16 under both protocols, and ``tests/contract/test_consumer.py`` tests it.

Methods that need the client get it as an argument, because the consumer may replace it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import confluent_kafka as ck
import structlog

from worker.core.model import Partition
from worker.kafka.clients import at_offsets, failure_of, without_offsets
from worker.kafka.committed_offsets import fetch_committed, reset_offset

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from worker.kafka.clients import CallbackErrors
    from worker.kafka.ports import RebalanceListener

WAKE_SECONDS = 0.5  # for the reply to a request that only wakes the client
OPEN_AGAIN = (1.0, 5.0)  # seconds: the first and the longest pause between two attempts to start with partitions

log = structlog.get_logger("kafka")


class MemberPartitions:
    """Calls the listener for assigned, revoked and lost partitions, and responds to the client.

    ``owned`` has the partitions that the listener knows, and those that wait because it could not start with them yet.
    """

    def __init__(self, errors: CallbackErrors, reset_rule: str) -> None:
        self.listener: RebalanceListener | None = None
        self.owned: set[Partition] = set()
        self._unread: set[Partition] = set()  # partitions of the topic subscribed to after giving way: never read
        self._paused: set[Partition] = set()
        self._errors = errors
        self._reset_rule = reset_rule
        self._unopened: set[Partition] = set()  # assigned, but the listener could not start with them yet
        self._open_at = 0.0
        self._open_pause = OPEN_AGAIN[0]
        self._revoked: list[ck.TopicPartition] = []  # the revocation that is not acknowledged yet
        self._unreleased: set[Partition] = set()  # the part of it that the owner still holds

    @property
    def revoking(self) -> bool:
        """Return whether a revocation is not acknowledged yet."""
        return bool(self._revoked)

    @property
    def assigned(self) -> set[Partition]:
        """Return all partitions that the group has assigned to this member."""
        return self.owned | self._unread

    def proceed(self, client: ck.Consumer) -> None:
        """Between polls, start with partitions that had to wait, and acknowledge a released revocation."""
        if self._unopened and time.monotonic() >= self._open_at and self._is_ready(sorted(self._unopened)):
            self._open_waiting(client)
        if self._revoked and not self._unreleased:
            self.acknowledge(client)

    # -- fetching

    def pause(self, client: ck.Consumer, partitions: Sequence[Partition]) -> None:
        """Fetch these partitions no longer."""
        self._paused |= set(partitions)
        client.pause(without_offsets(partitions))

    def resume(self, client: ck.Consumer, partitions: Sequence[Partition]) -> None:
        """Fetch these partitions again, and at once."""
        asleep = self.owned <= self._paused
        self._paused -= set(partitions)
        client.resume(without_offsets(partitions))
        if asleep:
            _wake(client, partitions)

    # -- new partitions

    def assign(self, client: ck.Consumer, positions: list[ck.TopicPartition]) -> None:
        """Handle an assignment. Called inside the client's callback."""
        partitions = [_partition(position) for position in positions]
        self.owned |= set(partitions)
        ready = self._is_ready(partitions)
        starts = self._open(client, partitions) if ready else None
        for position, partition in zip(positions, partitions, strict=True):
            position.offset = 0 if starts is None else starts[partition]  # irrelevant while it is paused
        client.incremental_assign(positions)
        if starts is not None:
            self._paused -= set(partitions)
            client.resume(positions)  # the client keeps a partition paused across a revocation and a later assignment
            return
        self.pause(client, partitions)
        self._unopened |= set(partitions)
        self._open_pause = OPEN_AGAIN[0]
        # Asking an owner that is not ready costs nothing; a coordinator that does not reply costs a second.
        self._open_at = time.monotonic() + (self._open_pause if ready else 0.0)

    def assign_unread(self, client: ck.Consumer, positions: list[ck.TopicPartition]) -> None:
        """Accept partitions that nobody reads, paused. Called inside the client's callback."""
        if not positions:
            return
        for position in positions:
            position.offset = 0  # so that the client does not have to look it up
        self._unread |= {_partition(position) for position in positions}
        client.incremental_assign(positions)
        client.pause(positions)

    def _open(self, client: ck.Consumer, partitions: Sequence[Partition]) -> Mapping[Partition, int] | None:
        """Let the listener start with these partitions. Return the first offset of each; None if not yet known."""
        committed = fetch_committed(client, partitions)
        if committed is None or self.listener is None:
            return None
        begin = self.listener.assigned(committed)
        if begin is None:
            return None
        known = {partition: position.offset for partition, position in committed.items() if position is not None}
        return {partition: begin.get(partition, known.get(partition, ck.OFFSET_INVALID)) for partition in partitions}

    def _is_ready(self, partitions: Sequence[Partition]) -> bool:
        return self.listener is not None and self.listener.ready(partitions)

    def _open_waiting(self, client: ck.Consumer) -> None:
        """Try again to start with the partitions that had to wait when they were assigned."""
        partitions = sorted(self._unopened)
        starts = self._open(client, partitions)
        self._errors.check()
        if starts is None:
            self._open_at = time.monotonic() + self._open_pause
            self._open_pause = min(OPEN_AGAIN[1], 2 * self._open_pause)
            return
        self._unopened.clear()
        for partition, offset in starts.items():
            at = reset_offset(self._reset_rule) if offset == ck.OFFSET_INVALID else offset
            client.seek(ck.TopicPartition(partition.topic, partition.number, at))
        self.resume(client, partitions)

    # -- revoked and lost partitions

    def revoke(self, client: ck.Consumer, positions: list[ck.TopicPartition], *, closing: bool) -> None:
        """Handle a revocation. While closing, partitions go at once. Called inside the client's callback."""
        partitions = [_partition(position) for position in positions]
        revoked = [one for one in partitions if one in self.owned and one not in self._unopened]
        if revoked and not closing:
            self._revoked, self._unreleased = positions, set(revoked)
            client.incremental_assign([])  # see the module: the client lets us unassign later
        else:
            self._forget(partitions)
        self._unopened -= set(partitions)
        if self.listener is not None and revoked:
            self._errors.call(self.listener.revoked, revoked)

    def release(self, partitions: Sequence[Partition]) -> None:
        """Record that the owner no longer holds these partitions."""
        self._unreleased -= set(partitions)

    def acknowledge(self, client: ck.Consumer) -> None:
        """Give the partitions of the revocation back, if there is one."""
        revoked, self._revoked = self._revoked, []
        if revoked:
            self._forget(_partition(position) for position in revoked)
            client.incremental_unassign(revoked)
            self._errors.check()

    def lose(self, positions: Iterable[ck.TopicPartition]) -> None:
        """Record that these partitions are lost. Called inside the client's callback."""
        gone = {_partition(position) for position in positions}
        self._unread -= gone
        known = self._forget(gone & self.owned)
        if self.listener is not None and known:
            self._errors.call(self.listener.lost, known)

    def lose_all(self) -> None:
        """Tell the listener that everything is lost, which the client does not report. Raise what it raises."""
        lost, self.owned = sorted(self.owned), set()
        self._forget(lost)
        if self.listener is not None and lost:
            self.listener.lost(lost)

    def _forget(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Forget these partitions. Return those that the listener knows."""
        gone = set(partitions)
        self.owned -= gone
        self._unread -= gone
        known = sorted(gone - self._unopened)
        self._unopened -= gone
        self._paused -= gone
        self._unreleased -= gone
        return known


def _partition(position: ck.TopicPartition) -> Partition:
    return Partition(position.topic, position.partition)


def _wake(client: ck.Consumer, partitions: Sequence[Partition]) -> None:
    """Let the client fetch now what it has just resumed. Wait for one reply of the brokers.

    The client's thread for a broker sleeps for up to a second when it fetches nothing. A resume does not wake it, but
    any request does (measured with librdkafka 2.16: 0.9 s without this, 0.01 s with it).
    """
    now = int(time.time() * 1000)
    try:
        client.offsets_for_times(at_offsets(dict.fromkeys(partitions, now)), WAKE_SECONDS)
    except ck.KafkaException as error:
        failure = failure_of(error.args[0])  # it fetches a second later
        log.warning("client.error", code=failure.code, reason=failure.message)
