"""Lanes that have plenty stand back for one that waits behind them: soon, for a moment, and not again and again."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from worker.core.lane import Lane
from worker.core.model import Partition
from worker.core.relief import LOOK_SECONDS, PATIENCE, RELIEF_SECONDS, Relief

TICK = 0.05


class Days:
    """A process that turns, and a lane whose records come at some time after the others have stood back."""

    def __init__(self) -> None:
        self.relief, self.now, self.reliefs, self.stood_back = Relief(), 1_000.0, 0, 0.0
        self.lane = Lane(Partition("requests", 0), 1)

    def turn(self, *, hungry: bool, comes: bool) -> bool:
        if self.relief.due(self.now):
            self.relief.look([self.lane] if hungry else [], self.now)
        before = self.relief.under_way(self.now)
        if before and comes:
            self.lane.end(self.lane.seen + 1)
        self.now += TICK
        self.stood_back += TICK * before
        return before


def test_nobody_stands_back_for_nobody() -> None:
    days = Days()
    assert not any(days.turn(hungry=False, comes=True) for _ in range(1_000))


def test_a_hungry_lane_is_helped_soon_and_the_others_go_on_when_it_has_something() -> None:
    days = Days()
    waited = next(turn for turn in range(1_000) if days.turn(hungry=True, comes=True)) * TICK
    assert PATIENCE[0] <= waited <= PATIENCE[0] + 2 * LOOK_SECONDS
    assert not days.turn(hungry=False, comes=True)


def test_nobody_waits_long_for_what_does_not_come() -> None:
    days = Days()
    while not days.turn(hungry=True, comes=False):
        pass
    turns = [days.turn(hungry=True, comes=False) for _ in range(round(RELIEF_SECONDS / TICK) + 1)]
    assert not turns[-1]


@given(pattern=st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(1, 200)), max_size=60))
def test_whatever_happens_the_others_have_most_of_the_time(pattern: list[tuple[bool, bool, int]]) -> None:
    """But for the first few times, a ninth of it at most is stood back."""
    days, begin = Days(), 1_000.0
    for hungry, comes, turns in pattern:
        for _ in range(turns):
            days.turn(hungry=hungry, comes=comes)
    lasting = days.now - begin
    assert days.stood_back <= 4 * RELIEF_SECONDS + lasting / 9


def test_a_lane_that_starves_for_ever_is_helped_every_now_and_then() -> None:
    days = Days()
    begins = []
    was = False
    for _ in range(round(300 / TICK)):
        now = days.turn(hungry=True, comes=True)
        if now and not was:
            begins.append(days.now)
        was = now
    gaps = [after - before for before, after in itertools.pairwise(begins)]
    assert max(gaps) <= PATIENCE[1] + 3 * LOOK_SECONDS
    assert min(gaps[5:]) >= PATIENCE[1]


def test_after_a_calm_time_it_is_the_first_time_again() -> None:
    days = Days()
    for _ in range(round(100 / TICK)):
        days.turn(hungry=True, comes=True)
    for _ in range(round(60 / TICK)):
        days.turn(hungry=False, comes=True)
    waited = next(turn for turn in range(1_000) if days.turn(hungry=True, comes=True)) * TICK
    assert waited <= PATIENCE[0] + 2 * LOOK_SECONDS
