"""The behaviour of the producer that the worker relies on when it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.kafkas import WAIT_LIMIT, Kafka, Reader, contents
from tests.contract.recorder import Recorder
from worker.process.dead_letters import size_of
from worker.testing.murmur2 import partition_of

if TYPE_CHECKING:
    from worker.core.model import Headers, Record
    from worker.kafka.ports import KafkaFailure, Producer


class Post:
    """A producer and its reported deliveries."""

    def __init__(self, kafka: Kafka, **options: int) -> None:
        self.producer: Producer = kafka.producer(**options)
        self.confirmed: list[object] = []
        self.failed: list[tuple[object, KafkaFailure]] = []
        self._kafka = kafka

    def serve(self, count: int, timeout: float = 0.05) -> None:
        """Wait until that many deliveries were reported."""
        end = self._kafka.now() + WAIT_LIMIT
        while len(self.confirmed) + len(self.failed) < count:
            assert self._kafka.now() < end, "not heard of in time"
            confirmed, failed = self.producer.deliveries(timeout)
            self.confirmed += confirmed
            self.failed += failed


def everything(kafka: Kafka, topic: str, count: int) -> list[Record]:
    consumer = kafka.consumer()
    Recorder().listen(consumer, topic)
    return Reader(kafka, consumer).read(count)


def test_each_delivery_is_reported_once_by_its_token(kafka: Kafka) -> None:
    """The reports follow the order in the partition. Any object can be a token, and two tokens can be equal."""
    topic, post = kafka.topic(), Post(kafka)
    tokens: list[object] = [object(), "a", "a", None, *range(50)]
    for token in tokens:
        post.producer.produce(topic, b"k", b"v", (), token)
    post.serve(len(tokens))
    assert post.confirmed == tokens
    assert post.failed == []
    assert post.producer.deliveries(0.1) == ([], [])
    assert len(everything(kafka, topic, len(tokens))) == len(tokens)


def test_deliveries_are_reported_with_a_timeout_of_zero(kafka: Kafka) -> None:
    """A busy process never waits for deliveries."""
    topic, post = kafka.topic(), Post(kafka)
    post.producer.produce(topic, None, b"v", (), 1)
    end = kafka.now() + WAIT_LIMIT
    while not post.confirmed:
        assert kafka.now() < end
        kafka.idle(0.01)
        post.confirmed += post.producer.deliveries(0.0).confirmed
    assert post.confirmed == [1]


def test_a_wait_for_deliveries_does_not_delay_a_single_record(kafka: Kafka) -> None:
    """Without undelivered records the call returns immediately. A single record is sent immediately."""
    topic, post = kafka.topic(), Post(kafka)
    post.producer.produce(topic, None, b"warm", (), 0)
    post.serve(1, timeout=5.0)
    started = kafka.now()
    assert post.producer.deliveries(5.0) == ([], [])
    post.producer.produce(topic, None, b"v", (), 1)
    post.serve(2, timeout=5.0)
    assert kafka.now() - started < 2


@pytest.mark.parametrize("key", [b"", b"k", b"order-17", "ключ".encode(), b"\x00\xff\x80", b"abcdefgh" * 9])
def test_a_key_selects_the_same_partition_as_in_java_clients(kafka: Kafka, key: bytes) -> None:
    topic, post = kafka.topic(7), Post(kafka)
    for number in range(3):
        post.producer.produce(topic, key, b"v", (), number)
    post.serve(3)
    assert {record.partition.number for record in everything(kafka, topic, 3)} == {partition_of(key, 7)}


def test_records_without_a_key_are_delivered_to_any_partition(kafka: Kafka) -> None:
    topic, post = kafka.topic(2), Post(kafka)
    for number in range(5):
        post.producer.produce(topic, None, b"v", (), number)
    post.serve(5)
    assert len(everything(kafka, topic, 5)) == 5


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (None, None, ()),
        (b"", b"", (("empty", b""), ("none", None))),
        (b"\xff\x00", b"\x00", (("twice", b"1"), ("twice", b"\xff\xfe"), ("ключ", b"x"))),
    ],
)
def test_a_record_arrives_byte_for_byte(kafka: Kafka, key: bytes | None, value: bytes | None, headers: Headers) -> None:
    """A dead letter requires this. Null, empty and absent are different, and headers keep their order."""
    topic, post = kafka.topic(), Post(kafka)
    post.producer.produce(topic, key, value, headers, "token")
    post.serve(1)
    assert [contents(record) for record in everything(kafka, topic, 1)] == [(key, value, headers)]


@pytest.mark.parametrize("size", [3_000, 3_000_000])
def test_a_record_above_the_limit_of_its_topic_fails_with_the_code_for_its_size(kafka: Kafka, size: int) -> None:
    """The code is the same whether the client or the broker finds out. Later records arrive."""
    topic, post = kafka.topic(max_bytes=2_000), Post(kafka)
    post.producer.produce(topic, None, b"x" * size, (), "large")
    post.serve(1)
    post.producer.produce(topic, None, b"x", (), "small")
    post.serve(2)
    ((token, failure),) = post.failed
    assert (token, failure.code) == ("large", "MSG_SIZE_TOO_LARGE")
    assert post.confirmed == ["small"]


def test_a_record_that_the_worker_estimates_to_fit_does_fit(kafka: Kafka) -> None:
    """The estimate of a record's size is never below the size that the broker compares with its limit.

    Records that fit one by one do not fail together: the limit holds for a batch, so batches are kept within it.
    """
    limit = 2_000
    topic, post = kafka.topic(max_bytes=limit), Post(kafka, batch_bytes=limit)
    headers: Headers = (("n" * 30, b"c" * 100), ("ü" * 10, None), ("", b""))
    records = [(b"k" * 17, ()), (None, headers), (b"k" * 600, headers), (None, tuple(("", None) for _ in range(60)))]
    for key, given in records:
        value = b"x" * (limit - size_of(key, b"", given))
        assert size_of(key, value, given) == limit
        post.producer.produce(topic, key, value, given, "fits")
    post.serve(len(records))
    assert post.confirmed == ["fits"] * len(records)


def test_a_record_for_an_unknown_topic_fails_alone(kafka: Kafka) -> None:
    """Other records are delivered. The failure is reported, not raised."""
    topic, post = kafka.topic(), Post(kafka)
    post.producer.produce("there-is-no-such-topic", None, b"x", (), "lost")
    post.producer.produce(topic, None, b"x", (), "found")
    post.serve(2)
    assert post.confirmed == ["found"]
    assert [(token, failure.code.lstrip("_")) for token, failure in post.failed] in (
        [("lost", "UNKNOWN_TOPIC_OR_PART")],
        [("lost", "UNKNOWN_TOPIC")],
    )


def test_a_close_gives_up_undelivered_records(kafka: Kafka) -> None:
    """It does not wait, because a process that closes its producer has decided to wait no longer."""
    topic, post = kafka.topic(), Post(kafka)
    for number in range(10):
        post.producer.produce(topic, None, b"v", (), number)
    started = kafka.now()
    post.producer.close()
    assert kafka.now() - started < 2
