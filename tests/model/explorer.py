"""Visits every state that a protocol can reach, on the shortest path."""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

S = TypeVar("S", bound="Hashable")


class Step(NamedTuple, Generic[S]):
    label: str
    state: S
    fault: bool = False


class System(Protocol[S]):
    def start(self) -> S: ...
    def steps(self, state: S) -> Iterable[Step[S]]: ...
    def broken(self, state: S) -> str | None:
        """Return the name of an invariant that does not hold here, or None."""

    def ended(self, state: S) -> bool: ...
    def canonical(self, state: S) -> S:
        """Return one state for all states that differ only by the names of interchangeable parts."""


class Found(NamedTuple):
    """The result: the broken invariant and the steps that lead to it, or None."""

    invariant: str | None
    trace: tuple[str, ...]
    states: int
    steps: int
    seconds: float


class TooManyStatesError(Exception):
    """There are more states than the caller wanted to visit."""


def explore(system: System[S], limit: int = 20_000_000) -> Found:
    """Check the invariants in every reachable state, and that an end can be reached from it without further faults."""
    begin = time.process_time()
    first = system.canonical(system.start())
    numbers: dict[S, int] = {first: 0}
    order = [first]
    parents = array("l", [-1])
    edges = _Edges()
    ends: list[int] = []
    number = 0
    while number < len(order):
        state = order[number]
        broken = system.broken(state)
        if broken is not None:
            return Found(broken, _trace(system, order, parents, number), len(order), edges.count, _since(begin))
        if system.ended(state):
            ends.append(number)
        for step in system.steps(state):
            after = system.canonical(step.state)
            found = numbers.setdefault(after, len(order))
            if found == len(order):
                order.append(after)
                parents.append(number)
            if not step.fault and found != number:
                edges.add(number, found)
        number += 1
        if number > limit:
            raise TooManyStatesError(str(limit))
    stuck = edges.first_that_reaches_none(ends, len(order))
    invariant, trace = (None, ()) if stuck is None else ("ends", _trace(system, order, parents, stuck))
    return Found(invariant, trace, len(order), edges.count, _since(begin))


class _Edges:
    """The steps that are not faults. They are followed backwards."""

    def __init__(self) -> None:
        self._sources = array("l")
        self._targets = array("l")

    @property
    def count(self) -> int:
        return len(self._sources)

    def add(self, source: int, target: int) -> None:
        self._sources.append(source)
        self._targets.append(target)

    def first_that_reaches_none(self, ends: list[int], states: int) -> int | None:
        """Return the first state from which none of ``ends`` can be reached."""
        before: list[list[int]] = [[] for _ in range(states)]
        for source, target in zip(self._sources, self._targets, strict=True):
            before[target].append(source)
        reaches = bytearray(states)
        waiting = list(ends)
        for end in ends:
            reaches[end] = 1
        while waiting:
            for source in before[waiting.pop()]:
                if not reaches[source]:
                    reaches[source] = 1
                    waiting.append(source)
        missing = reaches.find(0)
        return None if missing < 0 else missing


def _trace(system: System[S], order: list[S], parents: array[int], number: int) -> tuple[str, ...]:
    way = [number]
    while parents[way[-1]] >= 0:
        way.append(parents[way[-1]])
    way.reverse()
    labels = []
    here = system.start()
    for there in way[1:]:
        step = next(s for s in system.steps(here) if system.canonical(s.state) == order[there])
        labels.append(step.label)
        here = step.state
    return tuple(labels)


def _since(begin: float) -> float:
    return time.process_time() - begin
