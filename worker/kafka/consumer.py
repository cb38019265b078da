"""The consumer's port over confluent-kafka. Poll thread only: a second would starve in the client's gate."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck
import structlog

from worker.core.model import End, Partition, Record
from worker.errors import ClientFatalError
from worker.kafka.clients import FATAL, Guard, failure_of, note_error, with_callbacks
from worker.kafka.ports import KafkaFailure, Listener, Position
from worker.kafka.standing import Eavesdropper, Standing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

log = structlog.get_logger("kafka")
_UNSUPPORTED = (ck.KafkaError.UNSUPPORTED_VERSION, ck.KafkaError._UNSUPPORTED_FEATURE)  # noqa: SLF001 - so named
_UNSUPPORTED_TEXTS = tuple(ck.KafkaError(code).str() for code in _UNSUPPORTED)
# With auto.offset.reset=error: the partition would stand still for ever, and nobody would know.
_NO_OFFSET = ck.KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001 - a public constant of the client in spite of its name
_END = ck.KafkaError._PARTITION_EOF  # noqa: SLF001 - as before
_UNRELEASED = ck.KafkaError.UNRELEASED_INSTANCE_ID
_UNRELEASED_TEXT = ck.KafkaError(_UNRELEASED).str()
COMMITTED_SECONDS = 5.0  # for one question after the committed offsets
COMMITTED_LIMIT = 40.0  # for all of them; less than the supervisor gives a poll loop that does not turn
_EXPELLED = KafkaFailure("UNKNOWN_MEMBER_ID", "the group has given this member up", retriable=False)
INSTANCE_SECONDS = 1.0  # between attempts to join as a static member whose former self has not been given up yet


def _is_unsupported(error: ck.KafkaError) -> bool:
    """Whether the broker does not have what was asked of it. Of a fatal error only the text tells the cause."""
    return error.code() in _UNSUPPORTED or (
        error.code() == FATAL and any(text in error.str() for text in _UNSUPPORTED_TEXTS)
    )


def _is_occupied(error: ck.KafkaError) -> bool:
    return error.code() == _UNRELEASED or (error.code() == FATAL and _UNRELEASED_TEXT in error.str())


class ConfluentConsumer:
    """A member of the group. Tries the protocols in the order given, as the broker may not have the first."""

    def __init__(self, properties: Mapping[str, Mapping[str, Any]]) -> None:
        self._properties = dict(properties)
        self._guard = Guard()
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._kept: list[Record | End] = []  # fetched, and not given out yet
        self._listener: Listener | None = None
        self._topics: list[str] = []
        self._refused = False  # the broker does not have the protocol, but there is another to try
        self._occupied = False  # the member we were before has our identity yet
        self.protocol = next(iter(self._properties))
        self._standing = Standing(self._properties[self.protocol])
        self._identity: str | None = None  # under which we were given what we have; classic protocol
        self._expelled = False
        self._owned: set[Partition] = set()  # as the listener was told
        self._membership: object = None
        self._client = self._make()

    @property
    def stale(self) -> bool:
        """See ``ports.Consumer``."""
        return self._standing.stale or self._expelled

    def _make(self) -> ck.Consumer:
        callbacks: dict[str, Any] = {"on_commit": self._on_commit, "error_cb": self._on_error}
        if self.protocol == "consumer":  # the classic one says at every heartbeat what there is to be done
            callbacks["logger"] = Eavesdropper(logging.getLogger("librdkafka"), self._standing.doubt)
        return ck.Consumer(with_callbacks(self._properties[self.protocol], self._guard, **callbacks))

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        """See ``ports.Consumer``."""
        self._listener = listener
        self._topics = list(topics)
        self._identity = None
        self._client.subscribe(
            self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def poll(self, limit: int, timeout: float) -> list[Record | End]:
        """See ``ports.Consumer``."""
        if not self._kept:
            self._kept = self._records(self._consume(limit, timeout))
        self._guard.check()  # before records are given out: they wait here when a callback has raised beside them
        if self._standing.doubtful:
            self._standing.look(self._client.memberid() or "", self._owned)
        if self._is_another() or (self._standing.expelled and not self._expelled):
            self._expel()
        records, self._kept = self._kept[:limit], self._kept[limit:]
        if self._refused:
            self._fall_back()
        elif self._occupied:
            self._join_again()
        return records

    def _is_another(self) -> bool:
        """Whether the group knows us under another name than the one that was given our partitions.

        A member that the group had given up may join again, in the middle of a rebalance, without having been told that
        its partitions were lost; with its new name the broker would take commits of what is others' by now.
        """
        return self._identity is not None and self._client.memberid() != self._identity

    def _expel(self) -> None:
        """Tell what the client does not: all is lost. It would keep what it believes to have, so begin anew."""
        self._identity, self._expelled = None, True
        ours, self._owned = sorted(self._owned), set()
        if not self._standing.expelled:  # it has said so already
            log.warning("membership.stale", ours=[str(partition) for partition in ours], has=[], shall=[])
        if self._listener is not None and ours:
            self._listener.lost(ours)

    def _consume(self, limit: int, timeout: float) -> list[ck.Message]:
        if timeout <= 0:
            return self._client.consume(limit, 0)
        first = self._client.poll(timeout)
        if first is None:
            return []
        return [first, *self._client.consume(limit - 1, 0)] if limit > 1 else [first]

    def _records(self, messages: Iterable[Any]) -> list[Record | End]:
        """The messages as values. What is no error has all that is asked for; the client's types say "or None"."""
        records: list[Record | End] = []
        partitions = self._partitions
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() == _END:
                    records.append(End(Partition(message.topic(), message.partition()), message.offset()))
                else:
                    self._message_error(error)
                continue
            place = message.topic(), message.partition()
            partition = partitions.get(place)
            if partition is None:
                partition = partitions[place] = Partition(*place)
            headers = message.headers()
            records.append(
                Record(
                    partition,
                    message.offset(),
                    message.key(),
                    message.value(),
                    tuple(headers) if headers else (),
                    message.timestamp()[1],
                )
            )
        return records

    def _message_error(self, error: ck.KafkaError) -> None:
        if self._can_fall_back(error):
            self._refused = True
        elif _is_occupied(error):
            self._occupied = True
        elif error.fatal() or error.code() in (FATAL, _NO_OFFSET):
            message = f"the Kafka client failed: {error.name()}: {error.str()}"
            raise ClientFatalError(message)
        else:
            log.warning("client.error", code=error.name(), reason=error.str())

    def _can_fall_back(self, error: ck.KafkaError) -> bool:
        return len(self._properties) > 1 and _is_unsupported(error)

    def _fall_back(self) -> None:
        self._refused = False
        del self._properties[self.protocol]
        self.protocol = next(iter(self._properties))
        log.warning("protocol.fallback", protocol=self.protocol)
        self._client.close()
        self._client = self._make()
        if self._listener is not None:
            self.subscribe(self._topics, self._listener)

    def _join_again(self) -> None:
        """As a static member after a crash: the broker keeps its identity until the session of the one before ends."""
        self._occupied = False
        log.warning("instance.occupied", again_after=INSTANCE_SECONDS)
        self._client.close()
        time.sleep(INSTANCE_SECONDS)
        self._client = self._make()
        if self._listener is not None:
            self.subscribe(self._topics, self._listener)

    def pause(self, partitions: Sequence[Partition]) -> None:
        """See ``ports.Consumer``."""
        self._client.pause([ck.TopicPartition(p.topic, p.number) for p in partitions])

    def resume(self, partitions: Sequence[Partition]) -> None:
        """See ``ports.Consumer``."""
        self._client.resume([ck.TopicPartition(p.topic, p.number) for p in partitions])

    def end(self, partition: Partition) -> int:
        """See ``ports.Consumer``."""
        _, end = self._client.get_watermark_offsets(ck.TopicPartition(partition.topic, partition.number), cached=True)
        return max(-1, end)

    def commit(self, positions: Mapping[Partition, Position]) -> None:
        """See ``ports.Consumer``."""
        if self._is_another():
            if self._listener is not None:
                self._listener.committed(positions, _EXPELLED)
            return
        try:
            self._client.commit(offsets=topic_partitions(positions), asynchronous=True)
        except ck.KafkaException as error:
            if self._listener is not None:
                self._listener.committed(positions, failure_of(error.args[0]))

    def commit_now(self, positions: Mapping[Partition, Position]) -> KafkaFailure | None:
        """See ``ports.Consumer``."""
        if self._is_another():
            return _EXPELLED
        try:
            answered = self._client.commit(offsets=topic_partitions(positions), asynchronous=False) or []
        except ck.KafkaException as error:
            return failure_of(error.args[0])
        return next((failure_of(position.error) for position in answered if position.error), None)

    def membership(self) -> object:
        """See ``ports.Consumer``."""
        membership = self._client.consumer_group_metadata()
        if not self._is_another():  # asked afterwards: a name is never taken back
            self._membership = membership
        return self._membership

    def close(self) -> None:
        """See ``ports.Consumer``."""
        if self._is_another():
            self._expel()
        self._identity = None  # it may be gone before the last callback comes
        self._client.close()
        self._guard.check()

    # -- callbacks of the client

    def _on_error(self, error: ck.KafkaError) -> None:
        if self._can_fall_back(error):
            self._refused = True
        elif _is_occupied(error):
            self._occupied = True
        else:
            note_error(self._guard, error)

    def _on_assign(self, client: ck.Consumer, positions: list[ck.TopicPartition]) -> None:
        if positions:  # KIP-848 says often that there are none
            self._guard.call(self._assign, client, positions)

    def _assign(self, client: ck.Consumer, positions: list[ck.TopicPartition]) -> None:
        if self.protocol == "classic" and self._identity is None and not self._expelled:
            self._identity = client.memberid()
        self._standing.joined = True
        committed = _committed(client, positions)
        self._owned |= committed.keys()
        begin = {} if self._listener is None else self._listener.assigned(committed)
        for position in positions:
            partition = Partition(position.topic, position.partition)
            known = committed[partition]
            position.offset = begin.get(partition, known.offset if known else ck.OFFSET_INVALID)
        client.incremental_assign(positions)
        # The client keeps a partition paused over a revoke and a later assignment.
        client.resume(positions)

    def _on_revoke(self, _client: ck.Consumer, positions: list[ck.TopicPartition]) -> None:
        self._tell("lost" if self._is_another() else "revoked", positions)

    def _on_lost(self, _client: ck.Consumer, positions: list[ck.TopicPartition]) -> None:
        self._identity = None
        self._tell("lost", positions)

    def _tell(self, what: str, positions: list[ck.TopicPartition]) -> None:
        partitions = [Partition(position.topic, position.partition) for position in positions]
        partitions = [partition for partition in partitions if partition in self._owned]
        self._owned -= set(partitions)
        if self._listener is not None and partitions:
            self._guard.call(getattr(self._listener, what), partitions)

    def _on_commit(self, error: ck.KafkaError | None, positions: list[ck.TopicPartition]) -> None:
        if self._listener is None:
            return
        answered = {Partition(p.topic, p.partition): Position(p.offset, p.metadata or "") for p in positions}
        error = error or next((position.error for position in positions if position.error), None)
        self._guard.call(self._listener.committed, answered, None if error is None else failure_of(error))


def topic_partitions(positions: Mapping[Partition, Position]) -> list[ck.TopicPartition]:
    """Positions as the client takes them."""
    return [ck.TopicPartition(p.topic, p.number, at.offset, at.notes) for p, at in positions.items()]


def _committed(client: ck.Consumer, positions: list[ck.TopicPartition]) -> dict[Partition, Position | None]:
    """What the group has committed. Asked again while the broker is away, or a transaction is undecided.

    Raises ClientFatalError when that takes too long: a new process begins anew.
    """
    limit = time.monotonic() + COMMITTED_LIMIT
    while True:
        try:
            answered = client.committed(positions, COMMITTED_SECONDS)
        except ck.KafkaException as error:
            failure = failure_of(error.args[0])
        else:
            failed = [failure_of(position.error) for position in answered if position.error]
            if not failed:
                return {
                    Partition(p.topic, p.partition): Position(p.offset, p.metadata or "") if p.offset >= 0 else None
                    for p in answered
                }
            failure = failed[0]
        if time.monotonic() > limit:
            raise ClientFatalError(f"the committed offsets of new partitions cannot be had: {failure}")
        log.warning("client.error", code=failure.code, reason=failure.message)
        time.sleep(0.2)
