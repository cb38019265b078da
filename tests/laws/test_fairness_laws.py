"""When a partition starves, the others are paused soon, for a short time, and not too often."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from worker.core.fetch_fairness import CHECK_SECONDS, PAUSE_SECONDS, STARVED_SECONDS, FetchFairness
from worker.core.model import Partition
from worker.core.owned_partition import OwnedPartition

TURN = 0.05


class Process:
    """The turns of a process, and a partition that may get a record while the others are paused."""

    def __init__(self) -> None:
        self.fairness, self.now, self.paused_seconds = FetchFairness(), 1_000.0, 0.0
        self.owned = OwnedPartition(Partition("requests", 0))

    def turn(self, *, starved: bool, comes: bool) -> bool:
        """Make one turn. Return whether the other partitions are paused in it."""
        if self.fairness.is_due(self.now):
            self.fairness.check([self.owned] if starved else [], self.now)
        paused = self.fairness.pauses_others(self.now)
        if paused and comes:
            self.owned.reached_end(self.owned.next_offset + 1)
        self.now += TURN
        self.paused_seconds += TURN * paused
        return paused


def test_no_partition_is_paused_while_none_starves() -> None:
    process = Process()
    assert not any(process.turn(starved=False, comes=True) for _ in range(1_000))


def test_the_others_are_paused_soon_and_until_the_starved_partition_has_a_record() -> None:
    process = Process()
    waited = next(turn for turn in range(1_000) if process.turn(starved=True, comes=True)) * TURN
    assert STARVED_SECONDS[0] <= waited <= STARVED_SECONDS[0] + 2 * CHECK_SECONDS
    assert not process.turn(starved=False, comes=True)


def test_a_pause_ends_although_no_record_comes() -> None:
    process = Process()
    while not process.turn(starved=True, comes=False):
        pass
    turns = [process.turn(starved=True, comes=False) for _ in range(round(PAUSE_SECONDS / TURN) + 1)]
    assert not turns[-1]


@given(pattern=st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(1, 200)), max_size=60))
def test_the_others_are_paused_for_a_small_part_of_the_time(pattern: list[tuple[bool, bool, int]]) -> None:
    """After the first few pauses, that is at most a ninth of the time."""
    process, begin = Process(), 1_000.0
    for starved, comes, turns in pattern:
        for _ in range(turns):
            process.turn(starved=starved, comes=comes)
    lasting = process.now - begin
    assert process.paused_seconds <= 4 * PAUSE_SECONDS + lasting / 9


def test_the_others_are_paused_regularly_for_a_partition_that_always_starves() -> None:
    process = Process()
    begins = []
    before = False
    for _ in range(round(300 / TURN)):
        paused = process.turn(starved=True, comes=True)
        if paused and not before:
            begins.append(process.now)
        before = paused
    gaps = [after - before for before, after in itertools.pairwise(begins)]
    assert max(gaps) <= STARVED_SECONDS[1] + 3 * CHECK_SECONDS
    assert min(gaps[5:]) >= STARVED_SECONDS[1]


def test_after_a_quiet_time_the_first_limit_applies_again() -> None:
    process = Process()
    for _ in range(round(100 / TURN)):
        process.turn(starved=True, comes=True)
    for _ in range(round(60 / TURN)):
        process.turn(starved=False, comes=True)
    waited = next(turn for turn in range(1_000) if process.turn(starved=True, comes=True)) * TURN
    assert waited <= STARVED_SECONDS[0] + 2 * CHECK_SECONDS
