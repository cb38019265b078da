"""Laws of the ledger of one partition under one lease."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from worker.core.ledger import Ledger, LedgerError

picks = st.integers(min_value=0, max_value=10_000)  # which of those there are, modulo their number
gaps = st.integers(min_value=1, max_value=4)


class LedgerLaws(RuleBasedStateMachine):
    """Against a model that keeps everything: the admitted offsets in order, and the settled ones."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.admitted: list[int] = []
        self.settled: set[int] = set()
        self.last_watermark: int | None = None

    @property
    def open(self) -> list[int]:
        return [offset for offset in self.admitted if offset not in self.settled]

    @rule(gap=gaps)
    def admit(self, gap: int) -> None:
        """Gaps (compaction, transaction markers) are harmless: the next offset is any higher one."""
        offset = self.admitted[-1] + gap if self.admitted else gap - 1
        self.ledger.admit(offset)
        self.admitted.append(offset)

    @precondition(lambda self: self.admitted)
    @rule(back=st.integers(min_value=0, max_value=5))
    def admit_out_of_turn(self, back: int) -> None:
        """An offset that is not higher than the last is refused and changes nothing."""
        with pytest.raises(LedgerError):
            self.ledger.admit(self.admitted[-1] - back)

    @precondition(lambda self: self.open)
    @rule(pick=picks)
    def settle(self, pick: int) -> None:
        """Settling says whether the watermark moved, and it moves exactly when the lowest open one is settled."""
        offset = self.open[pick % len(self.open)]
        moves = offset == self.open[0]
        assert self.ledger.settle(offset) is moves
        self.settled.add(offset)

    @rule(offset=st.integers(min_value=-1, max_value=40))
    def settle_what_is_not_open(self, offset: int) -> None:
        """What was never admitted, or is settled already, is refused and changes nothing."""
        if offset not in self.open:
            with pytest.raises(LedgerError):
                self.ledger.settle(offset)

    @invariant()
    def the_watermark_never_passes_an_unsettled_offset(self) -> None:
        """It stands right behind the highest offset below which all admitted ones are settled."""
        prefix = [offset for offset in self.settled if not self.open or offset < self.open[0]]
        assert self.ledger.watermark == (max(prefix) + 1 if prefix else None)

    @invariant()
    def the_watermark_never_goes_back(self) -> None:
        watermark = self.ledger.watermark
        if self.last_watermark is not None:
            assert watermark is not None
            assert watermark >= self.last_watermark
        self.last_watermark = watermark

    @invariant()
    def every_admitted_offset_is_settled_or_counted_as_open(self) -> None:
        assert self.ledger.unsettled == len(self.open)


TestLedgerLaws = LedgerLaws.TestCase
