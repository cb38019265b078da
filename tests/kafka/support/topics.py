"""What the tests do with topics and groups: send requests, read answers and dead letters, look at commits."""

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

from tests.kafka.support.messages import OUTCOMES, message, request

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SECONDS = 30.0
_QUIET = {"log_level": 2}  # that a broker went away is said by the tests that stop it
_admin: Any = admin  # not all it has is in the types


class Submission(NamedTuple):
    """A record for the request topic. ``value`` may be no ``Request`` at all."""

    value: bytes | None
    key: bytes | None = None
    partition: int = -1  # -1: the key's
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Sent(NamedTuple):
    """A submission the broker has confirmed, and where it stands."""

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
        """The ``Response`` in it."""
        return message("Response").FromString(self.value)

    @property
    def outcome(self) -> str:
        """The response's outcome by name."""
        return OUTCOMES[self.response.outcome]

    @property
    def origin(self) -> tuple[str, int, int]:
        """Which request the response answers: topic, partition, offset."""
        origin = self.response.origin
        return origin.topic, origin.partition, origin.offset


def task(sequence: int, payload: str, key: bytes | None = None, partition: int = -1) -> Submission:
    """A well-formed request. Without a key it has its sequence for one."""
    return Submission(request(sequence, payload), str(sequence).encode() if key is None else key, partition)


def submit(bootstrap: str, topic: str, submissions: Iterable[Submission]) -> list[Sent]:
    """Send, partitioned as Java clients do, and wait until every record is confirmed."""
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
    """Reads a topic from its beginning, committed records only, in no group."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.records: list[Record] = []
        settings = {**_QUIET, "bootstrap.servers": bootstrap, "group.id": f"reader-{random.getrandbits(64):x}"}
        settings |= {"isolation.level": "read_committed", "enable.auto.commit": "false", "fetch.wait.max.ms": "50"}
        # Large answers; what came meanwhile is read in any case.
        self._consumer = Consumer({**settings, "auto.offset.reset": "earliest", "message.max.bytes": "20000000"})
        # Not asked for: right after a topic was made, its metadata may still be empty.
        self._partitions = [TopicPartition(topic, number, 0) for number in range(partitions)]
        self._consumer.assign(self._partitions)

    def read(self) -> list[Record]:
        """Take what has come; returns everything read so far."""
        got: Any  # the types allow for records without a place
        for got in self._consumer.consume(1000, 0.1):
            if got.error() is None:
                headers = tuple(got.headers() or ())
                self.records.append(Record(got.partition(), got.offset(), got.key(), got.value(), headers))
        return self.records

    def read_all(self) -> list[Record]:
        """Read up to what is the end now; returns everything."""
        ends = {p.partition: self._consumer.get_watermark_offsets(p, SECONDS)[1] for p in self._partitions}

        def done() -> bool:
            self.read()
            positions = self._consumer.position(self._partitions)
            return all(max(p.offset, 0) >= ends[p.partition] for p in positions)

        while not done():  # bounded by the test's own time-out: the broker said these records are there
            pass
        return self.records

    def close(self) -> None:
        """Free the client."""
        self._consumer.close()


@contextlib.contextmanager
def reading(bootstrap: str, topic: str, partitions: int) -> Iterator[Reader]:
    """A reader that is closed at the end."""
    reader = Reader(bootstrap, topic, partitions)
    try:
        yield reader
    finally:
        reader.close()


@functools.cache
def _client(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, **_QUIET})


def committed(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    """The group's committed offset of each partition, where it has come past the beginning."""
    client = _client(bootstrap)
    ((_, future),) = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).items()
    found = future.result(SECONDS).topic_partitions
    return {p.partition: p.offset for p in found if p.topic == topic and p.offset > 0}


def ends(bootstrap: str, topic: str) -> dict[int, int]:
    """Where each partition that holds anything ends."""
    client = _client(bootstrap)
    described = client.describe_topics(TopicCollection([topic]))[topic].result(SECONDS)
    partitions = [TopicPartition(topic, partition.id) for partition in described.partitions]
    asked = client.list_offsets(dict.fromkeys(partitions, _admin.OffsetSpec.latest()))
    found = {place.partition: future.result(SECONDS).offset for place, future in asked.items()}
    return {number: offset for number, offset in found.items() if offset}


def members(bootstrap: str, group: str) -> dict[str, set[int]]:
    """The members of a group by id, with the partitions that each has."""
    client = _client(bootstrap)
    ((_, future),) = client.describe_consumer_groups([group]).items()
    return {m.member_id: {p.partition for p in m.assignment.topic_partitions} for m in future.result(SECONDS).members}


def topic_names(bootstrap: str) -> set[str]:
    """Which topics there are."""
    return set(_client(bootstrap).list_topics(timeout=SECONDS).topics)


def configure_group(bootstrap: str, group: str, settings: dict[str, str]) -> None:
    """Set the broker's configuration of one group."""
    put = _admin.AlterConfigOpType.SET
    entries = [_admin.ConfigEntry(name, value, incremental_operation=put) for name, value in settings.items()]
    resource = _admin.ConfigResource(_admin.ResourceType.GROUP, group, incremental_configs=entries)
    client = _client(bootstrap)
    for future in client.incremental_alter_configs([resource]).values():
        future.result(SECONDS)
