"""A producer on the fake broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.kafka.ports import Deliveries, KafkaFailure

if TYPE_CHECKING:
    from worker.core.model import Headers
    from worker.testing.storage import Storage


class FakeProducer:
    """See ``worker.kafka.ports.Producer``. Deliveries to one topic are done in the order of ``produce``."""

    def __init__(self, broker: Storage) -> None:
        self.produced: list[tuple[str, object]] = []  # topic and token of everything ever produced
        self.closed = False
        self._broker = broker
        self._outstanding = 0
        self._confirmed: list[object] = []
        self._failed: list[tuple[object, KafkaFailure]] = []

    def produce(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers, token: object) -> None:
        assert not self.closed
        self.produced.append((topic, token))
        found = self._broker.topics.get(topic)
        if found is None:
            self._failed.append((token, KafkaFailure("UNKNOWN_TOPIC_OR_PART", f"no topic {topic}")))
            return
        self._outstanding += 1
        self._broker.request(lambda: self._deliver(topic, key, value, tuple(headers), token), found.delay)

    def _deliver(self, name: str, key: bytes | None, value: bytes | None, headers: Headers, token: object) -> None:
        if self.closed:
            return
        topic = self._broker.topics[name]
        self._outstanding -= 1
        fault = topic.faults.popleft() if topic.faults else None
        if topic.too_large(key, value, headers):
            self._failed.append((token, KafkaFailure("MSG_SIZE_TOO_LARGE", f"more than {topic.max_bytes} bytes")))
            return
        if fault is None or fault.applied:
            topic.append(topic.place(key), key, value, headers, self._broker.clock())
        if fault is None:
            self._confirmed.append(token)
        else:
            self._failed.append((token, fault.failure))

    def deliveries(self, timeout: float) -> Deliveries:
        assert not self.closed
        if timeout > 0:
            self._broker.clock.wait(timeout, until=lambda: not self._outstanding)
        deliveries = Deliveries(self._confirmed, self._failed)
        self._confirmed, self._failed = [], []
        return deliveries

    def close(self) -> None:
        self.closed = True
