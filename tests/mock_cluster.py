"""librdkafka's mock cluster, for tests without Kafka."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import confluent_kafka.cimpl

if TYPE_CHECKING:
    from collections.abc import Iterable

PRODUCER = 0  # RD_KAFKA_PRODUCER
TOPIC = "requests"  # of one partition
BROKER = 1  # its number
_END, _TOPIC, _HEADER = 0, 1, 9  # RD_KAFKA_VTYPE_…


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

    def requests(self) -> list[int]:
        """Return the API keys of the requests it has received since ``rd_kafka_mock_start_request_tracking``."""
        count = ctypes.c_size_t()
        found = self._call("rd_kafka_mock_get_requests", ctypes.c_void_p, self._cluster, ctypes.byref(count))
        each = ctypes.cast(found, ctypes.POINTER(ctypes.c_void_p))[: count.value]
        keys = [self._call("rd_kafka_mock_request_api_key", ctypes.c_int16, ctypes.c_void_p(one)).value for one in each]
        self._call("rd_kafka_mock_request_destroy_array", ctypes.c_int, found, count)
        return keys

    def append(self, headers: Iterable[bytes]) -> None:
        """Write a record for each of these names of a header. The Python client writes only names in UTF-8."""
        configuration = self._call("rd_kafka_conf_new", ctypes.c_void_p)
        error = ctypes.create_string_buffer(512)
        for setting in ((b"bootstrap.servers", self.bootstrap.encode()), (b"log_level", b"0")):
            assert self._call("rd_kafka_conf_set", ctypes.c_int, configuration, *setting, error, 512).value == 0
        producer = self._call("rd_kafka_new", ctypes.c_void_p, PRODUCER, configuration, error, 512)
        for name in headers:
            header = _HEADER, name, b"", ctypes.c_ssize_t(0)
            assert (
                self._call("rd_kafka_producev", ctypes.c_int, producer, _TOPIC, TOPIC.encode(), *header, _END).value
                == 0
            )
        assert self._call("rd_kafka_flush", ctypes.c_int, producer, 10_000).value == 0
        self._call("rd_kafka_destroy", ctypes.c_int, producer)

    def close(self) -> None:
        self._call("rd_kafka_mock_cluster_destroy", ctypes.c_int, self._cluster)
        self._call("rd_kafka_destroy", ctypes.c_int, self._client)
