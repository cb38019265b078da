"""Laws of the ledger of one partition under one lease: what is settled, how far a commit may go, and its size."""

from __future__ import annotations

import copy
import gc
import itertools
from types import FunctionType, MethodType, ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from worker.core.commit_metadata import encode
from worker.core.model import Partition, Record
from worker.core.offsets import OffsetError, OffsetLedger
from worker.core.owned_partition import OwnedPartition

picks = st.integers(min_value=0, max_value=10_000)  # an index, modulo the number of items
gaps = st.integers(min_value=1, max_value=4)


class OffsetLaws(RuleBasedStateMachine):
    """The ledger, against a model that keeps all admitted offsets in order and all settled offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = OffsetLedger()
        self.admitted: list[int] = []
        self.settled: set[int] = set()
        self.last_watermark: int | None = None
        self.end = 0
        self.passed = 0  # the watermark when no offset was incomplete last

    @property
    def incomplete(self) -> list[int]:
        return [offset for offset in self.admitted if offset not in self.settled]

    @rule(gap=gaps)
    def admit(self, gap: int) -> None:
        """Gaps (compaction, transaction markers) are harmless: the next offset is any higher one."""
        offset = max(self.admitted[-1] + 1 if self.admitted else 0, self.end) + gap - 1
        self.ledger.admit(offset)
        self.admitted.append(offset)

    @precondition(lambda self: self.admitted)
    @rule(back=st.integers(min_value=0, max_value=5))
    def admit_out_of_order(self, back: int) -> None:
        """An offset that is not higher than the last is refused and changes nothing."""
        with pytest.raises(OffsetError):
            self.ledger.admit(self.admitted[-1] - back)

    @rule(markers=st.integers(min_value=-2, max_value=4))
    def reach_the_end(self, markers: int) -> None:
        """Reach the end of the partition, which may lie after markers, or may be out of date."""
        end = max(0, self.admitted[-1] + 1 + markers if self.admitted else markers)
        before = self.ledger.watermark
        moved = self.ledger.reached_end(end)
        assert moved == (self.ledger.watermark != before)
        self.end = max(self.end, end)
        self._pass_what_is_settled()

    def _pass_what_is_settled(self) -> None:
        if not self.incomplete:
            self.passed = max(self.end, self.admitted[-1] + 1 if self.admitted else 0)

    @precondition(lambda self: self.incomplete)
    @rule(pick=st.just(0) | picks)
    def settle(self, pick: int) -> None:
        """``settle`` returns whether the watermark moved. It moves exactly if the lowest incomplete one is settled."""
        self._settle(self.incomplete[pick % len(self.incomplete)])

    @precondition(lambda self: self.incomplete)
    @rule(chosen=st.lists(picks, max_size=6))
    def settle_several(self, chosen: list[int]) -> None:
        """Settle several offsets in one call and in any order. The effect is the same as one after another."""
        self._settle(*{self.incomplete[pick % len(self.incomplete)]: None for pick in chosen})

    def _settle(self, *offsets: int) -> None:
        moves = self.incomplete[0] in offsets
        assert self.ledger.settle(*offsets) is moves
        self.settled.update(offsets)
        self._pass_what_is_settled()

    @rule(offset=st.integers(min_value=-1, max_value=40))
    def settle_what_is_not_incomplete(self, offset: int) -> None:
        """An offset that was never admitted, or is settled already, is refused and changes nothing."""
        if offset not in self.incomplete:
            with pytest.raises(OffsetError):
                self.ledger.settle(offset)

    @rule()
    def read(self) -> None:
        """A commit reads the ledger, which drops what no later commit needs."""
        self.ledger.completed(1_000)

    @invariant()
    def the_watermark_never_passes_an_incomplete_offset(self) -> None:
        """The watermark has exactly this value.

        If no offset is incomplete: the offset after the last admitted one, or the end that was reached.
        Otherwise, if an offset below the lowest incomplete one was settled since then: that lowest incomplete offset.
        Otherwise: its value when no offset was incomplete last.
        """
        incomplete = self.incomplete
        moved = any(self.passed <= offset < incomplete[0] for offset in self.settled) if incomplete else False
        assert (self.ledger.watermark or 0) == (incomplete[0] if moved else self.passed)
        assert (self.ledger.watermark or 0) <= min(incomplete, default=self.passed)
        assert self.ledger.lowest == (incomplete[0] if incomplete else None)
        assert self.ledger.last == (self.admitted[-1] if self.admitted else -1)

    @invariant()
    def the_watermark_passes_every_settled_offset_below_the_lowest_incomplete_one(self) -> None:
        below = [offset for offset in self.settled if not self.incomplete or offset < self.incomplete[0]]
        assert (self.ledger.watermark or 0) >= max([0, *(offset + 1 for offset in below)])

    @invariant()
    def what_is_settled_out_of_order_is_recorded(self) -> None:
        """All ranges are recorded, or the lowest ones, in ascending order, with an incomplete offset between any two.

        Each contains a settled offset. A range without a settled offset would only make the commit metadata longer.
        """
        ledger = copy.deepcopy(self.ledger)  # a copy, because reading changes the ledger
        above = [offset for offset in self.admitted if self.incomplete and offset > self.incomplete[0]]
        ranges = ledger.completed(1_000)
        assert {o for o in above if any(a <= o < b for a, b in ranges)} == {o for o in above if o in self.settled}
        assert all(before[1] < after[0] for before, after in itertools.pairwise(ranges))
        assert not any(first <= offset < stop for first, stop in ranges for offset in self.incomplete)
        assert all(any(first <= offset < stop for offset in self.settled) for first, stop in ranges)
        assert ledger.completed(2) == ranges[:2]

    @invariant()
    def the_watermark_never_goes_back(self) -> None:
        watermark = self.ledger.watermark
        if self.last_watermark is not None:
            assert watermark is not None
            assert watermark >= self.last_watermark
        self.last_watermark = watermark

    @invariant()
    def every_admitted_offset_is_settled_or_counted_as_incomplete(self) -> None:
        assert [offset for offset in self.admitted if self.ledger.is_incomplete(offset)] == self.incomplete
        assert list(self.ledger._incomplete) == self.incomplete

    @invariant()
    def only_incomplete_offsets_and_the_holes_between_them_are_kept(self) -> None:
        """This applies after a commit has read the ledger."""
        ledger = copy.deepcopy(self.ledger)
        ledger.completed(1_000)
        assert len(ledger._incomplete) == len(self.incomplete)
        assert len(ledger._holes) <= len(self.incomplete)


TestOffsetLaws = OffsetLaws.TestCase


@given(st.data())
def test_an_offset_that_is_unsettled_is_incomplete_again(data: st.DataObject) -> None:
    """An aborted transaction unsettles only its offsets, and the ledger then continues as before."""
    ledger = OffsetLedger()
    admitted = sorted(data.draw(st.sets(st.integers(0, 40), min_size=1, max_size=20)))
    for offset in admitted:
        ledger.admit(offset)
    settled = data.draw(st.sets(st.sampled_from(admitted), min_size=1))
    ledger.settle(*sorted(settled))
    taken_back = data.draw(st.sets(st.sampled_from(sorted(settled)), min_size=1))
    ledger.unsettle(*taken_back)
    incomplete = [offset for offset in admitted if offset not in settled or offset in taken_back]
    assert list(ledger.incomplete()) == incomplete
    assert ledger.watermark == ledger.lowest == incomplete[0]
    ranges = ledger.completed(1_000)
    above = [offset for offset in admitted if offset > incomplete[0]]
    assert [o for o in above if not any(a <= o < b for a, b in ranges)] == incomplete[1:]
    ledger.admit(admitted[-1] + 1)
    ledger.settle(*incomplete, admitted[-1] + 1)
    assert ledger.watermark == admitted[-1] + 2
    assert not ledger.completed(1_000)


# ---------------------------------------------------------------- memory


MANY = 100_000


def count_objects(root: object) -> int:
    """Return the number of objects that this object keeps alive."""
    seen, todo = {id(root)}, [root]
    while todo:
        for one in gc.get_referents(todo.pop()):
            if id(one) not in seen and not isinstance(one, type | ModuleType | FunctionType | MethodType):
                seen.add(id(one))
                todo.append(one)
    return len(seen)


@pytest.mark.parametrize("step", [1, 3])
def test_offsets_settled_above_one_incomplete_offset_need_no_memory(step: int) -> None:
    """This applies to any number of offsets, with any gaps between them."""
    ledger = OffsetLedger()
    ledger.admit(0)
    for number in range(1, MANY + 1):
        ledger.admit(number * step)
        ledger.settle(number * step)
        if number % 1_000 == 0:
            assert ledger.completed(1_000) == ((1, number * step + 1),)
            assert count_objects(ledger) <= 20
    assert ledger.watermark is None
    assert ledger.settle(0)
    assert ledger.watermark == MANY * step + 1


def test_gaps_in_a_partition_that_is_never_idle_need_no_memory() -> None:
    """A transaction marker follows each record. Records are answered in order, and the next one is already admitted."""
    ledger = OffsetLedger()
    for number in range(10_000):
        ledger.admit(2 * number)
        if number:
            ledger.settle(2 * number - 2)
        if number % 100 == 0:
            assert ledger.completed(1_000) == ()
            assert count_objects(ledger) <= 20


@pytest.mark.parametrize("ordering", ["key", "unordered"])
def test_answers_above_one_waiting_task_need_no_memory(ordering: str) -> None:
    """A task waits for hours for its next attempt. Later offsets that are settled are not kept or recorded singly."""
    owned = OwnedPartition(Partition("t", 0), start_offset=0, ordering=ordering)
    sizes = set()
    for offset in range(20_001):
        owned.admit(Record(owned.partition, offset, b"%d" % offset, b"x"))
        (task,) = owned.take(1, 0.0, below=float("inf"))
        if offset == 0:
            task.attempt = 1
            owned.fail(task)
            owned.requeue(task, 3_600.0)
        else:
            owned.finish(task)
            owned.settle(offset)
        if offset % 100 == 0:
            owned.recorded(len(encode(owned.metadata(clean=False), owned.position)))
        if offset % 2_000 == 1_000:
            sizes.add((count_objects(owned), len(encode(owned.metadata(clean=False), owned.position)) // 10))
    assert owned.position == 0
    assert len(sizes) == 1
