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

    __slots__ = ("_ahead", "_last", "_open", "watermark")

    def __init__(self) -> None:
        self._open: deque[int] = deque()  # admitted and below no settled prefix, in order
        self._ahead: set[int] = set()  # settled, with something unsettled below
        self._last = -1
        self.watermark: int | None = None

    def admit(self, offset: int) -> None:
        """Take an offset in. Offsets of a lease only rise; anything else raises LedgerError."""
        if offset <= self._last:
            message = f"offset {offset} came after offset {self._last}"
            raise LedgerError(message)
        self._last = offset
        self._open.append(offset)

    def settle(self, offset: int) -> bool:
        """Mark an admitted offset as answered; True if the watermark moved. Any other offset raises LedgerError."""
        head = self._open[0] if self._open else None
        if head is None or offset < head or offset > self._last or offset in self._ahead:
            message = f"offset {offset} is not open (first open {head}, last admitted {self._last})"
            raise LedgerError(message)
        if offset != head:
            self._ahead.add(offset)
            return False
        self._open.popleft()
        self.watermark = offset + 1
        while self._ahead and self._open and self._open[0] in self._ahead:
            settled = self._open.popleft()
            self._ahead.discard(settled)
            self.watermark = settled + 1
        return True

    @property
    def unsettled(self) -> int:
        """How many admitted offsets have no answer yet."""
        return len(self._open) - len(self._ahead)
