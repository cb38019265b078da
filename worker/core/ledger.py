"""Which offsets of one partition, under one lease, are settled, and how far a commit may go."""

from __future__ import annotations

from collections import deque


class LedgerError(Exception):
    """An offset came out of turn: continuing could commit past unanswered work."""


class Ledger:
    """Admitted offsets in order and the settled ones among them.

    Only offsets that were admitted count, so gaps (compaction, transaction markers) need no special case.
    The watermark is the offset to commit: everything admitted below it is settled. It never goes back.
    """

    __slots__ = ("_last", "_open", "_unsettled", "watermark")

    def __init__(self) -> None:
        self._open: deque[int] = deque()  # admitted and below no settled prefix, in order
        self._unsettled: set[int] = set()  # those of them without an answer
        self._last = -1
        self.watermark: int | None = None

    def admit(self, offset: int) -> None:
        """Take an offset in. Offsets of a lease only rise; anything else raises LedgerError."""
        if offset <= self._last:
            message = f"offset {offset} came after offset {self._last}"
            raise LedgerError(message)
        self._last = offset
        self._open.append(offset)
        self._unsettled.add(offset)

    def settle(self, offset: int) -> bool:
        """Mark an admitted offset as answered; True if the watermark moved. Any other offset raises LedgerError."""
        unsettled, waiting = self._unsettled, self._open
        if offset not in unsettled:
            message = f"offset {offset} is not open (last admitted {self._last})"
            raise LedgerError(message)
        unsettled.remove(offset)
        if offset != waiting[0]:
            return False
        while waiting and waiting[0] not in unsettled:
            self.watermark = waiting.popleft() + 1
        return True

    @property
    def unsettled(self) -> int:
        """How many admitted offsets have no answer yet."""
        return len(self._unsettled)
