"""The suite's reader of answers, on a real broker. It misses no answer behind an open transaction."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from chaos import traffic
from chaos.cluster import ANSWER_PARTITIONS
from chaos.messages import message
from chaos.topics import Topics
from tests.kafka_broker import running_broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka_broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(120)]

QUICK_ABORTS = "transaction.abort.timed.out.transaction.cleanup.interval.ms=500"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with running_broker(QUICK_ABORTS) as running:
        yield running


def answer(offset: int) -> bytes:
    response = message("Response")(sequence=offset, isprocessed=True, outcome=1)
    response.origin.topic, response.origin.partition, response.origin.offset = "requests", 0, offset
    encoded: bytes = response.SerializeToString()
    return encoded


def left_open(broker: Broker, topic: str, timeout_ms: int) -> Producer:
    """Leave a transaction with one answer open, and write a plain answer behind it. Return its producer."""
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": f"of-{topic}"}
    producer = Producer({**settings, "transaction.timeout.ms": timeout_ms})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, answer(0), b"k", 0)
    producer.flush(20)
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    plain.produce(topic, answer(1), b"k", 0)
    plain.flush(20)
    return producer


def topics_of(broker: Broker) -> Topics:
    requests, answers, dead_letters = broker.topics(3, ANSWER_PARTITIONS)
    return Topics(requests, answers, dead_letters, states="")


def test_the_reader_waits_for_the_end_of_an_open_transaction(broker: Broker) -> None:
    """A read_committed client takes the last stable offset for the end and would miss the second answer."""
    topics = topics_of(broker)
    producer = left_open(broker, topics.answers, 4_000)
    with traffic.Reader(broker.bootstrap, topics) as reader:
        assert asyncio.run(reader.read_all()) == ""
        assert [one.record for one in reader.answers] == [(0, 1)]
    del producer  # alive until here, or its client would abort the transaction


def test_a_transaction_that_stays_open_is_reported(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "READ_SECONDS", 4.0)
    topics = topics_of(broker)
    producer = left_open(broker, topics.answers, 60_000)
    with traffic.Reader(broker.bootstrap, topics) as reader:
        obstacle = asyncio.run(reader.read_all())
        assert (
            obstacle
            == f"answers that cannot be read, in a transaction that is still open: {topics.answers}[0] from 0 on"
        )
        assert reader.answers == []
    producer.abort_transaction(20)
