"""The content of a topic, read with a client outside the pipeline, and records written without the pipeline."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

SECONDS = 60.0


class Found(NamedTuple):
    """A committed record."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes | None]


def committed(bootstrap: str, topic: str) -> list[Found]:
    """Return every committed record up to the current end of the topic, except behind open transactions."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
            "log_level": 2,
        }
    )
    try:
        partitions = consumer.list_topics(topic, SECONDS).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        return _read(consumer, set(partitions))
    finally:
        consumer.close()


def _read(consumer: Consumer, behind: set[int]) -> list[Found]:
    found: list[Found] = []
    end = time.monotonic() + SECONDS
    message: Any
    while behind:
        assert time.monotonic() < end, f"no end of partitions {behind}"
        for message in consumer.consume(1000, 0.2):
            if message.error() is None:
                headers = dict(message.headers() or ())
                found.append(Found(message.partition(), message.offset(), message.key(), message.value(), headers))
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                behind.discard(message.partition())
    return found


def produce(
    bootstrap: str, topic: str, records: Iterable[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]]
) -> None:
    """Append records: key, value, headers."""
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "log_level": 2})
    for key, value, headers in records:
        producer.produce(topic, value, key, headers=[(name, content) for name, content in headers])
    assert producer.flush(SECONDS) == 0


def open_transaction(bootstrap: str, topic: str, identity: str, count: int = 1, partition: int = 0) -> Producer:
    """Return a producer with records of an open transaction in the topic."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": identity, "log_level": 2})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, f"open {number}".encode(), b"open", partition=partition)
    assert producer.flush(SECONDS) == 0
    return producer
