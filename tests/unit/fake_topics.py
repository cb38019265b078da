"""Topics in memory that replace ``worker.cli.access.Access``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from worker.core.model import Partition, Record
from worker.errors import BrokerError
from worker.kafka.descriptions import Span
from worker.kafka.sender import Delivery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from worker.core.model import Headers
    from worker.kafka.ports import Position
    from worker.kafka.sender import Outgoing

NOW = 1_800_000_000_000  # milliseconds
STATES, REQUESTS, ANSWERS = "states", "requests", "answers"


class FakeTopics:
    """Topics with two partitions each. ``on_write`` is called after each record that a command writes."""

    def __init__(self, *, state_topic: str = STATES) -> None:
        self.settings = SimpleNamespace(
            state_topic=state_topic, request_topics=(REQUESTS,), ack_topic=ANSWERS, group="workers"
        )
        self.logs: dict[Partition, list[Record]] = {
            Partition(topic, number): [] for topic in (STATES, REQUESTS, ANSWERS) for number in range(2)
        }
        self.committed: dict[Partition, Position] = {}
        self.on_write: Callable[[Outgoing], None] = lambda _record: None
        self.write_failure: str | None = None
        self.starts: list[dict[Partition, int]] = []  # the start offsets of each reader that was created
        self.cluster = self

    def add(
        self, topic: str, number: int, key: bytes | None, value: bytes | None, headers: Headers = (), time: int = NOW
    ) -> int:
        """Append a record, and return its offset."""
        place = Partition(topic, number)
        self.logs[place].append(Record(place, len(self.logs[place]), key, value, headers, time))
        return len(self.logs[place]) - 1

    # -- the cluster

    def partitions(self, topic: str) -> list[Partition]:
        found = [place for place in self.logs if place.topic == topic]
        if not found:
            raise BrokerError(f"there is no topic {topic!r}")
        return found

    def spans(self, places: Iterable[Partition]) -> dict[Partition, Span]:
        return {place: Span(0, len(self.logs[place])) for place in places}

    def positions(self, _group: str, places: Iterable[Partition]) -> dict[Partition, Position | None]:
        return {place: self.committed.get(place) for place in places}

    def offsets_at(self, places: Iterable[Partition], time_ms: int) -> dict[Partition, int]:
        rows = {place: self.logs[place] for place in places}
        return {
            place: next((record.offset for record in row if record.timestamp_ms >= time_ms), len(row))
            for place, row in rows.items()
        }

    # -- clients

    def reader(self, starts: Mapping[Partition, int]) -> FakeReader:
        self.starts.append(dict(starts))
        return FakeReader(self.logs, dict(starts))

    def read(self, starts: Mapping[Partition, int]) -> Iterator[Record]:
        return iter(self.reader(starts).poll(0.0))

    def sender(self) -> FakeTopics:
        return self

    def send(self, record: Outgoing, on_delivery: Callable[[Delivery], None]) -> None:
        place = Partition(record.topic, record.partition or 0)
        offset = None if self.write_failure else self.add(*place, record.key, record.value, record.headers)
        on_delivery(Delivery(place, offset, self.write_failure))
        self.on_write(record)

    def write(self, record: Outgoing) -> None:
        """Append a record that no command has written."""
        self.add(record.topic, record.partition or 0, record.key, record.value)

    def flush(self, _timeout: float) -> int:
        return 0


class FakeReader:
    """A replacement for ``worker.kafka.reader.Reader``."""

    def __init__(self, logs: dict[Partition, list[Record]], starts: dict[Partition, int]) -> None:
        self._logs = logs
        self._next = starts
        self._heard = not starts
        self.closed = False
        self.mark_ends()

    def mark_ends(self) -> None:
        self._ends = {place: len(self._logs[place]) for place in self._next}

    @property
    def at_end(self) -> bool:
        return self._heard and all(self._next[place] >= end for place, end in self._ends.items())

    def poll(self, _timeout: float) -> list[Record]:
        ends = {place: len(self._logs[place]) for place in self._next}  # another thread may write meanwhile
        found = [record for place, start in self._next.items() for record in self._logs[place][start : ends[place]]]
        self._next = ends
        self._heard = True
        return found

    def close(self) -> None:
        self.closed = True
