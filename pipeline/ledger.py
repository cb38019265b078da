"""How far each part of a job has come, as committed: a compacted topic.

A record is written in the same transaction as the requests it speaks of, so it is there exactly if they are. Its key
is ``<name>/<part>/<slot>``, its value the numbers sent, as ranges. What a part has sent is the union of its records:
those of a submit replace each other in one slot, those of a replay have a slot each.

An open transaction hides what stands behind it in its partition, so parts that are sent at the same time have
different ones. Ledgers of earlier versions have one partition for all.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from pipeline.contact import meet, patiently
from pipeline.errors import BrokerError, JobError
from pipeline.ranges import Ranges
from worker.core.deadline import Deadline

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_END = ck.KafkaError._PARTITION_EOF  # noqa: SLF001 - a public constant of the client in spite of its name
_FENCED = 30.0  # seconds beyond the longest transaction after which none that was left open can still be so
PATIENCE = 60.0  # seconds the brokers may be silent, and a transaction may be open
QUIET = {"log_level": 2}
PARTITIONS = 16  # of a ledger that is made now


@dataclass(frozen=True, slots=True)
class Ledger:
    """The ledger of one kind of sending. ``name`` says what is sent where; ``properties`` hold secrets."""

    properties: Mapping[str, Any] = field(repr=False)
    topic: str
    name: str

    def key(self, part: int, slot: str = "") -> bytes:
        """The key of a record."""
        return f"{self.name}/{part}/{slot}".encode()

    def part_of(self, key: bytes) -> int | None:
        """Which part a record speaks of; None if it is of another name."""
        prefix = f"{self.name}/".encode()
        part, _, _ = key.removeprefix(prefix).partition(b"/")
        return int(part) if key.startswith(prefix) and part.isdigit() else None

    def partition(self, client: ck.Producer | ck.Consumer, part: int) -> int:
        """Where the records of a part stand. BrokerError if the brokers do not say."""
        return part % len(self._partitions(client))

    def read(self) -> dict[int, Ranges]:
        """What was sent by part, up to the very end of the ledger.

        Whoever fences the senders of some parts first knows then all that these have committed. Waits while other
        parts have transactions open: these hide what is committed behind them. BrokerError after ``PATIENCE``.
        """
        return self._sent(self._ends("read_uncommitted"))

    def read_part(self, part: int) -> Ranges:
        """The same for one part; waits only for parts whose records stand in the same partition."""
        return self._sent(self._ends("read_uncommitted", part)).get(part, Ranges())

    def peek(self) -> dict[int, Ranges]:
        """What can be seen at once: at least what was committed before the oldest open transaction began."""
        return self._sent(self._ends("read_committed"))

    def _sent(self, ends: dict[int, int]) -> dict[int, Ranges]:
        found: dict[int, list[Ranges]] = {}
        for part, sent in self._records(ends):
            found.setdefault(part, []).append(sent)
        return {part: Ranges.union(sets) for part, sets in found.items()}

    def _partitions(self, client: ck.Producer | ck.Consumer) -> list[int]:
        def ask() -> list[int]:
            found = client.list_topics(self.topic, timeout=PATIENCE).topics[self.topic]
            if found.error is not None:
                raise ck.KafkaException(found.error)
            return sorted(found.partitions)

        try:
            return patiently(ask, PATIENCE, exists=True)
        except ck.KafkaException as error:
            raise BrokerError(f"cannot look up {self.topic}: {error.args[0].str()}") from error

    def _ends(self, isolation: str, part: int | None = None) -> dict[int, int]:
        """Where the partitions end; to a reader of what is committed, the first open transaction is the end."""
        consumer = self._consumer(isolation)
        try:
            places = self._partitions(consumer) if part is None else [self.partition(consumer, part)]
            return {place: self._end(consumer, place) for place in places}
        finally:
            consumer.close()

    def _end(self, consumer: ck.Consumer, place: int) -> int:
        partition = ck.TopicPartition(self.topic, place)
        try:
            _, high = patiently(
                lambda: consumer.get_watermark_offsets(partition, PATIENCE, cached=False), PATIENCE, exists=True
            )
        except ck.KafkaException as error:
            raise BrokerError(f"cannot read {self.topic}: {error.args[0].str()}") from error
        return high

    def _records(self, ends: dict[int, int]) -> Iterator[tuple[int, Ranges]]:
        """Committed records until their end has come to each of ``ends``. The offset of that event counts markers."""
        left = {place for place, end in ends.items() if end > 0}
        if not left:
            return
        consumer = self._consumer("read_committed")
        deadline = Deadline.after(PATIENCE + _FENCED, time.monotonic())
        try:
            meet(consumer, self.topic)
            consumer.assign([ck.TopicPartition(self.topic, place, ck.OFFSET_BEGINNING) for place in left])
            while left:
                # One by one: a call for many would wait for more of them where there are none.
                message = consumer.poll(0.2)
                error = message.error() if message else None
                if message and error is None:
                    yield from self._entry(message)
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
            raise JobError(f"{self.topic} has a record at offset {message.offset()} that is none of ours") from None

    def _consumer(self, isolation: str) -> ck.Consumer:
        return ck.Consumer(
            {
                **self.properties,
                **QUIET,
                "group.id": f"ledger-{uuid.uuid4().hex}",  # clients must name one; nobody joins it
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
            }
        )


class Follower:
    """Reads the ledger along while others write it, to show how much is done. For one thread."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._sent: dict[int, Ranges] = {}
        self._consumer = ledger._consumer("read_committed")  # noqa: SLF001 - of this module
        places = ledger._partitions(self._consumer)  # noqa: SLF001 - of this module
        self._consumer.assign([ck.TopicPartition(ledger.topic, place, ck.OFFSET_BEGINNING) for place in places])

    def look(self) -> int:
        """How many are sent by now, as far as read."""
        while messages := self._consumer.consume(1000, 0.05):
            for message in messages:
                if message.error() is None:
                    for part, sent in self._ledger._entry(message):  # noqa: SLF001 - of this module
                        self._sent[part] = Ranges.union([self._sent.get(part, Ranges()), sent])
            if len(messages) < 1000:  # noqa: PLR2004 - as asked for above
                break
        return sum(len(sent) for sent in self._sent.values())

    def close(self) -> None:
        """Free the client."""
        self._consumer.close()
