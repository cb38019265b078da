"""The lines that the pinned version of librdkafka logs when its coordinator does not answer.

The membership check has no other evidence. librdkafka's own mock cluster is the coordinator.
"""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck
import pytest

from tests.mock_cluster import BROKER, TOPIC, MockCluster
from worker.kafka import properties
from worker.kafka.membership_check import LogWatcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.timeout(120)

LIMIT = 30.0  # seconds; a passing test needs less than one


@contextlib.contextmanager
def member(cluster: MockCluster, reported: Callable[[], None]) -> Iterator[ck.Consumer]:
    """Yield a member that has its partition, and whose log is watched."""
    link = properties.Link(cluster.bootstrap, "group", {}, {"consumer": 60.0})
    watcher: Any = LogWatcher(logging.getLogger("librdkafka"), reported)
    client = ck.Consumer(properties.consumer(link, "member", "consumer") | {"logger": watcher})
    client.subscribe([TOPIC])
    until(client, client.assignment)
    try:
        yield client
    finally:
        client.close()


def until(client: ck.Consumer, holds: Callable[[], object]) -> None:
    limit = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < limit
        client.poll(0.02)


def test_a_heartbeat_without_a_reply_is_reported(cluster: MockCluster) -> None:
    reports: list[float] = []
    with member(cluster, lambda: reports.append(time.monotonic())) as client:
        assert reports == []
        cluster.set("rd_kafka_mock_broker_set_rtt", BROKER, 5_000)  # the client looks for late replies once a second
        until(client, lambda: reports)
        cluster.set("rd_kafka_mock_broker_set_rtt", BROKER, 0)


def test_a_failed_connection_to_the_coordinator_is_reported(cluster: MockCluster) -> None:
    reports: list[float] = []
    with member(cluster, lambda: reports.append(time.monotonic())) as client:
        assert reports == []
        begin = time.monotonic()
        while not reports:  # another connection may fail first, and then the client logs nothing for a while
            assert time.monotonic() - begin < LIMIT
            cluster.set("rd_kafka_mock_broker_set_down", BROKER)
            client.poll(0.5)
            cluster.set("rd_kafka_mock_broker_set_up", BROKER)
            client.poll(0.5)


def test_the_worker_sets_the_level_of_the_clients_log() -> None:
    """Below level 5 (notice) the client would not log these lines."""
    assert "WORKER_LOG_LEVEL" in properties.refusals({"log_level": "4"})["log_level"]
    link = properties.Link("kafka:9092", "group", {}, {"consumer": 60.0})
    assert properties.consumer(link, "member", "consumer")["log_level"] >= 5
