"""Sending exactly once: rows in order, in chunks, each a transaction with its record in the ledger. Knows no client.

``Channel`` is what Kafka's side must do (``pipeline.channel``); a test has another one. Runs in Spark's tasks.
"""

from __future__ import annotations

import itertools
import operator
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pipeline.ranges import Ranges

    Headers = list[tuple[str, str | bytes | None]]  # as the client takes them
    # Part, number in the part (ascending), topic, key, value and headers. A plain tuple: there are millions of them.
    Row = tuple[int, int, str, bytes | None, bytes | None, Headers]

CHUNK_BYTES = 16 * 1024 * 1024  # of values: a chunk is held in memory, to be sent again if its transaction is aborted


class Channel(Protocol):
    """The sender of one part. Making one fences every other of the same part, whose open transaction is aborted."""

    sent: Ranges
    """the numbers that were committed before this one was made"""

    def send(self, rows: list[Row]) -> None:
        """Commit these rows and their record in the ledger, all or nothing; returns when they are committed."""

    def close(self) -> None:
        """Free what it holds."""


class Sent(NamedTuple):
    """What came of a part in one task."""

    part: int
    sent: int
    skipped: int  # sent by an earlier attempt


class Pace:
    """Holds chunks back so that there are no more than ``rate`` rows a second; None: as fast as possible."""

    def __init__(
        self,
        rate: float | None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = rate
        self._now = now
        self._sleep = sleep
        self._free: float | None = None  # when the next chunk may be sent

    def chunk(self, largest: int) -> int:
        """How many rows to send at once: at most a second's worth, so that they come evenly."""
        return largest if self._rate is None else max(1, min(largest, int(self._rate)))

    def wait(self, rows: int) -> None:
        """Wait until so many rows may be sent. Never inside a transaction: it would hide what others commit."""
        if self._rate is None:
            return
        now = self._now()
        if self._free is not None and self._free > now:
            self._sleep(self._free - now)
        self._free = max(self._free or now, now) + rows / self._rate


def send_rows(rows: Iterable[Row], chunk: int, channel_of: Callable[[int], Channel], pace: Pace) -> Iterator[Sent]:
    """Send what was not sent yet. The rows of a part stand together, with rising numbers."""
    for part, members in itertools.groupby(rows, key=operator.itemgetter(0)):
        yield _send_part(part, members, chunk, channel_of, pace)


def _send_part(part: int, rows: Iterable[Row], chunk: int, channel_of: Callable[[int], Channel], pace: Pace) -> Sent:
    channel = channel_of(part)
    seen = sent = 0

    def unsent() -> Iterator[Row]:
        nonlocal seen
        for row in rows:
            seen += 1
            if row[1] not in channel.sent:
                yield row

    try:
        for batch in chunks(unsent(), pace.chunk(chunk)):
            pace.wait(len(batch))
            channel.send(batch)
            sent += len(batch)
    finally:
        channel.close()
    return Sent(part, sent, seen - sent)


def chunks(rows: Iterable[Row], most: int, most_bytes: int = CHUNK_BYTES) -> Iterator[list[Row]]:
    """Cut into lists of at most ``most`` rows and, unless one row alone is larger, ``most_bytes`` of values."""
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
