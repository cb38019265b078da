"""Exactly-once sending: rows in order, in chunks. Each chunk is a transaction with its record in the progress log.

``Channel`` is the interface of the Kafka client (``pipeline.exactly_once.channel``). Runs on executors.
"""

from __future__ import annotations

import itertools
import operator
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pipeline.exactly_once.ranges import Ranges
    from pipeline.exactly_once.throttle import Throttle

    Headers = list[tuple[str, str | bytes | None]]  # as the client takes them
    # Part, number in the part (ascending), topic, key, value and headers. A plain tuple, because there are millions.
    Row = tuple[int, int, str, bytes | None, bytes | None, Headers]

CHUNK_BYTES = 16 * 1024 * 1024  # of values: a chunk stays in memory, to be sent again if its transaction is aborted


class Channel(Protocol):
    """The sender of one part. Creating it fences every other sender of the part and aborts its open transaction."""

    sent: Ranges
    """the numbers that were committed before this sender was created"""

    def send(self, rows: list[Row]) -> None:
        """Commit these rows and their record in the progress log in one transaction. Return once it is committed."""

    def close(self) -> None:
        """Free its resources."""


class Sent(NamedTuple):
    """The result of one task for a part, in rows."""

    part: int
    sent: int
    skipped: int  # because an earlier attempt sent them


def send_rows(
    rows: Iterable[Row], chunk: int, channel_of: Callable[[int], Channel], throttle: Throttle
) -> Iterator[Sent]:
    """Send the rows that were not sent yet. The rows of a part stand together, with ascending numbers."""
    for part, members in itertools.groupby(rows, key=operator.itemgetter(0)):
        yield _send_part(part, members, chunk, channel_of, throttle)


def _send_part(
    part: int, rows: Iterable[Row], chunk: int, channel_of: Callable[[int], Channel], throttle: Throttle
) -> Sent:
    channel = channel_of(part)
    seen = sent = 0

    def unsent() -> Iterator[Row]:
        nonlocal seen
        for row in rows:
            seen += 1
            if row[1] not in channel.sent:
                yield row

    try:
        for batch in chunks(unsent(), throttle.chunk(chunk)):
            throttle.wait(len(batch))
            channel.send(batch)
            sent += len(batch)
    finally:
        channel.close()
    return Sent(part, sent, seen - sent)


def chunks(rows: Iterable[Row], most: int, most_bytes: int = CHUNK_BYTES) -> Iterator[list[Row]]:
    """Split rows into lists of at most ``most`` rows and ``most_bytes`` of values. A larger row stands alone."""
    batch: list[Row] = []
    size = 0
    for row in rows:
        length = len(row[4] or b"")
        if batch and (len(batch) >= most or size + length > most_bytes):
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += length
    if batch:
        yield batch
