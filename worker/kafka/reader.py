"""Reads partitions from given offsets, for the tools. It joins no group and commits nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from worker.core.model import Partition, Record
from worker.errors import BrokerError
from worker.kafka.clients import READING, at_offsets, failure_of, quiet
from worker.kafka.records import headers_of
from worker.kafka.validate import made

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_END = ck.KafkaError._PARTITION_EOF  # noqa: SLF001 - a public constant of the client in spite of its name
_ENDS_SECONDS = 1.0  # for the reply to one request for the ends of the partitions


class Reader:
    """Reads committed records, from the offset given for each partition.

    The ends that ``at_end`` uses are fixed when the reader is created, so reading ends even if others keep writing.
    After ``timeout`` seconds without a reply the broker counts as unavailable.
    """

    def __init__(self, properties: Mapping[str, Any], starts: Mapping[Partition, int], timeout: float = 30.0) -> None:
        self._timeout = timeout
        self._last_error: ck.KafkaError | None = None
        # No record below this offset is still to come. An empty partition counts as read once the broker has confirmed
        # it.
        self._next = dict.fromkeys(starts, -1)
        self._ends: Mapping[Partition, int] | None = None  # None: the broker has not reported them yet
        self._client = made(ck.Consumer, quiet(properties, self._on_error) | READING)
        self._client.assign(at_offsets(starts))
        self.mark_ends()

    def _on_error(self, error: ck.KafkaError) -> None:
        self._last_error = error

    @property
    def at_end(self) -> bool:
        """Return whether everything up to the fixed ends was read."""
        return self._ends is not None and all(self._next[place] >= end for place, end in self._ends.items())

    def mark_ends(self) -> None:
        """Fix the current ends. While the broker does not reply, every ``poll`` tries again."""
        self._ends = self._request_ends()

    def _request_ends(self) -> Mapping[Partition, int] | None:
        """Return where the committed records of each partition end: before the oldest open transaction, if any."""
        if not self._next:
            return {}  # the client refuses an empty request
        try:
            ends = self._client.offsets_for_times(at_offsets(dict.fromkeys(self._next, ck.OFFSET_END)), _ENDS_SECONDS)
        except ck.KafkaException:
            return None
        if any(end.error is not None for end in ends):
            return None  # if this does not pass, ``poll`` reports the problem
        return {Partition(end.topic, end.partition): end.offset for end in ends}

    def poll(self, timeout: float) -> list[Record]:
        """Return at most 1000 records. Wait up to ``timeout`` seconds for the first. Raise BrokerError if refused."""
        if self._ends is None:
            self.mark_ends()
        records = []
        for message in self._client.consume(1000, timeout):
            place, offset = Partition(str(message.topic()), _number(message.partition())), _number(message.offset())
            error = message.error()
            if error is None:
                self._next[place] = offset + 1
                records.append(_record(place, offset, message))
            elif error.code() == _END:
                self._next[place] = max(self._next[place], offset)
            elif not error.retriable():
                raise BrokerError(f"reading {place} failed: {failure_of(error)}")
        return records

    def to_end(self) -> Iterator[Record]:
        """Yield every record up to the current end of each partition. Raise BrokerError if replies stop."""
        self.mark_ends()
        heard = time.monotonic()
        while not self.at_end:
            before = dict(self._next)
            records = self.poll(0.2)
            if self._next != before:
                heard = time.monotonic()
            elif time.monotonic() - heard > self._timeout:
                why = failure_of(self._last_error) if self._last_error else f"nothing came for {self._timeout:g} s"
                raise BrokerError(f"reading stopped before the end: {why}")
            yield from records

    def close(self) -> None:
        """Free the client."""
        self._client.close()


def _number(value: int | None) -> int:
    return -1 if value is None else value


def _record(place: Partition, offset: int, message: ck.Message) -> Record:
    # Key and value are bytes, because no deserializer is set.
    key: Any = message.key()
    value: Any = message.value()
    return Record(place, offset, key, value, headers_of(message), message.timestamp()[1])
