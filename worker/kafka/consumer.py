"""The consumer port over confluent-kafka. Poll thread only, because a second thread would starve at the client's lock.

Only ``close`` runs in another thread, and the poll thread waits for it. The partitions of the member, and how they are
assigned and revoked, are in ``member_partitions``.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck
import structlog

from worker.core.model import Partition
from worker.errors import ClientFatalError
from worker.kafka.broker_watch import BrokerWatch
from worker.kafka.clients import FATAL, CallbackErrors, failure_of, report_error, topic_partitions, with_callbacks
from worker.kafka.committed_offsets import fetch_committed, is_known
from worker.kafka.join_errors import RejoinPause, is_in_use, is_unsupported
from worker.kafka.member_partitions import MemberPartitions
from worker.kafka.membership_check import LogWatcher, MembershipCheck, report_stale
from worker.kafka.ports import FENCED_CODES, CommitListener, KafkaFailure, Position, RebalanceListener
from worker.kafka.records import RecordReader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from worker.core.model import PartitionEnd, Record

HEARTBEAT_SECONDS = 1.0  # at most, between two heartbeats under the consumer protocol
CLOSE_SECONDS = 10.0  # for ``close``; without a reply from the coordinator, a classic member leaves after 5 s

log = structlog.get_logger("kafka")
# With auto.offset.reset=error, the partition would stop without any sign.
_NO_OFFSET = ck.KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001 - a public constant of the client in spite of its name
_REMOVED = KafkaFailure("UNKNOWN_MEMBER_ID", "the group has removed this member", retriable=False)
_LATE_COPY = KafkaFailure("_TIMED_OUT", "a copy of it may arrive after a later commit, so the process is replaced")


class ConfluentConsumer:
    """A member of the group. It tries the protocols in order, because the broker may not support the first.

    A commit whose connection fails may reach the coordinator after later commits, and undo them: the kernel still sends
    what the client wrote to a connection that it has closed, and the client has sent the commit again by then. Only the
    next membership keeps such a copy out. With ``ordered_commits``, such a commit fails, and the member is stale.
    """

    def __init__(self, properties: Mapping[str, Mapping[str, Any]], *, ordered_commits: bool = False) -> None:
        self._properties = dict(properties)
        self.protocol = next(iter(self._properties))
        self._callback_errors = CallbackErrors()
        self._reader = RecordReader(self._on_message_error)
        reset_rule = str(self._properties[self.protocol].get("auto.offset.reset", "earliest"))
        self._partitions = MemberPartitions(self._callback_errors, reset_rule)
        self._commits: CommitListener | None = None
        self._topics: list[str] = []
        self._away: str | None = None  # the topic that is subscribed to after giving way
        self._unsupported = False  # the broker does not support the protocol, but there is another to try
        self._in_use = False  # the broker still knows the previous process of this static member
        self._rejoin_pause = RejoinPause()
        self._membership_check = MembershipCheck(self._properties[self.protocol])
        self._identity: str | None = None  # the member id that our partitions were given to, under the classic protocol
        self._removed = False
        self._ordered_commits = ordered_commits
        self._committing = False  # a commit has no reply yet
        self._replied = False  # a commit got its reply in this poll
        self._copy_possible = False  # a copy of that commit may arrive late
        self._copy_left = False  # a copy of some commit may arrive late
        self._closing = False
        self._left_as: str | None = None  # the member id after ``close``; empty if it has left the group
        self._heartbeat_at = math.inf  # not before it has subscribed
        self._membership: object = None
        self._client = self._make()

    @property
    def member_id(self) -> str:
        """See ``ports.Consumer``."""
        return self._client.memberid() or "" if self._left_as is None else self._left_as

    @property
    def stale(self) -> bool:
        """See ``ports.Consumer``."""
        return self._membership_check.stale or self._removed or self._copy_left

    def subscribe(self, topics: Sequence[str], partitions: RebalanceListener, commits: CommitListener) -> None:
        """See ``ports.Consumer``."""
        self._topics, self._partitions.listener, self._commits = list(topics), partitions, commits
        self._subscribe()

    def give_way(self, topic: str) -> bool:
        """See ``ports.Consumer``."""
        if self._partitions.revoking or not is_known(self._client, topic):
            return False
        self._away = topic
        self._change_subscription()
        return True

    def take_part(self) -> None:
        """See ``ports.Consumer``."""
        self._away = None
        self._change_subscription()

    def poll(self, limit: int, timeout: float) -> list[Record | PartitionEnd]:
        """See ``ports.Consumer``."""
        self._replied = False
        self._partitions.proceed(self._client)
        if self.protocol == "consumer" and time.monotonic() >= self._heartbeat_at:
            self._send_heartbeat()
        messages = self._consume(limit, timeout)
        self._callback_errors.check()  # after its exception the process ends, and these records are read again
        records = self._reader.read(messages)
        self._check_membership()
        if self._unsupported:
            self._fall_back()
        elif self._in_use:
            self._join_again()
        return records

    def _consume(self, limit: int, timeout: float) -> list[ck.Message]:
        if timeout <= 0:
            return self._client.consume(limit, 0)
        first = self._client.poll(timeout)
        if first is None:
            return []
        return [first, *self._client.consume(limit - 1, 0)] if limit > 1 else [first]

    # -- partitions and commits

    def release(self, partitions: Sequence[Partition]) -> None:
        """See ``ports.Consumer``. The next ``poll`` acknowledges the revocation."""
        self._partitions.release(partitions)

    def pause(self, partitions: Sequence[Partition]) -> None:
        """See ``ports.Consumer``."""
        self._partitions.pause(self._client, partitions)

    def resume(self, partitions: Sequence[Partition]) -> None:
        """See ``ports.Consumer``."""
        self._partitions.resume(self._client, partitions)

    def end(self, partition: Partition) -> int:
        """See ``ports.Consumer``."""
        _, end = self._client.get_watermark_offsets(ck.TopicPartition(partition.topic, partition.number), cached=True)
        return max(-1, end)

    def coordinator_answers(self) -> bool:
        """See ``ports.Consumer``."""
        owned = sorted(self._partitions.owned)
        return not owned or fetch_committed(self._client, owned[:1]) is not None

    def commit(self, positions: Mapping[Partition, Position]) -> None:
        """See ``ports.Consumer``."""
        failure = _REMOVED if self._is_another() else self._commit(positions)
        if failure is not None and self._commits is not None:
            self._commits.committed(positions, failure)

    def _commit(self, positions: Mapping[Partition, Position]) -> KafkaFailure | None:
        try:
            self._client.commit(offsets=topic_partitions(positions), asynchronous=True)
        except ck.KafkaException as error:
            return failure_of(error.args[0])
        self._copy_left = self._copy_left or (self._ordered_commits and self._committing)  # the last one was given up
        self._committing, self._copy_possible = True, False
        return None

    # -- membership

    def membership(self) -> object:
        """See ``ports.Consumer``."""
        membership = self._client.consumer_group_metadata()
        if not self._is_another():  # checked afterwards, because a member id is never reused
            self._membership = membership
        return self._membership

    def _check_membership(self) -> None:
        """Check between polls whether the group still knows this member as the owner of our partitions."""
        if self._membership_check.pending and not self._partitions.revoking:  # the views differ during a revocation
            self._membership_check.check(self._client.memberid() or "", self._partitions.assigned)
        if self._is_another() or (self._is_cut_off() and not self._removed):
            self._remove()

    def _on_silent_coordinator(self) -> None:
        """Handle a request that the coordinator has not answered. The client closes the connection.

        The client passes replies on before log lines, so a commit may have got its reply over the next connection.
        """
        if self._ordered_commits and (self._committing or self._replied):
            self._copy_possible = self._copy_left = True
        self._request_check()

    def _request_check(self) -> None:
        """Check the membership soon. Under the classic protocol, every heartbeat reply reports a rebalance."""
        if self.protocol == "consumer":
            self._membership_check.request()

    def _is_another(self) -> bool:
        """Return whether the group knows us by another member id than the one that got our partitions.

        A member that the group has removed may join again, in the middle of a rebalance, without a notice that its
        partitions are lost. Under its new id the broker would accept commits for partitions that others now own.
        """
        return self._identity is not None and self._client.memberid() != self._identity

    def _is_cut_off(self) -> bool:
        """Return whether this client no longer hears from the group. Both causes have been logged."""
        return self._membership_check.fenced or self._watch.stranded

    def _remove(self) -> None:
        """Record that the group has removed us, or soon will, so all partitions are lost."""
        self._identity, self._removed = None, True
        if not self._is_cut_off():
            report_stale(set(self._partitions.owned), set(), set())
        self._partitions.lose_all()

    # -- the client's life

    def _make(self) -> ck.Consumer:
        callbacks: dict[str, Any] = {"on_commit": self._on_commit, "error_cb": self._on_error}
        callbacks["logger"] = LogWatcher(logging.getLogger("librdkafka"), self._on_silent_coordinator)
        self._watch = BrokerWatch(on_silence=self._request_check)
        properties = with_callbacks(self._properties[self.protocol], self._callback_errors, **callbacks)
        return ck.Consumer(self._watch.watched(properties))

    def _subscribe(self) -> None:
        self._identity = None
        self._change_subscription()

    def _change_subscription(self) -> None:
        topics = self._topics if self._away is None else [self._away]
        # The client drops callbacks that are not passed again.
        self._client.subscribe(topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)
        self._heartbeat_at = time.monotonic() + HEARTBEAT_SECONDS

    def _send_heartbeat(self) -> None:
        """Send the next heartbeat now. Its reply says which partitions come and go.

        Otherwise that takes up to 5 s, which is the broker's default interval. librdkafka 2.16 sends a heartbeat
        whenever the application subscribes, and for the same topics nothing else changes. A classic member would join
        again.
        """
        try:
            self._change_subscription()
        except ck.KafkaException as error:
            if error.args[0].code() != FATAL:
                raise
            # The client has failed. The poll that follows reports why.

    def _fall_back(self) -> None:
        self._unsupported = False
        del self._properties[self.protocol]
        self.protocol = next(iter(self._properties))
        self._membership_check = MembershipCheck(self._properties[self.protocol])
        log.warning("protocol.fallback", protocol=self.protocol)
        self._begin_again()

    def _join_again(self) -> None:
        self._in_use = False
        self._rejoin_pause.wait()
        self._begin_again()

    def _begin_again(self) -> None:
        """Join with a new client. Raise ClientFatalError if this one does not close."""
        self._closing = True
        if not self._leave():
            raise ClientFatalError("the Kafka client could not leave the group to join it again")
        self._callback_errors.check()
        self._closing = False
        self._client = self._make()
        self._left_as = None
        if self._partitions.listener is not None:
            self._subscribe()

    def close(self) -> None:
        """See ``ports.Consumer``."""
        if self._is_another():
            self._remove()
        self._identity = None  # the client may forget its member id before the last callback comes
        self._closing = True
        self._partitions.acknowledge(self._client)
        if self._watch.stranded:
            self._left_as = self.member_id
        else:
            self._leave()
        self._callback_errors.check()

    def _leave(self) -> bool:
        """Close the client in another thread. Return False if that takes too long.

        The client waits without end for the reply to a commit, and for a coordinator whose address it has lost.
        """
        member_id = self.member_id  # a client that cannot close does not answer this question either
        call = self._callback_errors.call
        closing = threading.Thread(target=call, args=(self._client.close,), name="close", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)
        if not closing.is_alive():
            self._left_as = ""
            return True
        self._left_as = member_id
        self._commits = self._partitions.listener = None  # from now on, callbacks would run beside this thread
        log.warning("client.close_timed_out")
        return False

    # -- callbacks of the client

    def _on_assign(self, client: ck.Consumer, positions: list[ck.TopicPartition]) -> None:
        if positions:  # with KIP-848 it is often empty
            self._callback_errors.call(self._assign, client, positions)

    def _assign(self, client: ck.Consumer, positions: list[ck.TopicPartition]) -> None:
        if self.protocol == "classic" and self._identity is None and not self._removed:
            self._identity = client.memberid()
        self._membership_check.joined = True
        self._membership_check.change_reported()
        wanted = [position for position in positions if position.topic in self._topics]
        self._partitions.assign_unread(
            client, [position for position in positions if position.topic not in self._topics]
        )
        if wanted:
            self._partitions.assign(client, wanted)

    def _on_revoke(self, client: ck.Consumer, positions: list[ck.TopicPartition]) -> None:
        if self._is_another():
            self._on_lost(client, positions)
        else:
            self._membership_check.change_reported()
            self._partitions.revoke(client, positions, closing=self._closing)

    def _on_lost(self, _client: ck.Consumer, positions: list[ck.TopicPartition]) -> None:
        self._identity = None
        self._partitions.lose(positions)

    def _on_commit(self, error: ck.KafkaError | None, positions: list[ck.TopicPartition]) -> None:
        if self._commits is None:
            return
        answered = {Partition(p.topic, p.partition): Position(p.offset, p.metadata or "") for p in positions}
        error = error or next((position.error for position in positions if position.error), None)
        failure = None if error is None else failure_of(error)
        if self._copy_possible:
            failure = failure or _LATE_COPY
        self._committing, self._replied, self._copy_possible = False, True, False
        if failure is not None and failure.code in FENCED_CODES:
            self._request_check()
        self._callback_errors.call(self._commits.committed, answered, failure)

    def _on_error(self, error: ck.KafkaError) -> None:
        if not self._keep_join_error(error):
            report_error(self._callback_errors, error)

    def _on_message_error(self, error: ck.KafkaError) -> None:
        """Handle an error that ``poll`` got instead of a record. Raise ``ClientFatalError`` if it is fatal."""
        if self._keep_join_error(error):
            return
        if error.fatal() or error.code() in (FATAL, _NO_OFFSET):
            message = f"the Kafka client failed: {error.name()}: {error.str()}"
            raise ClientFatalError(message)
        log.warning("client.error", code=error.name(), reason=error.str())

    def _keep_join_error(self, error: ck.KafkaError) -> bool:
        """Keep an error after which ``poll`` joins with a new client. Return whether it is one."""
        if len(self._properties) > 1 and is_unsupported(error):
            self._unsupported = True
        elif is_in_use(error):
            self._in_use = True
        else:
            return False
        return True
