"""Which dead letters have been sent again: a compacted topic beside the dead-letter topic.

One record for each letter replayed, keyed by its mark, is written when the new request is confirmed. A process that
dies in between leaves the record of its *run* open: it says where the request topics ended when the run began, so the
next run finds what was sent by looking there for requests with a ``x-replayed-from`` header.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from worker.cli.letters import REPLAYED_FROM
from worker.core.model import Partition
from worker.errors import BrokerError
from worker.kafka.sender import Outgoing, deliver

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from worker.cli.access import Access
    from worker.cli.letters import Letter
    from worker.kafka.sender import Sender

RUN = "run"


class Journal:
    """The memory of all replays from one dead-letter topic. Raises BrokerError when Kafka does not answer."""

    def __init__(self, access: Access) -> None:
        self.topic = f"{access.settings.dead_letter_topic}.replayed"
        self._read = access.read
        self._cluster = access.cluster
        self._marks: set[str] = set()  # of letters replayed, as recorded
        self._places: set[str] = set()  # of letters replayed by a run that did not finish, as found
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
        """The places of the letters that were replayed after the request topics ended so."""
        starts = {Partition(topic, int(number)): end for topic, row in ends.items() for number, end in row.items()}
        for record in self._read(starts):
            for name, content in record.headers:
                if name == REPLAYED_FROM and content:
                    yield content.decode(errors="replace")

    def knows(self, letter: Letter) -> bool:
        """Whether the letter was replayed."""
        return letter.mark in self._marks or self.lacks(letter)

    def lacks(self, letter: Letter) -> bool:
        """Whether the letter was replayed by a run that died before it recorded that."""
        return letter.place in self._places and letter.mark not in self._marks

    def begin(self, sender: Sender, topics: Iterable[str], lacking: Iterable[str]) -> None:
        """Open a run that sends to ``topics``. ``lacking`` are the marks to be recorded from the run before."""
        self._cluster.create(self.topic, 1, {"cleanup.policy": "compact"})
        self._write(sender, dict.fromkeys(lacking, b"found"))
        ends: dict[str, dict[int, int]] = {}
        for topic in topics:
            spans = self._cluster.spans(self._cluster.partitions(topic))
            ends[topic] = {partition.number: span.end for partition, span in spans.items()}
        self._write(sender, {RUN: json.dumps(ends).encode()})

    def record(self, sender: Sender, replayed: Mapping[str, str]) -> None:
        """These marks were replayed, each to the given place of the request topic."""
        self._write(sender, {mark: place.encode() for mark, place in replayed.items()})

    def finish(self, sender: Sender) -> None:
        """The run is complete: all it sent is recorded."""
        self._write(sender, {RUN: None})

    def _write(self, sender: Sender, entries: Mapping[str, bytes | None]) -> None:
        records = [Outgoing(self.topic, key.encode(), value) for key, value in entries.items()]
        failure = next((delivery.failure for delivery in deliver(sender, records) if delivery.failure), None)
        if failure:
            raise BrokerError(f"writing to {self.topic} failed: {failure}")
