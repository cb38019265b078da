"""What the brokers say of topics: which they are, what each partition holds, and how much of it is decided."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

import confluent_kafka as ck
from confluent_kafka import admin

from pipeline.contact import UNKNOWN, meet, patiently
from pipeline.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.settings import KafkaSettings

_spec: Any = getattr(admin, "OffsetSpec")  # noqa: B009 - it is not in the client's types, as below
_COMMITTED, _ALL = ck.IsolationLevel.READ_COMMITTED, ck.IsolationLevel.READ_UNCOMMITTED


class Span(NamedTuple):
    """The offsets of a partition. From ``stable`` on stand records of undecided transactions, and what came after."""

    low: int
    stable: int
    high: int


class Topic(NamedTuple):
    """A topic as it is now. A topic that was deleted and made anew has another ``id``."""

    name: str
    id: str
    spans: dict[int, Span]


class Topics:
    """Asks the brokers; each question ends in an answer or a BrokerError within ``timeout`` seconds or so."""

    def __init__(self, kafka: KafkaSettings, timeout: float = 15.0) -> None:
        self._properties = kafka.client_properties()
        self._timeout = timeout
        self._client = admin.AdminClient(dict(self._properties) | {"log_level": 2})

    def find(self, name: str) -> Topic | None:
        """The topic, or None if there is none of this name."""
        described = self._describe(name)
        if described is None:
            return None
        partitions = [ck.TopicPartition(name, partition.id) for partition in described.partitions]
        low = self._offsets(partitions, _spec.earliest(), _ALL)
        # In this order: what comes in between would else look like a record behind an open transaction.
        high = self._offsets(partitions, _spec.latest(), _ALL)
        stable = self._offsets(partitions, _spec.latest(), _COMMITTED)
        spans = {p: Span(low[p], stable[p], max(high[p], stable[p])) for p in sorted(high)}
        return Topic(name, str(described.topic_id), spans)

    def get(self, name: str) -> Topic:
        """The topic. BrokerError if there is none of this name."""
        found = self.find(name)
        if found is None:
            raise BrokerError(f"there is no topic {name!r} at Kafka {self._properties['bootstrap.servers']}")
        return found

    def identity(self, name: str) -> str | None:
        """The topic's id, or None if there is none of this name."""
        described = self._describe(name)
        return None if described is None else str(described.topic_id)

    def _describe(self, name: str) -> Any | None:
        def ask() -> Any:
            asked = self._client.describe_topics(ck.TopicCollection([name]), request_timeout=self._timeout)
            return asked[name].result(self._timeout + 1)

        try:
            return patiently(ask, self._timeout)
        except ck.KafkaException as error:
            if error.args[0].code() in UNKNOWN:
                return None
            raise self._failure(f"looking up topic {name}", error) from error

    def _offsets(self, partitions: list[Any], spec: Any, isolation: Any) -> dict[int, int]:
        def ask() -> dict[int, int]:
            asked = self._client.list_offsets(
                dict.fromkeys(partitions, spec), isolation_level=isolation, request_timeout=self._timeout
            )
            return {place.partition: future.result(self._timeout + 1).offset for place, future in asked.items()}

        try:
            return patiently(ask, self._timeout)
        except ck.KafkaException as error:
            raise self._failure("asking for offsets", error) from error

    def _failure(self, question: str, error: ck.KafkaException) -> BrokerError:
        cause = error.args[0]
        return BrokerError(
            f"{question} failed at Kafka {self._properties['bootstrap.servers']}: {cause.name()}: {cause.str()}"
        )

    def undecided(self, topic: Topic) -> dict[int, list[tuple[int, bytes | None]]]:
        """By partition, the records from the last stable offset to the end: offset and key of each."""
        ranges = {p: (span.stable, span.high) for p, span in topic.spans.items() if span.high > span.stable}
        found = {
            p: list(self._read(topic.name, p, begin, end, "read_uncommitted")) for p, (begin, end) in ranges.items()
        }
        return {partition: records for partition, records in found.items() if records}

    def committed_from(self, topic: Topic, starts: dict[int, int]) -> dict[int, int]:
        """By partition, about how many committed records stand at or behind these offsets; only where there is one."""
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
        """Offset and key of each record in a range. Ends at its end, which may be the marker of a transaction."""
        properties = dict(self._properties) | {
            "group.id": f"audit-{uuid.uuid4().hex}",  # asked for by the client; nothing is committed, nobody joins
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
            "log_level": 2,
        }
        consumer = ck.Consumer(properties)
        try:
            meet(consumer, name)
            consumer.assign([ck.TopicPartition(name, partition, begin)])
            yield from self._until(consumer, end)
        finally:
            consumer.close()

    def _until(self, consumer: ck.Consumer, end: int) -> Iterator[tuple[int, bytes | None]]:
        while True:
            # One by one: a call for many would wait for more of them where there are none.
            message: Any = consumer.poll(self._timeout)
            if message is None:
                raise BrokerError(f"reading stopped before offset {end}: nothing came for {self._timeout:g} s")
            error = message.error()
            if error is None and message.offset() < end:
                yield message.offset(), message.key()
            elif error is None or error.code() == ck.KafkaError._PARTITION_EOF:  # noqa: SLF001 - public in spite of its name
                return
            elif not error.retriable():
                raise BrokerError(f"reading failed: {error.name()}: {error.str()}")
