"""The cluster for the tools: like ``Admin``, but every failure is a ``BrokerError`` of one line.

It also has the trial of the consumer protocol for ``worker doctor``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

import confluent_kafka as ck

from worker.core.deadline import Deadline
from worker.core.model import Partition
from worker.errors import BrokerError
from worker.kafka.admin import NO_ANSWER, Admin
from worker.kafka.clients import quiet
from worker.kafka.diagnosis import Topic, missing
from worker.kafka.ports import KafkaFailure

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from worker.kafka.descriptions import Member, Span
    from worker.kafka.ports import Position

V = TypeVar("V")


class Cluster:
    """One cluster. ``timeout`` is in seconds and applies to each request."""

    def __init__(self, properties: Mapping[str, Any], timeout: float = 10.0) -> None:
        self._timeout = timeout
        self._address = properties.get("bootstrap.servers", "")
        self._admin = Admin(properties)

    def find(self, topic: str) -> list[Partition] | None:
        """Return the partitions of a topic, or None if there is no such topic."""
        answer = self._admin.topics([topic], self._timeout)[topic]
        if missing(answer):
            return None
        found = self._checked(f"looking up topic {topic}", answer)
        return [Partition(topic, number) for number in range(found.partitions)]

    def partitions(self, topic: str) -> list[Partition]:
        """Return the partitions of a topic. Raise BrokerError if there is no such topic."""
        found = self.find(topic)
        if found is None:
            raise BrokerError(f"there is no topic {topic!r} at Kafka {self._address}: create it, or correct its name")
        return found

    def create(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Create a topic if it does not exist, and wait until it is visible."""
        wanted = Topic(topic, partitions, replicas=-1, operations=None)
        failure = self._admin.create(wanted, config or {}, self._timeout)
        if failure is not None:
            self._checked(f"creating topic {topic}", failure)
        deadline = Deadline.after(self._timeout, time.monotonic())
        while self.find(topic) is None and not deadline.passed(time.monotonic()):
            time.sleep(0.01)

    def spans(self, partitions: Iterable[Partition]) -> dict[Partition, Span]:
        """Return the offsets of each partition, as a reader of committed records sees them."""
        return self._checked("asking for offsets", self._admin.spans(partitions, self._timeout))

    def offsets_at(self, partitions: Iterable[Partition], time_ms: int) -> dict[Partition, int]:
        """Return the first offset of each partition at or after ``time_ms`` (epoch); its end if there is none."""
        return self._checked("asking for offsets", self._admin.offsets_at(partitions, time_ms, self._timeout))

    def committed(self, group: str, partitions: Iterable[Partition]) -> dict[Partition, int | None]:
        """Return the group's committed offset of each partition; None where it has committed nothing."""
        found = self.positions(group, partitions)
        return {place: None if position is None else position.offset for place, position in found.items()}

    def positions(self, group: str, partitions: Iterable[Partition]) -> dict[Partition, Position | None]:
        """Return what the group has committed for each partition; None where it has committed nothing."""
        answer = self._admin.positions(group, partitions, self._timeout)
        return self._checked(f"asking for the offsets of group {group}", answer)

    def members(self, group: str) -> list[Member]:
        """Return the members of a group, by client id; none if there is no such group."""
        answer = self._admin.members(group, self._timeout)
        if isinstance(answer, KafkaFailure) and answer.code == "GROUP_ID_NOT_FOUND":
            return []
        return self._checked(f"describing group {group}", answer)

    def _checked(self, request: str, answer: V | KafkaFailure) -> V:
        if not isinstance(answer, KafkaFailure):
            return answer
        # The client's last connection error describes the problem best: refused, a wrong
        # password, an unknown host.
        cause = self._admin.trouble or answer if answer.code.startswith("_") else answer
        why = f"no answer within {self._timeout:g} s" if cause is NO_ANSWER else str(cause)
        raise BrokerError(f"{request} failed at Kafka {self._address}: {why}")


def try_consumer_protocol(properties: Mapping[str, Any], topics: Iterable[str], timeout: float) -> KafkaFailure | None:
    """Join a throw-away group ``<group.id>.doctor`` with these properties, leave and delete it. Return None on success.

    No readable value tells whether the broker supports the consumer protocol: a broker whose feature ``group.version``
    is 0 names the protocol in its configuration, announces its requests, and refuses them. The trial commits nothing
    and discards fetched records. Without the permission to delete it, the group stays until the broker forgets it.
    """
    group = f"{properties['group.id']}.doctor"
    consumer = ck.Consumer(quiet({**properties, "group.id": group}, lambda _: None))
    try:
        failure = _join(consumer, list(topics), timeout)
    finally:
        consumer.close()
    reach = {name: value for name, value in properties.items() if not name.startswith(("group.", "max.poll."))}
    Admin(reach).delete_group(group, timeout)
    return failure


def _join(consumer: ck.Consumer, topics: list[str], timeout: float) -> KafkaFailure | None:
    """Poll until there is an assignment (None), an error, or no time left."""
    assigned: list[ck.TopicPartition] = []
    consumer.subscribe(topics, on_assign=lambda _, partitions: assigned.extend(partitions))
    deadline = Deadline.after(timeout, time.monotonic())
    while not deadline.passed(time.monotonic()):
        message = consumer.poll(0.05)
        if assigned:
            return None
        if message is not None and (error := message.error()) is not None:
            return KafkaFailure(error.name(), error.str())
    return KafkaFailure("_TIMED_OUT", f"not joined within {timeout:g} s")
