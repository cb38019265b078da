"""The consumers of ``worker.Client``. They read the ack topic without a group, commit nothing and skip headers."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from worker.core.model import Partition, Record
from worker.errors import BrokerError
from worker.kafka.broker_watch import BrokerWatch
from worker.kafka.clients import READING, at_offsets, one_line, quiet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from worker.kafka.descriptions import Span

_END = ck.KafkaError._PARTITION_EOF  # noqa: SLF001 - a public constant of the client in spite of its name
_MOST = 1000  # the most records that are taken at once
_LOOK = 0.2  # seconds between two checks whether to stop


class AnswerReader:
    """Reads committed records from the offset given for each partition. Use it from one thread.

    Records that retention has deleted meanwhile are skipped.
    """

    def __init__(self, properties: Mapping[str, Any], starts: Mapping[Partition, int]) -> None:
        self._error: ck.KafkaError | None = None
        self.ended: set[Partition] = set()  # the partitions whose end was reached at least once
        self._properties = quiet(properties, self._hear) | READING | {"queued.max.messages.kbytes": 16_384}
        self._next = dict(starts)
        self._connect()

    def _connect(self) -> None:
        self._watch = BrokerWatch(logged=False)
        self._client = ck.Consumer(self._watch.watched(self._properties))
        self._client.assign(at_offsets(self._next))

    def _hear(self, error: ck.KafkaError) -> None:
        # The client repairs lost connections by itself, but not refused credentials.
        if error.code() == ck.KafkaError._AUTHENTICATION or error.fatal():  # noqa: SLF001 - public in spite of its name
            self._error = error

    def extend(self, starts: Mapping[Partition, int]) -> None:
        """Read these partitions too."""
        self._next.update(starts)
        self._client.incremental_assign(at_offsets(starts))

    def read(self, timeout: float) -> list[Record]:
        """Return the available records, waiting ``timeout`` seconds for the first. Raise BrokerError if refused."""
        if self._watch.stranded:
            self._connect()
        first = self._client.poll(timeout)
        messages = [] if first is None else [first, *self._client.consume(_MOST - 1, 0)]
        if self._error is not None:
            raise BrokerError(f"reading answers failed: {one_line(self._error)}")
        return [record for message in messages if (record := self._record(message)) is not None]

    def _record(self, message: ck.Message) -> Record | None:
        number, found, error = message.partition(), message.offset(), message.error()
        place = Partition(str(message.topic()), -1 if number is None else number)
        offset = -1 if found is None else found
        if error is None:
            key: Any = message.key()  # bytes, like the value, because no deserializer is set
            value: Any = message.value()
            self._next[place] = offset + 1
            return Record(place, offset, key, value, (), message.timestamp()[1])
        if error.code() == _END:
            self.ended.add(place)
        elif not error.retriable():
            raise BrokerError(f"reading {place} failed: {one_line(error)}")
        return None

    def close(self) -> None:
        """Free the client."""
        self._client.close()


def answers_since(
    properties: Mapping[str, Any],
    spans: Mapping[Partition, Span],
    timestamp_ms: int,
    stopped: Callable[[], bool],
    timeout: float,
) -> Iterator[list[Record]]:
    """Yield the records in ``spans`` dated ``timestamp_ms`` or later, in portions.

    End early when ``stopped``. Raise BrokerError if the broker does not reply for ``timeout`` seconds.
    """
    starts = _starts(properties, spans, timestamp_ms, timeout)
    if not starts:
        return
    silent = 0.0
    with contextlib.closing(AnswerReader(properties, starts)) as reader:
        behind = set(starts)
        while behind and not stopped():
            records = reader.read(_LOOK)
            behind -= reader.ended | {r.partition for r in records if r.offset >= spans[r.partition].end - 1}
            silent = 0.0 if records else silent + _LOOK
            if silent > timeout:
                raise BrokerError(f"reading earlier answers failed: Kafka sent nothing for {timeout:g} s")
            yield records


def _starts(
    properties: Mapping[str, Any], spans: Mapping[Partition, Span], timestamp_ms: int, timeout: float
) -> dict[Partition, int]:
    """Return where to begin in each partition that has records of this age."""
    if timestamp_ms <= 0:
        return {place: span.start for place, span in spans.items() if span.start < span.end}
    consumer = ck.Consumer(quiet(properties, lambda _error: None))
    try:
        found = consumer.offsets_for_times(at_offsets(dict.fromkeys(spans, timestamp_ms)), timeout)
    except ck.KafkaException as error:
        raise BrokerError(f"searching for earlier answers failed: {one_line(error)}") from error
    finally:
        consumer.close()
    if (failure := next((p.error for p in found if p.error is not None), None)) is not None:
        raise BrokerError(f"searching for earlier answers failed: {one_line(failure)}")
    offsets = {Partition(p.topic, p.partition): p.offset for p in found}
    return {place: offset for place, offset in offsets.items() if 0 <= offset < spans[place].end}
