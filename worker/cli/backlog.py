"""The requests of the group that have no answer yet, according to its commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from worker.core.commit_metadata import EMPTY, MetadataError, decode
from worker.core.task_state import Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from worker.cli.access import Access
    from worker.core.commit_metadata import Range
    from worker.core.model import Partition, Record
    from worker.kafka.descriptions import Span
    from worker.kafka.ports import Position


class Answered:
    """Which requests of a partition have an answer: those below ``floor``, and some ranges above it. Pure."""

    def __init__(self, span: Span, position: Position | None) -> None:
        offset = span.start if position is None else position.offset
        metadata = EMPTY
        if position is not None:
            try:
                metadata = decode(position.metadata, position.offset)
            except MetadataError:
                metadata = EMPTY  # from another program: then only the offset counts
        # With at-most-once the commit comes before the start, and the metadata says which requests have no answer.
        self.floor = offset if metadata.unanswered_from is None else metadata.unanswered_from
        self._ranges: tuple[Range, ...] = metadata.completed

    def __contains__(self, offset: int) -> bool:
        return offset < self.floor or any(first <= offset < stop for first, stop in self._ranges)


class Backlog:
    """The request topics. Raises BrokerError if they, or the offsets of the group, cannot be read."""

    def __init__(self, access: Access) -> None:
        settings = access.settings
        places = [place for topic in settings.request_topics for place in access.cluster.partitions(topic)]
        positions = access.cluster.positions(settings.group, places)
        self._access = access
        self._spans = access.cluster.spans(places)
        self._answered = {place: Answered(self._spans[place], positions.get(place)) for place in places}

    def check(self, origin: Origin) -> None:
        """Raise UsageError if there is no such request."""
        span = self._spans.get(origin.place)
        if span is None:
            topics = ", ".join(self._access.settings.request_topics)
            raise click.UsageError(f"{origin}: KAFKA_REQUEST_TOPIC={topics} has no such partition")
        if origin.offset >= span.end:
            raise click.UsageError(f"{origin}: there is no such request: the partition ends before offset {span.end}")

    def answered(self, origin: Origin) -> bool:
        """Return whether the group has committed that the request has an answer."""
        return origin.offset in self._answered[origin.place]

    def unanswered(self) -> Iterator[Record]:
        """Yield the requests without an answer, up to now."""
        starts = {place: max(self._spans[place].start, done.floor) for place, done in self._answered.items()}
        for record in self._read(starts, lambda place: self._spans[place].end):
            if record.offset not in self._answered[record.partition]:
                yield record

    def earlier(self) -> Iterator[Record]:
        """Yield the requests below those. Each has an answer, as long as its topic keeps it."""
        starts = {place: span.start for place, span in self._spans.items()}
        return self._read(starts, lambda place: self._answered[place].floor)

    def _read(self, starts: dict[Partition, int], end_of: Callable[[Partition], int]) -> Iterator[Record]:
        """Yield the records from each start up to the end. It may read slightly further."""
        left = {place: start for place, start in starts.items() if start < end_of(place)}
        if not left:
            return
        for record in self._access.read(left):
            if record.offset < end_of(record.partition):
                yield record


def origin_of(record: Record) -> Origin:
    """Return the origin of a request."""
    return Origin(*record.partition, record.offset)
