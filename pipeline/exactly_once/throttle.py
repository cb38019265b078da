"""A limit on the rate of rows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa


class Throttle:
    """A limit of ``rate`` rows per second, kept by delaying chunks. None means no limit."""

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
        """Return how many rows to send at once: at most one second's worth, for an even rate."""
        return largest if self._rate is None else max(1, min(largest, int(self._rate)))

    def wait(self, rows: int) -> None:
        """Wait until ``rows`` rows may be sent. Never call it in a transaction, which hides what others commit."""
        if self._rate is None:
            return
        now = self._now()
        if self._free is not None and self._free > now:
            self._sleep(self._free - now)
        self._free = max(self._free or now, now) + rows / self._rate


def throttle(rate: float, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in smaller batches, at most ``rate`` rows per second."""
    limit = Throttle(rate)
    for batch in batches:
        step = limit.chunk(batch.num_rows or 1)
        for start in range(0, batch.num_rows, step):
            piece = batch.slice(start, step)
            limit.wait(piece.num_rows)
            yield piece
