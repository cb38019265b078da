"""The lines that librdkafka logs when its coordinator does not answer, as the pinned version words them.

The membership check has no other sign to go by. librdkafka's own mock cluster plays the coordinator.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import time
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck
import confluent_kafka.cimpl
import pytest

from worker.kafka import properties
from worker.kafka.membership_check import LogWatcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.timeout(120)

PRODUCER = 0  # RD_KAFKA_PRODUCER
LIMIT = 30.0  # seconds; a passing test needs less than one
BROKER = 1  # its number in the mock cluster


class MockCluster:
    """One broker of librdkafka's mock cluster, which has groups of the consumer protocol."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(confluent_kafka.cimpl.__file__)
        self._client = self._call(
            "rd_kafka_new", ctypes.c_void_p, PRODUCER, None, ctypes.create_string_buffer(512), 512
        )
        self._cluster = self._call("rd_kafka_mock_cluster_new", ctypes.c_void_p, self._client, 1)
        found = self._call("rd_kafka_mock_cluster_bootstraps", ctypes.c_char_p, self._cluster)
        self.bootstrap: str = found.value.decode()
        self.set("rd_kafka_mock_topic_create", b"requests", 1, 1)
        self.set("rd_kafka_mock_set_group_consumer_heartbeat_interval_ms", 200)

    def _call(self, name: str, result: Any, *arguments: Any) -> Any:
        function = getattr(self._library, name)
        function.restype = result
        returned = function(*arguments)
        return result(returned)

    def set(self, name: str, *arguments: Any) -> None:
        """Call one of librdkafka's ``rd_kafka_mock_*`` functions on this cluster."""
        self._call(name, ctypes.c_int, self._cluster, *arguments)

    def close(self) -> None:
        self._call("rd_kafka_mock_cluster_destroy", ctypes.c_int, self._cluster)
        self._call("rd_kafka_destroy", ctypes.c_int, self._client)


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with contextlib.closing(MockCluster()) as one:
        yield one


@contextlib.contextmanager
def member(cluster: MockCluster, reported: Callable[[], None]) -> Iterator[ck.Consumer]:
    """A member that has its partition, and whose log is watched."""
    link = properties.Link(cluster.bootstrap, "group", {}, {"consumer": 60.0})
    watcher: Any = LogWatcher(logging.getLogger("librdkafka"), reported)
    client = ck.Consumer(properties.consumer(link, "member", "consumer") | {"logger": watcher})
    client.subscribe(["requests"])
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


def test_a_heartbeat_without_an_answer_is_reported(cluster: MockCluster) -> None:
    reports: list[float] = []
    with member(cluster, lambda: reports.append(time.monotonic())) as client:
        assert reports == []
        cluster.set("rd_kafka_mock_broker_set_rtt", BROKER, 1_000)
        until(client, lambda: reports)
        cluster.set("rd_kafka_mock_broker_set_rtt", BROKER, 0)


def test_a_failed_connection_to_the_coordinator_is_reported(cluster: MockCluster) -> None:
    reports: list[float] = []
    with member(cluster, lambda: reports.append(time.monotonic())) as client:
        assert reports == []
        begin = time.monotonic()
        while not reports:  # once in a while another connection fails first, and the client says no more for a while
            assert time.monotonic() - begin < LIMIT
            cluster.set("rd_kafka_mock_broker_set_down", BROKER)
            client.poll(0.5)
            cluster.set("rd_kafka_mock_broker_set_up", BROKER)
            client.poll(0.5)


def test_the_level_of_the_clients_log_is_the_workers() -> None:
    """Below level 5 (notice) the client would not log these lines."""
    assert "WORKER_LOG_LEVEL" in properties.refusals({"log_level": "4"})["log_level"]
    link = properties.Link("kafka:9092", "group", {}, {"consumer": 60.0})
    assert properties.consumer(link, "member", "consumer")["log_level"] >= 5
