"""The requests that earlier owners of a partition answered above their committed offset."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from worker.core.commit_metadata import Range


class FormerRanges:
    """Ascending ranges of offsets from the commit metadata. Ranges that were passed are dropped."""

    __slots__ = ("ranges",)

    def __init__(self, ranges: Iterable[Range]) -> None:
        self.ranges = deque(ranges)

    def take(self, offset: int) -> bool:
        """Return whether this offset was answered. Call it with rising offsets only."""
        ranges = self.ranges
        while ranges and ranges[0][1] <= offset:
            ranges.popleft()
        return bool(ranges) and ranges[0][0] <= offset

    def add(self, offset: int) -> None:
        """Add an answered offset that is in none of the ranges."""
        self.ranges = deque(_with(self.ranges, offset))

    def above(self, offset: int) -> Iterator[Range]:
        """Yield the answered ranges from this offset on."""
        for first, stop in self.ranges:
            if stop > offset:
                yield max(first, offset), stop


def _with(ranges: Iterable[Range], offset: int) -> Iterator[Range]:
    """Yield ascending ranges together with one more offset that is in none of them."""
    first, stop = offset, offset + 1
    for start, end in ranges:
        if end < first:
            yield start, end
        elif start > stop:
            yield first, stop
            first, stop = start, end
        else:
            first, stop = min(first, start), max(stop, end)
    yield first, stop
