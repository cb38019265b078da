"""librdkafka's mock cluster, for tests without Kafka."""

from __future__ import annotations

import ctypes
from typing import Any

import confluent_kafka.cimpl

PRODUCER = 0  # RD_KAFKA_PRODUCER
TOPIC = "requests"  # of one partition
BROKER = 1  # its number


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
        self.set("rd_kafka_mock_topic_create", TOPIC.encode(), 1, 1)
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
