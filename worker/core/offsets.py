"""Which offsets of one partition are settled, and which offset may be committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.core.commit_metadata import Range


class OffsetError(Exception):
    """An offset was admitted or settled out of order. Continuing could commit past unanswered requests."""


class OffsetLedger:
    """The admitted offsets that have no confirmed answer yet. Memory grows only with their number.

    Only admitted offsets count, so gaps (from compaction or transaction markers) need no special case. ``watermark`` is
    the offset to commit: every admitted offset below it is settled. It goes back only for an aborted transaction.
    """

    __slots__ = ("_end", "_holes", "_incomplete", "_out_of_order", "last", "lowest", "watermark")

    def __init__(self) -> None:
        self._incomplete: dict[int, None] = {}  # ascending, because offsets are admitted in this order
        self._holes: dict[int, int] = {}  # missing offsets between two admitted ones: first -> stop
        self._out_of_order = False  # an offset above the lowest incomplete one may be settled
        self._end = -1  # there are only markers between the last admitted offset and this one
        self.last = -1  # the last admitted offset
        self.lowest: int | None = None  # the lowest admitted offset without an answer
        self.watermark: int | None = None

    def admit(self, offset: int) -> None:
        """Admit an offset. The offsets of a lease must rise; raise OffsetError otherwise."""
        if offset <= self.last:
            message = f"offset {offset} came after offset {self.last}: the topic may have been deleted and recreated"
            raise OffsetError(message)
        if offset != self.last + 1 and self._incomplete:
            self._holes[self.last + 1] = offset
        if self.lowest is None:
            self.lowest = offset
        self.last = offset
        self._incomplete[offset] = None

    def has_seen(self, offset: int) -> bool:
        """Return whether the last admitted record, or one without an answer, has this offset."""
        return offset == self.last or offset in self._incomplete

    def settle(self, *offsets: int) -> bool:
        """Mark admitted offsets as answered. Return whether the watermark moved.

        Raise OffsetError for an offset that is not incomplete.
        """
        incomplete, lowest = self._incomplete, self.lowest
        for offset in offsets:
            if offset not in incomplete:
                message = f"offset {offset} is not incomplete (last admitted {self.last})"
                raise OffsetError(message)
            del incomplete[offset]
            if offset != lowest:
                self._out_of_order = True
        if lowest is None or lowest in incomplete:
            return False
        self.lowest = next(iter(incomplete), None)
        if self.lowest is None:
            self._out_of_order = False
            self._holes.clear()
            self.watermark = self.last + 1
            self._skip_markers()
        else:
            self.watermark = self.lowest
            self._forget_holes_below(self.lowest)
        return True

    def unsettle(self, *offsets: int) -> None:
        """Mark settled offsets as incomplete again: the transaction with their answers was aborted."""
        if offsets:
            self._incomplete = dict.fromkeys(sorted((*self._incomplete, *offsets)))
            self.lowest = self.watermark = next(iter(self._incomplete))
            self._out_of_order = True

    def _forget_holes_below(self, offset: int) -> None:
        while self._holes and (first := next(iter(self._holes))) < offset:
            del self._holes[first]

    def reached_end(self, offset: int) -> bool:
        """Record that everything below ``offset`` was admitted. Return whether the watermark moved."""
        self._end = max(self._end, offset)
        return self._skip_markers()

    def _skip_markers(self) -> bool:
        if self._incomplete or self._end <= self.last or self._end <= (self.watermark or 0):
            return False
        self.watermark = self._end
        return True

    def incomplete(self) -> Iterator[int]:
        """Yield the incomplete offsets in ascending order."""
        return iter(self._incomplete)

    def is_incomplete(self, offset: int) -> bool:
        """Return whether this offset was admitted and has no answer."""
        return offset in self._incomplete

    def completed(self, limit: int) -> tuple[Range, ...]:
        """Return the first ``limit`` ascending ranges of answered offsets above the lowest incomplete one.

        A range may include offsets that do not exist.
        """
        if not self._out_of_order or self.lowest is None:
            return ()
        ranges: list[Range] = []
        holes = {}
        before = self.lowest
        for offset in self._incomplete:
            if offset > before + 1:
                if self._holes.get(before + 1) == offset:
                    holes[before + 1] = offset
                else:
                    ranges.append((before + 1, offset))
            before = offset
        if self.last > before:
            ranges.append((before + 1, self.last + 1))
        self._holes = holes  # any other hole lies inside a range and is not needed again
        self._out_of_order = bool(ranges)
        return tuple(ranges[:limit])
