"""Reading partitions from given offsets, for the tools: no group is joined and nothing is committed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from worker.core.model import Partition, Record
from worker.errors import BrokerError
from worker.kafka.cluster import one_line, quiet

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_END = ck.KafkaError._PARTITION_EOF  # noqa: SLF001 - a public constant of the client in spite of its name


class Reader:
    """Reads committed records, from the offset given for each partition.

    ``timeout`` is how many seconds the broker may be silent before it counts as away.
    """

    def __init__(self, properties: Mapping[str, Any], starts: Mapping[Partition, int], timeout: float = 30.0) -> None:
        self._timeout = timeout
        self._complaint: ck.KafkaError | None = None
        self._behind = set(starts)  # partitions whose end has not been seen since their last record
        self._client = ck.Consumer(
            quiet(properties, self._complain)
            | {
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",  # what retention removed meanwhile is passed over
            }
        )
        self._client.assign([ck.TopicPartition(p.topic, p.number, offset) for p, offset in starts.items()])

    def _complain(self, error: ck.KafkaError) -> None:
        self._complaint = error

    @property
    def at_end(self) -> bool:
        """Whether every partition had nothing more when it was last asked."""
        return not self._behind

    def poll(self, timeout: float) -> list[Record]:
        """The records that are there, at most 1000; waits ``timeout`` seconds for the first. BrokerError if refused."""
        records = []
        for message in self._client.consume(1000, timeout):
            place = Partition(str(message.topic()), _number(message.partition()))
            error = message.error()
            if error is None:
                self._behind.add(place)
                records.append(_record(place, message))
            elif error.code() == _END:
                self._behind.discard(place)
            elif not error.retriable():
                raise BrokerError(f"reading {place} failed: {one_line(error)}")
        return records

    def to_end(self) -> Iterator[Record]:
        """Every record up to the present end of each partition. BrokerError if the broker falls silent."""
        heard = time.monotonic()
        while self._behind:
            behind = len(self._behind)
            records = self.poll(0.2)
            if records or len(self._behind) < behind:
                heard = time.monotonic()
            elif time.monotonic() - heard > self._timeout:
                why = one_line(self._complaint) if self._complaint else f"nothing came for {self._timeout:g} s"
                raise BrokerError(f"reading stopped before the end: {why}")
            yield from records

    def close(self) -> None:
        """Free the client."""
        self._client.close()


def _number(value: int | None) -> int:
    return -1 if value is None else value


def _record(place: Partition, message: ck.Message) -> Record:
    # Key and value are bytes, because no deserializer is set, and headers are pairs.
    key: Any = message.key()
    value: Any = message.value()
    headers: Any = message.headers()
    return Record(place, _number(message.offset()), key, value, tuple(headers or ()), message.timestamp()[1])
