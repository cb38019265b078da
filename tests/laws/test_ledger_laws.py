"""Laws of the ledger of one partition under one lease."""

from __future__ import annotations

import itertools

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
        self.end = 0
        self.passed = 0  # the highest end that was reached with everything settled

    @property
    def open(self) -> list[int]:
        return [offset for offset in self.admitted if offset not in self.settled]

    @rule(gap=gaps)
    def admit(self, gap: int) -> None:
        """Gaps (compaction, transaction markers) are harmless: the next offset is any higher one."""
        offset = max(self.admitted[-1] + 1 if self.admitted else 0, self.end) + gap - 1
        self.ledger.admit(offset)
        self.admitted.append(offset)

    @precondition(lambda self: self.admitted)
    @rule(back=st.integers(min_value=0, max_value=5))
    def admit_out_of_turn(self, back: int) -> None:
        """An offset that is not higher than the last is refused and changes nothing."""
        with pytest.raises(LedgerError):
            self.ledger.admit(self.admitted[-1] - back)

    @rule(markers=st.integers(min_value=-2, max_value=4))
    def reach_the_end(self, markers: int) -> None:
        """Of the partition, which lies behind markers, or where an earlier look had found it."""
        end = max(0, self.admitted[-1] + 1 + markers if self.admitted else markers)
        before = self.ledger.watermark
        moved = self.ledger.end(end)
        assert moved == (self.ledger.watermark != before)
        self.end = max(self.end, end)
        self._pass_end()

    def _pass_end(self) -> None:
        if not self.open and (not self.admitted or self.end > self.admitted[-1]):
            self.passed = max(self.passed, self.end)

    @precondition(lambda self: self.open)
    @rule(pick=picks)
    def settle(self, pick: int) -> None:
        """Settling says whether the watermark moved, and it moves exactly when the lowest open one is settled."""
        offset = self.open[pick % len(self.open)]
        moves = offset == self.open[0]
        assert self.ledger.settle(offset) is moves
        self.settled.add(offset)
        self._pass_end()

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
        assert (self.ledger.watermark or 0) == max([self.passed, *(offset + 1 for offset in prefix)])
        assert self.ledger.lowest == (self.open[0] if self.open else None)

    @invariant()
    def what_is_done_out_of_turn_is_told(self) -> None:
        """All of it, or the lowest ranges, in order, with something open between any two."""
        above = [offset for offset in self.admitted if self.open and offset > self.open[0]]
        done = self.ledger.done(1_000)
        assert {o for o in above if any(a <= o < b for a, b in done)} == {o for o in above if o in self.settled}
        assert all(before[1] < after[0] for before, after in itertools.pairwise(done))
        assert not any(first <= offset < stop for first, stop in done for offset in self.open)
        assert self.ledger.done(2) == done[:2]

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
