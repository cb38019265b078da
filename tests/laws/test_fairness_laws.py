"""A starved partition is helped: the others are paused soon, for a moment, and not again and again."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from worker.core.fetch_fairness import CHECK_SECONDS, PAUSE_SECONDS, STARVED_SECONDS, FetchFairness
from worker.core.model import Partition
from worker.core.owned_partition import OwnedPartition

TURN = 0.05


class Process:
    """Its turns, and a partition whose records come some time after the others were paused."""

    def __init__(self) -> None:
        self.fairness, self.now, self.paused_seconds = FetchFairness(), 1_000.0, 0.0
        self.owned = OwnedPartition(Partition("requests", 0))

    def turn(self, *, starved: bool, comes: bool) -> bool:
        """Whether the others are paused in this turn."""
        if self.fairness.is_due(self.now):
            self.fairness.check([self.owned] if starved else [], self.now)
        paused = self.fairness.pauses_others(self.now)
        if paused and comes:
            self.owned.reached_end(self.owned.next_offset + 1)
        self.now += TURN
        self.paused_seconds += TURN * paused
        return paused


def test_nobody_is_paused_for_nobody() -> None:
    process = Process()
    assert not any(process.turn(starved=False, comes=True) for _ in range(1_000))


def test_a_starved_partition_is_helped_soon_and_the_others_go_on_when_it_has_something() -> None:
    process = Process()
    waited = next(turn for turn in range(1_000) if process.turn(starved=True, comes=True)) * TURN
    assert STARVED_SECONDS[0] <= waited <= STARVED_SECONDS[0] + 2 * CHECK_SECONDS
    assert not process.turn(starved=False, comes=True)


def test_nobody_waits_long_for_what_does_not_come() -> None:
    process = Process()
    while not process.turn(starved=True, comes=False):
        pass
    turns = [process.turn(starved=True, comes=False) for _ in range(round(PAUSE_SECONDS / TURN) + 1)]
    assert not turns[-1]


@given(pattern=st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(1, 200)), max_size=60))
def test_whatever_happens_the_others_have_most_of_the_time(pattern: list[tuple[bool, bool, int]]) -> None:
    """Apart from the first few times, they are paused for a ninth of it at most."""
    process, begin = Process(), 1_000.0
    for starved, comes, turns in pattern:
        for _ in range(turns):
            process.turn(starved=starved, comes=comes)
    lasting = process.now - begin
    assert process.paused_seconds <= 4 * PAUSE_SECONDS + lasting / 9


def test_a_partition_that_always_starves_is_helped_every_now_and_then() -> None:
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
