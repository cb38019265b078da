"""The group client over confluent-kafka, which uses clients that never join a group. See ``ports.GroupClient``."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from worker.kafka.admin import Admin
from worker.kafka.clients import failure_of, quiet
from worker.kafka.ports import KafkaFailure, MemberView, Position

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.core.model import Partition

SECONDS = 5.0  # for one request
PAUSE_SECONDS = 0.05
MOST_CLOSING = 4  # consumers that are still closing, before commits and new groups are refused
MOST_CONSUMERS = 16  # kept, because creating one takes a few threads and 50 ms
_OF_CONSUMERS = {"group.id", "enable.auto.commit", "isolation.level"}
_NO_ANSWER = KafkaFailure("_TIMED_OUT", "the commit was not answered", retriable=True)
_WAIT = KafkaFailure("_TIMED_OUT", "earlier requests were not answered", retriable=True)


class ConfluentGroupClient:
    """``properties`` are those of a consumer that never joins its group: ``transaction_properties.checker``."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = dict(properties)
        self._admin: Admin | None = None
        self._consumers: dict[tuple[str, bool], ck.Consumer] = {}
        self._answers: list[ck.KafkaError | None] = []
        self._closing: list[threading.Thread] = []

    def members(self, group: str) -> list[MemberView] | KafkaFailure:
        """See ``ports.GroupClient``."""
        found = self._administrator().members(group, SECONDS)
        if isinstance(found, KafkaFailure):
            self._disconnect()
            return found
        return [MemberView(one.client_id, one.partitions) for one in found]

    def committed(self, group: str, partition: Partition, *, stable: bool) -> Position | KafkaFailure | None:
        """See ``ports.GroupClient``."""
        if (group, stable) not in self._consumers and self._is_closing_many():
            return _WAIT
        try:
            (found,) = self._consumer(group, stable=stable).committed([ck.TopicPartition(*partition)], SECONDS)
        except ck.KafkaException as error:
            if not self._is_closing_many():
                self._discard(group)  # see _disconnect
            return failure_of(error.args[0])
        if found.error is not None:
            return failure_of(found.error)
        return Position(found.offset, found.metadata or "") if found.offset >= 0 else None

    def commit(self, group: str, partition: Partition, position: Position) -> KafkaFailure | None:
        """See ``ports.GroupClient``."""
        if self._is_closing_many():
            return _WAIT
        consumer = self._consumer(group, stable=True)
        self._answers.clear()
        try:
            place = ck.TopicPartition(partition.topic, partition.number, position.offset, position.metadata)
            consumer.commit(offsets=[place], asynchronous=True)
            limit = time.monotonic() + SECONDS
            while not self._answers and time.monotonic() < limit:
                consumer.poll(PAUSE_SECONDS)
        except ck.KafkaException as error:
            return failure_of(error.args[0])
        if not self._answers:
            self._discard(group)  # a late reply must not count for the next commit
            return _NO_ANSWER
        return None if self._answers[0] is None else failure_of(self._answers[0])

    def delete(self, group: str) -> KafkaFailure | None:
        """See ``ports.GroupClient``."""
        self._discard(group)
        return self._administrator().delete_group(group, SECONDS)

    def _administrator(self) -> Admin:
        if self._admin is None:
            self._admin = Admin({name: value for name, value in self._properties.items() if name not in _OF_CONSUMERS})
        return self._admin

    def _disconnect(self) -> None:
        """Use a new client next time. After an outage, an old one may not find the coordinator for minutes."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def _is_closing_many(self) -> bool:
        return sum(thread.is_alive() for thread in self._closing) >= MOST_CLOSING

    def _consumer(self, group: str, *, stable: bool) -> ck.Consumer:
        consumer = self._consumers.pop((group, stable), None)
        if consumer is None:
            level = "read_committed" if stable else "read_uncommitted"
            changed = {"group.id": group, "isolation.level": level, "on_commit": self._on_commit}
            consumer = ck.Consumer(quiet(self._properties, lambda _error: None) | changed)
            if len(self._consumers) >= MOST_CONSUMERS:
                self._close(self._consumers.pop(next(iter(self._consumers))))
        self._consumers[group, stable] = consumer  # at the end, because the one unused for longest is removed first
        return consumer

    def _discard(self, group: str) -> None:
        for stable in (True, False):
            consumer = self._consumers.pop((group, stable), None)
            if consumer is not None:
                self._close(consumer)

    def _close(self, consumer: ck.Consumer) -> None:
        """Close a consumer on another thread, because with an unanswered commit this waits for the coordinator."""
        thread = threading.Thread(target=consumer.close, name="close-consumer", daemon=True)
        thread.start()
        self._closing = [one for one in (*self._closing, thread) if one.is_alive()]

    def _on_commit(self, error: ck.KafkaError | None, places: list[ck.TopicPartition]) -> None:
        self._answers.append(error or next((place.error for place in places if place.error), None))
