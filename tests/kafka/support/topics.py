"""Access of the tests to topics and groups: sending requests, reading answers and dead letters, checking commits."""

from __future__ import annotations

import contextlib
import functools
import random
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    Producer,
    TopicCollection,
    TopicPartition,
    admin,
)
from confluent_kafka.admin import AdminClient

from chaos.messages import OUTCOMES
from tests.kafka.support.messages import message, request
from worker.kafka.broker_watch import BrokerWatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SECONDS = 30.0
_QUIET = {"log_level": 2}  # the tests that stop a broker report it themselves
_admin: Any = admin  # its types are incomplete


class Submission(NamedTuple):
    """A record for the request topic. ``value`` may be invalid as a ``Request``."""

    value: bytes | None
    key: bytes | None = None
    partition: int = -1  # -1: decided by the key
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Sent(NamedTuple):
    """A submission that the broker has confirmed, and its place."""

    topic: str
    partition: int
    offset: int
    submission: Submission


class Record(NamedTuple):
    """A record as it was read."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def response(self) -> Any:
        """Return its ``Response``."""
        return message("Response").FromString(self.value)

    @property
    def outcome(self) -> str:
        """Return the name of the response's outcome."""
        return OUTCOMES[self.response.outcome]

    @property
    def origin(self) -> tuple[str, int, int]:
        """Return the origin of the answered request: topic, partition, offset."""
        origin = self.response.origin
        return origin.topic, origin.partition, origin.offset


def task(sequence: int, payload: str, key: bytes | None = None, partition: int = -1) -> Submission:
    """Return a well-formed request. The default key is its sequence."""
    return Submission(request(sequence, payload), str(sequence).encode() if key is None else key, partition)


def submit(bootstrap: str, topic: str, submissions: Iterable[Submission]) -> list[Sent]:
    """Send records, partitioned as Java clients do, and wait until every record is confirmed."""
    settings = {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "linger.ms": 5, **_QUIET}
    producer = Producer({**settings, "enable.idempotence": True, "message.max.bytes": 2_000_000})
    sent: list[Sent] = []

    def confirmed(one: Submission, error: Any, record: Any) -> None:
        assert error is None, error
        sent.append(Sent(topic, record.partition(), record.offset(), one))

    for one in submissions:
        report = _Report(confirmed, one)
        producer.produce(topic, one.value, one.key, one.partition, report, headers=list(one.headers))
    assert producer.flush(SECONDS) == 0, "not all requests were confirmed"
    return sent


class _Report:
    def __init__(self, confirmed: Any, one: Submission) -> None:
        self._confirmed, self._one = confirmed, one

    def __call__(self, error: Any, record: Any) -> None:
        self._confirmed(self._one, error, record)


class Reader:
    """A reader of a topic's committed records from its beginning, without a group."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.records: list[Record] = []
        settings = {**_QUIET, "bootstrap.servers": bootstrap, "group.id": f"reader-{random.getrandbits(64):x}"}
        settings |= {"isolation.level": "read_committed", "enable.auto.commit": "false", "fetch.wait.max.ms": "50"}
        # Large answers; what came meanwhile is read in any case.
        self._settings = {**settings, "auto.offset.reset": "earliest", "message.max.bytes": "20000000"}
        # The partitions are not looked up: right after a topic is created, its metadata may still be empty.
        self._partitions = [TopicPartition(topic, number, 0) for number in range(partitions)]
        self._connect()

    def _connect(self) -> None:
        """Begin with a new client, also when an outage has cost the previous one all its brokers (decision 0075)."""
        self._watch = BrokerWatch(logged=False)
        self._consumer = Consumer(self._watch.watched(self._settings))
        self._consumer.assign(self._partitions)
        self.records.clear()

    def read(self) -> list[Record]:
        """Read the available records. Return all records read so far."""
        if self._watch.stranded:
            self._consumer.close()
            self._connect()
        got: Any  # the types allow records without a place
        for got in self._consumer.consume(1000, 0.1):
            if got.error() is None:
                headers = tuple(got.headers() or ())
                self.records.append(Record(got.partition(), got.offset(), got.key(), got.value(), headers))
        return self.records

    def read_all(self) -> list[Record]:
        """Read up to the current end. Return all records read so far."""
        ends = {p.partition: self._consumer.get_watermark_offsets(p, SECONDS)[1] for p in self._partitions}

        def done() -> bool:
            self.read()
            positions = self._consumer.position(self._partitions)
            return all(max(p.offset, 0) >= ends[p.partition] for p in positions)

        while not done():  # limited by the test's time-out: the broker has confirmed these records
            pass
        return self.records

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()


@contextlib.contextmanager
def reading(bootstrap: str, topic: str, partitions: int) -> Iterator[Reader]:
    """Yield a reader, and close it at the end."""
    reader = Reader(bootstrap, topic, partitions)
    try:
        yield reader
    finally:
        reader.close()


@functools.cache
def _client(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, **_QUIET})


def committed(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    """Return the group's committed offset of each partition that has one above 0."""
    client = _client(bootstrap)
    ((_, future),) = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).items()
    found = future.result(SECONDS).topic_partitions
    return {p.partition: p.offset for p in found if p.topic == topic and p.offset > 0}


def ends(bootstrap: str, topic: str) -> dict[int, int]:
    """Return the end of each partition that is not empty."""
    client = _client(bootstrap)
    described = client.describe_topics(TopicCollection([topic]))[topic].result(SECONDS)
    partitions = [TopicPartition(topic, partition.id) for partition in described.partitions]
    pending = client.list_offsets(dict.fromkeys(partitions, _admin.OffsetSpec.latest()))
    found = {place.partition: future.result(SECONDS).offset for place, future in pending.items()}
    return {number: offset for number, offset in found.items() if offset}


def members(bootstrap: str, group: str) -> dict[str, set[int]]:
    """Return the members of a group by id, with their partitions."""
    client = _client(bootstrap)
    ((_, future),) = client.describe_consumer_groups([group]).items()
    return {m.member_id: {p.partition for p in m.assignment.topic_partitions} for m in future.result(SECONDS).members}


def topic_names(bootstrap: str) -> set[str]:
    """Return the names of all topics."""
    return set(_client(bootstrap).list_topics(timeout=SECONDS).topics)
