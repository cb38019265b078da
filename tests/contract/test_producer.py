"""What the worker relies on when it answers."""

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
    """Produces, and collects what is told of it."""

    def __init__(self, kafka: Kafka, **options: int) -> None:
        self.producer: Producer = kafka.producer(**options)
        self.confirmed: list[object] = []
        self.failed: list[tuple[object, KafkaFailure]] = []
        self._kafka = kafka

    def serve(self, count: int, timeout: float = 0.05) -> None:
        """Until that many have been heard of."""
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


def test_each_delivery_is_told_once_by_its_token(kafka: Kafka) -> None:
    """In the order of a partition; a token may be anything, and two may be equal."""
    topic, post = kafka.topic(), Post(kafka)
    tokens: list[object] = [object(), "a", "a", None, *range(50)]
    for token in tokens:
        post.producer.produce(topic, b"k", b"v", (), token)
    post.serve(len(tokens))
    assert post.confirmed == tokens
    assert post.failed == []
    assert post.producer.deliveries(0.1) == ([], [])
    assert len(everything(kafka, topic, len(tokens))) == len(tokens)


def test_deliveries_are_heard_of_without_waiting(kafka: Kafka) -> None:
    """A busy process only looks now and then."""
    topic, post = kafka.topic(), Post(kafka)
    post.producer.produce(topic, None, b"v", (), 1)
    end = kafka.now() + WAIT_LIMIT
    while not post.confirmed:
        assert kafka.now() < end
        kafka.idle(0.01)
        post.confirmed += post.producer.deliveries(0.0).confirmed
    assert post.confirmed == [1]


def test_who_waits_for_deliveries_does_not_wait_for_company(kafka: Kafka) -> None:
    """With nothing under way there is nothing to wait for, and one alone is sent at once."""
    topic, post = kafka.topic(), Post(kafka)
    post.producer.produce(topic, None, b"warm", (), 0)
    post.serve(1, timeout=5.0)
    started = kafka.now()
    assert post.producer.deliveries(5.0) == ([], [])
    post.producer.produce(topic, None, b"v", (), 1)
    post.serve(2, timeout=5.0)
    assert kafka.now() - started < 2


@pytest.mark.parametrize("key", [b"", b"k", b"order-17", "ключ".encode(), b"\x00\xff\x80", b"abcdefgh" * 9])
def test_a_key_leads_where_java_clients_look_for_it(kafka: Kafka, key: bytes) -> None:
    topic, post = kafka.topic(7), Post(kafka)
    for number in range(3):
        post.producer.produce(topic, key, b"v", (), number)
    post.serve(3)
    assert {record.partition.number for record in everything(kafka, topic, 3)} == {partition_of(key, 7)}


def test_records_without_a_key_go_anywhere(kafka: Kafka) -> None:
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
    """As a dead letter must; nothing, empty and absent are told apart, and headers keep their order."""
    topic, post = kafka.topic(), Post(kafka)
    post.producer.produce(topic, key, value, headers, "token")
    post.serve(1)
    assert [contents(record) for record in everything(kafka, topic, 1)] == [(key, value, headers)]


@pytest.mark.parametrize("size", [3_000, 3_000_000])
def test_a_record_that_the_topic_does_not_take_fails_by_its_size(kafka: Kafka, size: int) -> None:
    """By this code, whoever finds out; and those after it arrive."""
    topic, post = kafka.topic(max_bytes=2_000), Post(kafka)
    post.producer.produce(topic, None, b"x" * size, (), "large")
    post.serve(1)
    post.producer.produce(topic, None, b"x", (), "small")
    post.serve(2)
    ((token, failure),) = post.failed
    assert (token, failure.code) == ("large", "MSG_SIZE_TOO_LARGE")
    assert post.confirmed == ["small"]


def test_what_we_think_to_fit_does_fit(kafka: Kafka) -> None:
    """Our estimate of a record's size is never below what the broker compares with its limit.

    Nor do records that fit one by one fail together: the limit holds for a batch, so batches are kept within it.
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


def test_an_unknown_topic_fails_by_itself(kafka: Kafka) -> None:
    """It does not take others with it, and it is told, not raised."""
    topic, post = kafka.topic(), Post(kafka)
    post.producer.produce("there-is-no-such-topic", None, b"x", (), "lost")
    post.producer.produce(topic, None, b"x", (), "found")
    post.serve(2)
    assert post.confirmed == ["found"]
    assert [(token, failure.code.lstrip("_")) for token, failure in post.failed] in (
        [("lost", "UNKNOWN_TOPIC_OR_PART")],
        [("lost", "UNKNOWN_TOPIC")],
    )


def test_closing_gives_up_what_is_under_way(kafka: Kafka) -> None:
    """In no time; the process that does so has decided that it can wait no longer."""
    topic, post = kafka.topic(), Post(kafka)
    for number in range(10):
        post.producer.produce(topic, None, b"v", (), number)
    started = kafka.now()
    post.producer.close()
    assert kafka.now() - started < 2
