"""The two Kafkas on which the contract is tested, a fake one and a real one, behind the same interface."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any, Protocol

import confluent_kafka as ck

from worker.core.model import Headers, Partition, PartitionEnd, Record
from worker.kafka import properties
from worker.kafka.consumer import ConfluentConsumer
from worker.kafka.producer import ConfluentProducer
from worker.testing.broker import FakeBroker
from worker.testing.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tests.contract.recorder import Recorder
    from tests.kafka_broker import Broker
    from worker.kafka.ports import Consumer, KafkaFailure, Position, Producer

WAIT_LIMIT = 30.0  # seconds; only a failing test waits this long
SHORTEST_SESSION = 6.0


class Kafka(Protocol):
    """The calls of a Kafka that a test of the contract needs in addition to the ports."""

    def now(self) -> float: ...
    def topic(self, partitions: int = 1, max_bytes: int | None = None) -> str: ...
    def consumer(self, *, max_poll_interval: float = 300.0) -> Consumer: ...
    def producer(self, *, batch_bytes: int = 1_000_000) -> Producer: ...
    def append(self, topic: str, value: bytes | None, key: bytes | None = None, *, number: int = 0) -> None: ...
    def idle(self, seconds: float) -> None: ...
    def slow_heartbeats(self) -> None: ...
    def close(self) -> None: ...


class FakeKafka:
    """A Kafka in memory, with a simulated clock."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.broker = FakeBroker(self.clock)

    def now(self) -> float:
        return self.clock()

    def topic(self, partitions: int = 1, max_bytes: int | None = None) -> str:
        limits = {} if max_bytes is None else {"max_bytes": max_bytes}
        return self.broker.create(f"topic-{len(self.broker.topics)}", partitions, **limits)

    def consumer(self, *, max_poll_interval: float = 300.0) -> Consumer:
        return self.broker.consumer("group", max_poll_interval=max_poll_interval)

    def producer(self, *, batch_bytes: int = 1_000_000) -> Producer:
        return self.broker.producer()

    def append(self, topic: str, value: bytes | None, key: bytes | None = None, *, number: int = 0) -> None:
        self.broker.append(topic, value, key, number=number)

    def idle(self, seconds: float) -> None:
        self.clock.wait(seconds)

    def slow_heartbeats(self) -> None:
        """Do nothing: the fake has no heartbeats."""

    def close(self) -> None:
        """Do nothing: nothing outlives the test."""


class RealKafka:
    """A real broker, with one of the group protocols. The properties are those of the worker."""

    def __init__(self, broker: Broker, protocol: str) -> None:
        self._broker, self._protocol = broker, protocol
        self._group = f"g-{uuid.uuid4().hex[:12]}"
        self._clients: list[Any] = []
        self._raw = ck.Producer({"bootstrap.servers": broker.bootstrap})

    def now(self) -> float:
        return time.monotonic()

    def topic(self, partitions: int = 1, max_bytes: int | None = None) -> str:
        return self._broker.topic(partitions, {} if max_bytes is None else {"max.message.bytes": str(max_bytes)})

    def link(self, **given: str) -> properties.Link:
        return properties.Link(self._broker.bootstrap, self._group, given, {"consumer": 60.0, "classic": 60.0})

    def consumer(self, *, max_poll_interval: float = 300.0) -> Consumer:
        given = {"max.poll.interval.ms": str(int(max_poll_interval * 1000))}
        if max_poll_interval < SHORTEST_SESSION:
            self._broker.shorten_sessions(self._group)
        if self._protocol == "classic":
            given["session.timeout.ms"] = str(int(min(SHORTEST_SESSION, max_poll_interval) * 1000))
        settings = properties.consumer(self.link(**given), "contract", self._protocol)
        consumer = ConfluentConsumer({self._protocol: settings})
        self._clients.append(consumer)
        return consumer

    def producer(self, *, batch_bytes: int = 1_000_000) -> Producer:
        given = {"batch.size": str(batch_bytes), "topic.metadata.propagation.max.ms": "1000"}
        producer = ConfluentProducer(properties.producer(self.link(**given), "contract"))
        self._clients.append(producer)
        return producer

    def append(self, topic: str, value: bytes | None, key: bytes | None = None, *, number: int = 0) -> None:
        self._raw.produce(topic, value, key, number)
        self._raw.flush(WAIT_LIMIT)

    def idle(self, seconds: float) -> None:
        time.sleep(seconds)

    def slow_heartbeats(self) -> None:
        """Set the longest interval that a broker allows. Members of the classic protocol have their own interval."""
        self._broker.configure(self._group, "consumer.heartbeat.interval.ms", 15_000)

    def close(self) -> None:
        for client in self._clients:
            client.close()


class HasTime(Protocol):
    """A source of the time that passes during a read."""

    def now(self) -> float: ...


class RealTime:
    """The clock of the machine."""

    now = staticmethod(time.monotonic)


class Reader:
    """A reader that polls one or more consumers until a condition holds, and keeps the records."""

    def __init__(self, kafka: HasTime, *consumers: Consumer, timeout: float = 0.05) -> None:
        self.records: list[Record] = []
        self.ends: list[PartitionEnd] = []
        self._now, self._consumers, self._timeout = kafka.now, consumers, timeout

    def until(self, condition: Callable[[], Any], limit: int = 100) -> list[Record]:
        """Poll in turns until the condition holds. Return the new records."""
        end, before = self._now() + WAIT_LIMIT, len(self.records)
        while not condition():
            assert self._now() < end, "it did not come to that in time"
            for consumer in self._consumers:
                self.take(consumer.poll(limit, self._timeout))
        return self.records[before:]

    def take(self, polled: Iterable[Record | PartitionEnd]) -> None:
        """Keep the records and the ends that a poll returned."""
        for one in polled:
            if isinstance(one, PartitionEnd):
                self.ends.append(one)
            else:
                self.records.append(one)

    def read(self, count: int, limit: int = 100) -> list[Record]:
        """Return all records so far, once there are that many."""
        self.until(lambda: len(self.records) >= count, limit)
        return self.records

    def commit(self, consumer: Consumer, listener: Recorder, at: Mapping[Partition, Position]) -> KafkaFailure | None:
        """Commit and poll until the reply is there. Return the failure, if it is one."""
        before = len(listener.answers)
        consumer.commit(at)
        self.until(lambda: len(listener.answers) > before)
        return listener.answers[-1][1]

    def go_on(self, seconds: float) -> list[Record]:
        """Poll for this many seconds. Return the new records."""
        end = self._now() + seconds
        return self.until(lambda: self._now() >= end)


def contents(record: Record) -> tuple[bytes | None, bytes | None, Headers]:
    return record.key, record.value, record.headers


def partitions(topic: str, count: int) -> set[Partition]:
    return {Partition(topic, number) for number in range(count)}
