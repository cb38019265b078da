"""The committed progress of each part of a job, in a compacted topic.

A record is written in the same transaction as its requests, so it exists exactly if they do. Its key is
``<name>/<part>/<slot>``, and its value is the numbers that were sent, as ranges. A part has sent the union of its
records: the records of a submit replace each other in one slot, and each record of a replay has a separate slot.

The same topic records which runs of a job were submitted: see ``pipeline.exactly_once.runs``.

An open transaction hides the records behind it in its partition, so parts that are sent at the same time use
different partitions. Progress logs of earlier versions have a single partition.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from pipeline.errors import BrokerError, JobError
from pipeline.exactly_once.client import retry_transient, wait_for_metadata
from pipeline.exactly_once.ranges import Ranges
from worker.core.deadline import Deadline

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_END = ck.KafkaError._PARTITION_EOF  # noqa: SLF001 - a public constant of the client in spite of its name
_FENCED = 30.0  # seconds after the longest transaction until none can still be open
TIMEOUT = 60.0  # seconds: the longest silence of the brokers, and the longest transaction
QUIET = {"log_level": 2}
PARTITIONS = 16  # of a new progress log


@dataclass(frozen=True, slots=True)
class ProgressLog:
    """The progress log of one kind of sending. ``name`` identifies it; ``properties`` contain secrets."""

    properties: Mapping[str, Any] = field(repr=False)
    topic: str
    name: str

    def key(self, part: int, slot: str = "") -> bytes:
        """Return the key of a record."""
        return f"{self.name}/{part}/{slot}".encode()

    def part_of(self, key: bytes) -> int | None:
        """Return the part of a record, or None if the record has another name."""
        prefix = f"{self.name}/".encode()
        part, _, _ = key.removeprefix(prefix).partition(b"/")
        return int(part) if key.startswith(prefix) and part.isdigit() else None

    def partition(self, client: ck.Producer | ck.Consumer, part: int) -> int:
        """Return the partition with the records of a part. Raise BrokerError if the brokers do not answer."""
        return part % len(self._partitions(client))

    def read(self) -> dict[int, Ranges]:
        """Return the numbers that were sent, by part, up to the end of the progress log.

        A caller that has fenced the senders of some parts thus learns all that these have committed. Wait while other
        parts have open transactions, which hide the commits behind them. Raise BrokerError after ``TIMEOUT`` seconds.
        """
        return self._sent(self._ends("read_uncommitted"))

    def read_part(self, part: int) -> Ranges:
        """Return the same for one part. Wait only for parts whose records stand in the same partition."""
        return self._sent(self._ends("read_uncommitted", part)).get(part, Ranges())

    def peek(self) -> dict[int, Ranges]:
        """Return what is visible at once: at least the commits from before the oldest open transaction began."""
        return self._sent(self._ends("read_committed"))

    def _sent(self, ends: dict[int, int]) -> dict[int, Ranges]:
        found: dict[int, list[Ranges]] = {}
        for message in self._messages(ends):
            for part, sent in self._entry(message):
                found.setdefault(part, []).append(sent)
        return {part: Ranges.union(sets) for part, sets in found.items()}

    def messages(self, settled: int | None = None) -> Iterator[ck.Message]:
        """Yield each committed record of the topic that is visible at once, of any name.

        Read the partition ``settled`` up to its end, and wait for the transactions that are open there.
        """
        ends = self._ends("read_committed")
        if settled is not None:
            ends |= self._ends("read_uncommitted", settled)
        yield from self._messages(ends)

    def latest(self, key: bytes, part: int) -> bytes | None:
        """Return the newest value of a key that was written outside of transactions, in the partition of ``part``.

        Open transactions do not hide it.
        """
        messages: Iterator[Any] = self._messages(self._ends("read_uncommitted", part), "read_uncommitted")
        found = [message.value() for message in messages if message.key() == key]
        newest: bytes | None = found[-1] if found else None
        return newest

    def _partitions(self, client: ck.Producer | ck.Consumer) -> list[int]:
        def request() -> list[int]:
            found = client.list_topics(self.topic, timeout=TIMEOUT).topics[self.topic]
            if found.error is not None:
                raise ck.KafkaException(found.error)
            return sorted(found.partitions)

        try:
            return retry_transient(request, TIMEOUT, exists=True)
        except ck.KafkaException as error:
            raise BrokerError(f"cannot look up {self.topic}: {error.args[0].str()}") from error

    def _ends(self, isolation: str, part: int | None = None) -> dict[int, int]:
        """Return the end of each partition. For a reader of committed records it is the first open transaction."""
        consumer = self._consumer(isolation)
        try:
            places = self._partitions(consumer) if part is None else [self.partition(consumer, part)]
            return {place: self._end(consumer, place) for place in places}
        finally:
            consumer.close()

    def _end(self, consumer: ck.Consumer, place: int) -> int:
        partition = ck.TopicPartition(self.topic, place)
        try:
            _, high = retry_transient(
                lambda: consumer.get_watermark_offsets(partition, TIMEOUT, cached=False), TIMEOUT, exists=True
            )
        except ck.KafkaException as error:
            raise BrokerError(f"cannot read {self.topic}: {error.args[0].str()}") from error
        return high

    def _messages(self, ends: dict[int, int], isolation: str = "read_committed") -> Iterator[ck.Message]:
        """Yield records until each partition has reached its end. The offset of that event counts markers."""
        left = {place for place, end in ends.items() if end > 0}
        if not left:
            return
        consumer = self._consumer(isolation)
        deadline = Deadline.after(TIMEOUT + _FENCED, time.monotonic())
        try:
            wait_for_metadata(consumer, self.topic)
            consumer.assign([ck.TopicPartition(self.topic, place, ck.OFFSET_BEGINNING) for place in left])
            while left:
                # One record per call: a call for several would wait for more when the partition has none.
                message = consumer.poll(0.2)
                error = message.error() if message else None
                if message and error is None:
                    yield message
                elif message and error and error.code() == _END:
                    place: Any = message.partition()
                    if (message.offset() or 0) >= ends[place]:
                        left.discard(place)
                if left and deadline.passed(time.monotonic()):
                    raise BrokerError(f"{self.topic} cannot be read to its end: a transaction in it stays open")
        finally:
            consumer.close()

    def _entry(self, message: ck.Message) -> Iterator[tuple[int, Ranges]]:
        key: Any = message.key()  # bytes, because no deserializer is set
        value: Any = message.value()
        part = self.part_of(key or b"")
        if part is None or not value:
            return
        try:
            yield part, Ranges.parse(value.decode())
        except ValueError:
            raise JobError(f"{self.topic} has a record at offset {message.offset()} of another program") from None

    def _consumer(self, isolation: str) -> ck.Consumer:
        return ck.Consumer(
            {
                **self.properties,
                **QUIET,
                "group.id": f"progress_log-{uuid.uuid4().hex}",  # clients must name a group; no client joins it
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
            }
        )


class Follower:
    """A reader that follows the progress log to show progress while others write it. For one thread."""

    def __init__(self, progress_log: ProgressLog) -> None:
        self._progress_log = progress_log
        self._sent: dict[int, Ranges] = {}
        self._consumer = progress_log._consumer("read_committed")  # noqa: SLF001 - of this module
        places = progress_log._partitions(self._consumer)  # noqa: SLF001 - of this module
        self._consumer.assign([ck.TopicPartition(progress_log.topic, place, ck.OFFSET_BEGINNING) for place in places])

    def look(self) -> int:
        """Return how many numbers are sent, as far as the log is read."""
        while messages := self._consumer.consume(1000, 0.05):
            for message in messages:
                if message.error() is None:
                    for part, sent in self._progress_log._entry(message):  # noqa: SLF001 - of this module
                        self._sent[part] = Ranges.union([self._sent.get(part, Ranges()), sent])
            if len(messages) < 1000:  # noqa: PLR2004 - as above
                break
        return sum(len(sent) for sent in self._sent.values())

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()
