"""Which offsets of one partition, under one lease, are settled, and how far a commit may go."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worker.core.notes import Range


class LedgerError(Exception):
    """An offset came out of turn: continuing could commit past unanswered work."""


class Ledger:
    """Admitted offsets in order and the settled ones among them.

    Only offsets that were admitted count, so gaps (compaction, transaction markers) need no special case.
    The watermark is the offset to commit: everything admitted below it is settled. It never goes back.
    """

    __slots__ = ("_end", "_open", "_unsettled", "last", "watermark")

    def __init__(self) -> None:
        self._open: deque[int] = deque()  # admitted and below no settled prefix, in order
        self._unsettled: set[int] = set()  # those of them without an answer
        self._end = -1  # nothing but markers lies between the last admitted offset and this one
        self.last = -1  # the last admitted offset
        self.watermark: int | None = None

    def admit(self, offset: int) -> None:
        """Take an offset in. Offsets of a lease only rise; anything else raises LedgerError."""
        if offset <= self.last:
            message = f"offset {offset} came after offset {self.last}"
            raise LedgerError(message)
        self.last = offset
        self._open.append(offset)
        self._unsettled.add(offset)

    def settle(self, offset: int) -> bool:
        """Mark an admitted offset as answered; True if the watermark moved. Any other offset raises LedgerError."""
        unsettled, waiting = self._unsettled, self._open
        if offset not in unsettled:
            message = f"offset {offset} is not open (last admitted {self.last})"
            raise LedgerError(message)
        unsettled.remove(offset)
        if offset != waiting[0]:
            return False
        waiting.popleft()
        while waiting and waiting[0] not in unsettled:
            offset = waiting.popleft()
        self.watermark = offset + 1
        if not waiting:
            self._skip_markers()
        return True

    def end(self, offset: int) -> bool:
        """Whatever is below ``offset`` has been admitted; True if that moved the watermark."""
        self._end = max(self._end, offset)
        return self._skip_markers()

    def _skip_markers(self) -> bool:
        if self._open or self._end <= self.last or self._end <= (self.watermark or 0):
            return False
        self.watermark = self._end
        return True

    @property
    def unsettled(self) -> int:
        """How many admitted offsets have no answer yet."""
        return len(self._unsettled)

    @property
    def lowest(self) -> int | None:
        """The lowest admitted offset without an answer."""
        return self._open[0] if self._open else None

    def done(self, limit: int) -> tuple[Range, ...]:
        """The answered offsets above the watermark, as ranges; the lowest ``limit`` ranges at most.

        A range may cover offsets that do not exist.
        """
        ranges: list[Range] = []
        if len(self._open) == len(self._unsettled):
            return ()
        first = -1
        last = -1
        for offset in self._open:
            if offset not in self._unsettled:
                first, last = (offset if first < 0 else first), offset
            elif first >= 0:
                ranges.append((first, last + 1))
                first = -1
                if len(ranges) == limit:
                    return tuple(ranges)
        if first >= 0:
            ranges.append((first, last + 1))
        return tuple(ranges)
