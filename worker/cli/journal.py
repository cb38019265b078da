"""The replay journal: a compacted topic that records which dead letters were replayed.

It has one record per replayed dead letter, keyed by its mark and written when the new request is confirmed. A replay
also writes a record of its *run*, with the ends of the request topics when it began. If a run dies, this record stays
open. The next run then reads the request topics from there and finds the sent requests by the header
``x-replayed-from``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from worker.core.model import Partition
from worker.errors import BrokerError
from worker.headers import REPLAYED_FROM
from worker.kafka.sender import Outgoing, deliver

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from worker.cli.access import Access
    from worker.cli.dead_letters import DeadLetter
    from worker.kafka.descriptions import Span
    from worker.kafka.sender import Sender

RUN = "run"


class Journal:
    """All replays from one dead-letter topic. Raises BrokerError when Kafka does not respond."""

    def __init__(self, access: Access) -> None:
        self.topic = f"{access.settings.dead_letter_topic}.replayed"
        self._read = access.read
        self._cluster = access.cluster
        self._marks: set[str] = set()  # of recorded replayed dead letters
        self._places: set[str] = set()  # of dead letters replayed by an unfinished run
        self._load()

    def _load(self) -> None:
        partitions = self._cluster.find(self.topic)
        if partitions is None:
            return
        run: bytes | None = None
        starts = {partition: span.start for partition, span in self._cluster.spans(partitions).items()}
        for record in self._read(starts):
            key = (record.key or b"").decode()
            if key == RUN:
                run = record.value
            else:
                self._marks.add(key)
        if run:
            self._places = set(self._find(json.loads(run)))

    def _find(self, ends: dict[str, dict[str, int]]) -> Iterator[str]:
        """Yield the positions of the dead letters that were replayed after the request topics had these ends."""
        starts = {Partition(topic, int(number)): end for topic, row in ends.items() for number, end in row.items()}
        for record in self._read(starts):
            for name, content in record.headers:
                if name == REPLAYED_FROM and content:
                    yield content.decode(errors="replace")

    def was_replayed(self, dead_letter: DeadLetter) -> bool:
        """Return whether the dead letter was replayed."""
        return dead_letter.mark in self._marks or self.unrecorded(dead_letter)

    def unrecorded(self, dead_letter: DeadLetter) -> bool:
        """Return whether the dead letter was replayed by a run that died before it could record that."""
        return dead_letter.place in self._places and dead_letter.mark not in self._marks

    def count(self, spans: Mapping[Partition, Span]) -> int:
        """Return how many of the dead letters in ``spans`` are recorded as replayed."""
        return sum(_is_in(mark, spans) for mark in self._marks)

    def begin(self, sender: Sender, topics: Iterable[str], unrecorded: Iterable[str]) -> None:
        """Open a run that sends to ``topics``. ``unrecorded`` are the marks that the last run did not record."""
        self._cluster.create(self.topic, 1, {"cleanup.policy": "compact"})
        self._write(sender, dict.fromkeys(unrecorded, b"found"))
        ends: dict[str, dict[int, int]] = {}
        for topic in topics:
            spans = self._cluster.spans(self._cluster.partitions(topic))
            ends[topic] = {partition.number: span.end for partition, span in spans.items()}
        self._write(sender, {RUN: json.dumps(ends).encode()})

    def record(self, sender: Sender, replayed: Mapping[str, str]) -> None:
        """Record these marks, each with the position of the new request."""
        self._write(sender, {mark: place.encode() for mark, place in replayed.items()})

    def finish(self, sender: Sender) -> None:
        """Close the run: everything that it sent is recorded."""
        self._write(sender, {RUN: None})

    def _write(self, sender: Sender, entries: Mapping[str, bytes | None]) -> None:
        records = [Outgoing(self.topic, key.encode(), value) for key, value in entries.items()]
        failure = next((delivery.failure for delivery in deliver(sender, records) if delivery.failure), None)
        if failure:
            raise BrokerError(f"writing to {self.topic} failed: {failure}")


def _is_in(mark: str, spans: Mapping[Partition, Span]) -> bool:
    topic, number, offset, _ = mark.rsplit("/", 3)
    span = spans.get(Partition(topic, int(number)))
    return span is not None and span.start <= int(offset) < span.end
