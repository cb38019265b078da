"""Reads a whole topic from its beginning and follows it. It joins no group and commits nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import confluent_kafka as ck

from worker.errors import BrokerError
from worker.kafka.broker_watch import BrokerWatch
from worker.kafka.clients import READING, failure_of, quiet

if TYPE_CHECKING:
    from collections.abc import Mapping

_END = ck.KafkaError._PARTITION_EOF  # noqa: SLF001 - a public constant of the client in spite of its name
_END_SECONDS = 1.0  # for the reply to one request for the end of a partition


class KeyValue(NamedTuple):
    """A record of the topic."""

    key: bytes | None
    value: bytes | None


class TopicFollower:
    """Use it from one thread. Raises BrokerError if the broker refuses access. During an outage nothing arrives."""

    def __init__(self, properties: Mapping[str, Any], topic: str, partitions: int) -> None:
        self._topic = topic
        self._next = dict.fromkeys(range(partitions), 0)  # no record below this offset is still to come
        self._properties = (
            quiet(properties, lambda _error: None)
            | READING
            | {
                "isolation.level": "read_uncommitted",  # nobody writes to it in transactions
                "fetch.wait.max.ms": 100,
            }
        )
        self._connect()

    def _connect(self) -> None:
        self._watch = BrokerWatch()
        self._client = ck.Consumer(self._watch.watched(self._properties))
        self._client.assign(
            [
                ck.TopicPartition(self._topic, number, offset or ck.OFFSET_BEGINNING)
                for number, offset in self._next.items()
            ]
        )

    def poll(self, timeout: float) -> list[KeyValue]:
        """Return new records. Wait up to ``timeout`` seconds for the first."""
        if self._watch.stranded:
            self._connect()
        records: list[KeyValue] = []
        for message in self._client.consume(1000, timeout):
            error = message.error()
            partition: Any = message.partition()
            offset: Any = message.offset()
            if error is None:
                self._next[partition] = offset + 1
                key: Any = message.key()
                value: Any = message.value()
                records.append(KeyValue(key, value))
            elif error.code() == _END:
                self._next[partition] = max(self._next[partition], offset)
            elif not error.retriable():
                raise BrokerError(f"reading {self._topic}[{partition}] failed: {failure_of(error)}")
        return records

    def ends(self) -> dict[int, int] | None:
        """Return the current end of each partition; None while the broker does not reply."""
        ends = {}
        for number in self._next:
            try:
                answer: Any = self._client.get_watermark_offsets(
                    ck.TopicPartition(self._topic, number), timeout=_END_SECONDS, cached=False
                )
            except ck.KafkaException:
                return None
            if answer is None:
                return None
            ends[number] = answer[1]
        return ends

    def has_reached(self, ends: Mapping[int, int]) -> bool:
        """Return whether ``poll`` has returned everything below these ends."""
        return all(self._next[number] >= end for number, end in ends.items())

    def close(self) -> None:
        """Free the client."""
        self._client.close()
