"""A new leader of a partition refuses a batch, and accepts the next one, which is already under way.

A real broker accepts it if it has no records of this producer. librdkafka then reports both batches as delivered.
"""

from __future__ import annotations

import ctypes
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck
import pytest

from pipeline.exactly_once.channel import fence
from tests.mock_cluster import BROKER, TOPIC
from worker.kafka import properties
from worker.kafka.client_producer import RequestProducer
from worker.kafka.transaction_properties import transactional

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.mock_cluster import MockCluster
    from worker.core.model import Partition

pytestmark = pytest.mark.timeout(60)

SECONDS = 20.0
ROUND_TRIP_MS = 300
QUIET = {"log_level": 0}
PRODUCE, NOT_LEADER = 0, 6  # of Kafka's protocol


def link(cluster: MockCluster) -> properties.Link:
    return properties.Link(cluster.bootstrap, "group", {"log_level": "0"}, {"consumer": 60.0})


def worker_producer(cluster: MockCluster) -> ck.Producer:
    return ck.Producer(properties.producer(link(cluster), "client"))


def transactional_producer(cluster: MockCluster) -> ck.Producer:
    producer = ck.Producer(transactional(link(cluster), "client", "worker"))
    producer.init_transactions(SECONDS)
    return producer


def tool_producer(cluster: MockCluster) -> ck.Producer:
    return ck.Producer(properties.tool_producer(properties.common(link(cluster), "client"), SECONDS))


def submit_producer(cluster: MockCluster) -> ck.Producer:
    log: Any = SimpleNamespace(name="job", topic=TOPIC)
    return fence({"bootstrap.servers": cluster.bootstrap}, log, 0)


@pytest.mark.parametrize("make", [worker_producer, transactional_producer, tool_producer, submit_producer])
def test_a_refused_batch_is_sent_before_the_next_one(
    cluster: MockCluster, make: Callable[[MockCluster], ck.Producer]
) -> None:
    producer = make(cluster)
    in_transaction = make in (transactional_producer, submit_producer)
    if in_transaction:
        producer.begin_transaction()

    _refuse_the_second(cluster, lambda value: producer.produce(TOPIC, value), lambda: producer.flush(SECONDS))

    if in_transaction:
        producer.commit_transaction(SECONDS)
    assert _log(cluster) == [b"first", b"refused", b"under way"]


def test_the_client_sends_a_refused_batch_before_the_next_one(cluster: MockCluster) -> None:
    producer = RequestProducer({**QUIET, "bootstrap.servers": cluster.bootstrap}, SECONDS)
    offsets: list[int] = []

    def confirmed(_partition: Partition, offset: int, _timestamp: int) -> None:
        offsets.append(offset)

    def send(value: bytes) -> None:
        assert producer.send(TOPIC, None, value, (), confirmed=confirmed, failed=pytest.fail)

    _refuse_the_second(cluster, send, lambda: producer.flush(SECONDS))

    assert _log(cluster) == [b"first", b"refused", b"under way"]
    assert offsets == [0, 1, 2]


def _refuse_the_second(cluster: MockCluster, send: Callable[[bytes], object], flush: Callable[[], object]) -> None:
    """Send three records. The broker refuses the second when the third is on its way."""
    send(b"first")
    flush()
    cluster.set("rd_kafka_mock_broker_set_rtt", BROKER, ROUND_TRIP_MS)
    cluster.set("rd_kafka_mock_push_request_errors", PRODUCE, ctypes.c_size_t(1), NOT_LEADER)
    cluster.set("rd_kafka_mock_start_request_tracking")
    send(b"refused")
    limit = time.monotonic() + SECONDS
    while PRODUCE not in cluster.requests():  # its reply takes a round trip more
        assert time.monotonic() < limit
    send(b"under way")
    flush()


def _log(cluster: MockCluster) -> list[bytes | None]:
    """Return the values in the topic."""
    cluster.set("rd_kafka_mock_broker_set_rtt", BROKER, 0)
    settings = {**QUIET, "bootstrap.servers": cluster.bootstrap, "group.id": "g", "enable.partition.eof": True}
    consumer = ck.Consumer(settings)
    consumer.assign([ck.TopicPartition(TOPIC, 0, 0)])
    values = []
    while (record := consumer.poll(SECONDS)) and not record.error():
        values.append(record.value())
    consumer.close()
    return values
