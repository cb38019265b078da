"""The state of topics as the brokers report it: identity, offsets, and undecided transactions."""

from __future__ import annotations

import itertools
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

import confluent_kafka as ck
from confluent_kafka import admin

from pipeline.errors import BrokerError
from pipeline.exactly_once.client import UNKNOWN, retry_transient, wait_for_metadata

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.settings import KafkaSettings

_spec: Any = getattr(admin, "OffsetSpec")  # noqa: B009 - missing in the client's types, as those below
_NOT_ALLOWED = {ck.KafkaError.TOPIC_AUTHORIZATION_FAILED, ck.KafkaError.CLUSTER_AUTHORIZATION_FAILED}
_LISTED = 1_000  # undecided records to read from a partition; a hung transaction may hide millions
_resource: Any = getattr(admin, "ConfigResource")  # noqa: B009 - as above
_type: Any = getattr(admin, "ResourceType")  # noqa: B009 - as above
_COMMITTED, _ALL = ck.IsolationLevel.READ_COMMITTED, ck.IsolationLevel.READ_UNCOMMITTED


class Span(NamedTuple):
    """The offsets of a partition. ``stable`` is the first that belongs to or follows an undecided transaction."""

    low: int
    stable: int
    high: int


class Undecided(NamedTuple):
    """Undecided records and those behind them: their number at most, and offset and key of the first."""

    records: int
    first: list[tuple[int, bytes | None]]


class Topic(NamedTuple):
    """The current state of a topic. A topic that was deleted and recreated has another ``id``."""

    name: str
    id: str
    spans: dict[int, Span]


class Topics:
    """A client for questions about topics. Each ends in an answer or a BrokerError after about ``timeout`` seconds."""

    def __init__(self, kafka: KafkaSettings, timeout: float = 15.0) -> None:
        self._properties = kafka.client_properties()
        self._timeout = timeout
        self._client = admin.AdminClient(dict(self._properties) | {"log_level": 2})

    def find(self, name: str) -> Topic | None:
        """Return the topic, or None if it does not exist."""
        described = self._describe(name)
        if described is None:
            return None
        partitions = [ck.TopicPartition(name, partition.id) for partition in described.partitions]
        low = self._offsets(partitions, _spec.earliest(), _ALL)
        # In this order: otherwise, a record that arrives between the calls would seem to follow an open transaction.
        high = self._offsets(partitions, _spec.latest(), _ALL)
        stable = self._offsets(partitions, _spec.latest(), _COMMITTED)
        spans = {p: Span(low[p], stable[p], max(high[p], stable[p])) for p in sorted(high)}
        return Topic(name, str(described.topic_id), spans)

    def get(self, name: str) -> Topic:
        """Return the topic. Raise BrokerError if it does not exist."""
        found = self.find(name)
        if found is None:
            raise BrokerError(f"there is no topic {name!r} at Kafka {self._properties['bootstrap.servers']}")
        return found

    def identity(self, name: str) -> str | None:
        """Return the topic's id, or None if it does not exist."""
        described = self._describe(name)
        return None if described is None else str(described.topic_id)

    def _describe(self, name: str) -> Any | None:
        def request() -> Any:
            requested = self._client.describe_topics(ck.TopicCollection([name]), request_timeout=self._timeout)
            return requested[name].result(self._timeout + 1)

        try:
            return retry_transient(request, self._timeout)
        except ck.KafkaException as error:
            if error.args[0].code() in UNKNOWN:
                return None
            raise self._failure(f"looking up topic {name}", error) from error

    def _offsets(self, partitions: list[Any], spec: Any, isolation: Any) -> dict[int, int]:
        def request() -> dict[int, int]:
            requested = self._client.list_offsets(
                dict.fromkeys(partitions, spec), isolation_level=isolation, request_timeout=self._timeout
            )
            return {place.partition: future.result(self._timeout + 1).offset for place, future in requested.items()}

        try:
            return retry_transient(request, self._timeout)
        except ck.KafkaException as error:
            raise self._failure("asking for offsets", error) from error

    def _failure(self, question: str, error: ck.KafkaException) -> BrokerError:
        cause = error.args[0]
        return BrokerError(
            f"{question} failed at Kafka {self._properties['bootstrap.servers']}: {cause.name()}: {cause.str()}"
        )

    def cleanup_policy(self, name: str) -> str | None:
        """Return the topic's ``cleanup.policy``, or None without permission to read it."""
        resource = _resource(_type.TOPIC, name)

        def request() -> str:
            future = self._client.describe_configs([resource], request_timeout=self._timeout)[resource]
            return str(future.result(self._timeout + 1)["cleanup.policy"].value)

        try:
            return retry_transient(request, self._timeout, exists=True)
        except ck.KafkaException as error:
            if error.args[0].code() in _NOT_ALLOWED:
                return None
            raise self._failure(f"reading the settings of topic {name}", error) from error

    def undecided(self, topic: Topic) -> dict[int, Undecided]:
        """Return the records from the last stable offset to the end, by partition."""
        ranges = {p: span for p, span in topic.spans.items() if span.high > span.stable}
        found = {p: self._undecided(topic.name, p, span) for p, span in ranges.items()}
        return {partition: records for partition, records in found.items() if records.records}

    def _undecided(self, name: str, partition: int, span: Span) -> Undecided:
        records = list(
            itertools.islice(self._read(name, partition, span.stable, span.high, "read_uncommitted"), _LISTED + 1)
        )
        count = len(records) if len(records) <= _LISTED else span.high - records[0][0]
        return Undecided(count, records[:_LISTED])

    def committed_from(self, topic: Topic, starts: dict[int, int]) -> dict[int, int]:
        """Return about how many committed records stand at or behind these offsets, by partition, without zeros."""
        behind = {}
        for partition, span in topic.spans.items():
            begin = max(starts.get(partition, 0), span.low)
            if begin < span.stable:
                first = next(self._read(topic.name, partition, begin, span.stable, "read_committed"), None)
                if first is not None:
                    behind[partition] = span.stable - first[0]
        return behind

    def _read(
        self, name: str, partition: int, begin: int, end: int, isolation: str
    ) -> Iterator[tuple[int, bytes | None]]:
        """Yield offset and key of each record in a range, up to its end, which may be a transaction marker."""
        properties = dict(self._properties) | {
            "group.id": f"audit-{uuid.uuid4().hex}",  # required by the client, which commits nothing and joins no group
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
            "log_level": 2,
        }
        consumer = ck.Consumer(properties)
        try:
            wait_for_metadata(consumer, name)
            consumer.assign([ck.TopicPartition(name, partition, begin)])
            yield from self._until(consumer, end)
        finally:
            consumer.close()

    def _until(self, consumer: ck.Consumer, end: int) -> Iterator[tuple[int, bytes | None]]:
        while True:
            # One record per call: a call for several would wait for more when the partition has none.
            message: Any = consumer.poll(self._timeout)
            if message is None:
                raise BrokerError(f"reading stopped before offset {end}: no record arrived for {self._timeout:g} s")
            error = message.error()
            if error is None and message.offset() < end:
                yield message.offset(), message.key()
            elif error is None or error.code() == ck.KafkaError._PARTITION_EOF:  # noqa: SLF001 - public in spite of its name
                return
            elif not error.retriable():
                raise BrokerError(f"reading failed: {error.name()}: {error.str()}")
