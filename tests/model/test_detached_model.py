"""The protocol of detached tasks in every state that it can reach, both complete and without each single part.

``MODEL=large`` explores larger forms as well, for many minutes.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.model.explorer import Step, TooManyStatesError, explore
from tests.model.forms import LARGE, USUAL
from tests.model.protocol import Detaching

if TYPE_CHECKING:
    from collections.abc import Iterator

FORMS = USUAL | LARGE if os.environ.get("MODEL") == "large" else USUAL
ONE = Detaching((1,))
FROZEN = Detaching((1, 1), kinds=frozenset({"freeze", "lost answer"}))
ONCE = FORMS["at most once in order"]
TWICE, LOST, ENDS, STARTS = "never two committed answers", "never lost", "ends", "never two starts"
ORDER = "order"


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", FORMS)
def test_the_protocol_keeps_its_guarantees(name: str) -> None:
    """Under each guarantee: an answer is committed once, nothing is lost or started twice, and everything ends."""
    found = explore(FORMS[name])
    assert found.invariant is None, "\n".join(found.trace)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("part", "form", "invariant"),
    [
        ("look", ONE, TWICE),
        ("mark before the look", ONE, TWICE),
        ("look in each try", ONE, TWICE),
        ("vacate before the read", ONE, TWICE),
        ("stable read", ONE, TWICE),
        ("write before a read", ONE, TWICE),
        ("entry stays until the read", ONE, TWICE),
        ("early mark counts", ONE, TWICE),
        ("all owners know entries", ONE, TWICE),
        ("mark stays until the commit", replace(ONE, deletes=True), TWICE),
        ("a mark for each holder", replace(ONE, releases=True), TWICE),
        ("position stays at a held offset", Detaching((2,), faults=1), LOST),
        ("detached when sent", FROZEN, ENDS),
        ("vacated when sent", FROZEN, ENDS),
        ("drop the own entry", Detaching((1, 1), faults=1), ENDS),
        ("commit before the start", replace(ONE, guarantee="at-most-once"), STARTS),
        ("no requeue", replace(ONE, guarantee="at-most-once"), STARTS),
        ("all owners know entries", replace(ONE, guarantee="at-most-once"), STARTS),
        ("entries below the position", ONCE, ORDER),
        ("order", ONCE, ORDER),
    ],
)
def test_each_part_of_the_protocol_is_needed(part: str, form: Detaching, invariant: str) -> None:
    """Without the part, the invariant that it protects is broken."""
    found = explore(replace(form, without=frozenset({part})))
    assert found.invariant == invariant, "\n".join(found.trace)


def test_an_overtaken_request_is_found() -> None:
    """The second request of a partition starts beside a detached first request."""
    form = Detaching((2,), faults=0, ordered=True, long=frozenset({0, 1}), without=frozenset({"order"}))
    assert explore(form).invariant == "order"


# -- the explorer itself


class Count(NamedTuple):
    """Counts up to a limit and ends there, unless it stops at ``stuck``. Two steps lead to each number."""

    limit: int
    stuck: int = -1
    forbidden: int = -1

    def start(self) -> int:
        return 0

    def steps(self, state: int) -> Iterator[Step[int]]:
        if state == self.stuck:
            yield Step("fault", self.limit, fault=True)
        elif state < self.limit:
            yield Step("one", state + 1)
            yield Step("two", min(state + 2, self.limit))

    def broken(self, state: int) -> str | None:
        return "forbidden" if state == self.forbidden else None

    def ended(self, state: int) -> bool:
        return state == self.limit

    def canonical(self, state: int) -> int:
        return state


def test_every_state_is_visited_once() -> None:
    found = explore(Count(10))
    assert (found.invariant, found.states, found.steps) == (None, 11, 20)


def test_a_broken_invariant_is_reported_with_the_shortest_trace() -> None:
    found = explore(Count(10, forbidden=5))
    assert (found.invariant, len(found.trace)) == ("forbidden", 3)


def test_a_state_that_only_a_fault_can_leave_is_reported_as_stuck() -> None:
    found = explore(Count(10, stuck=4))
    assert (found.invariant, found.trace) == ("ends", ("two", "two"))


def test_a_cycle_with_a_way_out_ends() -> None:
    class Round(Count):
        def steps(self, state: int) -> Iterator[Step[int]]:
            yield from super().steps(state)
            yield Step("back", 0)

    assert explore(Round(10)).invariant is None


def test_a_limit_stops_the_search() -> None:
    with pytest.raises(TooManyStatesError):
        explore(Count(100), limit=10)
