"""The protocol of detached tasks, as steps of processes, of the broker and of faults.

Each step is at most one exchange with the broker. Between any two steps a process may pause for any time, because the
explorer makes the steps in every order. So a freeze needs no step. Only the broker's reaction to a freeze is a step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.model import broker, faults, group, holder, invariants, owner
from tests.model.state import NO_MARK, OPEN, Process, State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.model.explorer import Step

FAULTS = frozenset({"crash", "freeze", "lost answer", "stale read", "wrong look", "transaction time-out"})


@dataclass(frozen=True)
class Detaching:
    """One form of the protocol, and the faults that may happen.

    ``partitions``: how many requests each has. ``long``: the requests that may be detached; the others take no time.
    ``split``: a task that is not detached sends its answer and commits it in two steps. ``deletes``: marks that were
    seen are deleted. ``releases``: a holder may leave a task to the owner. ``without``: the parts that are left out.
    """

    partitions: tuple[int, ...] = (2, 1)
    processes: int = 2
    faults: int = 2
    kinds: frozenset[str] = FAULTS
    guarantee: str = "exactly-once"
    ordered: bool = False
    long: frozenset[int] = frozenset({0})
    split: bool = False
    deletes: bool = False
    releases: bool = False
    without: frozenset[str] = frozenset()
    places: tuple[tuple[int, int], ...] = field(init=False)  # partition and index, by request

    def __post_init__(self) -> None:
        places = [(p, index) for p, count in enumerate(self.partitions) for index in range(count)]
        object.__setattr__(self, "places", tuple(places))

    def request(self, partition: int, index: int) -> int:
        return sum(self.partitions[:partition]) + index

    def writes_first(self, state: State) -> bool:
        """Return whether owner and holder write before they read. If no stale read can follow, both are one step."""
        return "write before a read" not in self.without and "stale read" in self.kinds and state.faults > 0

    def start(self) -> State:
        requests = len(self.places)
        nothing = ((),) * len(self.partitions)
        process = Process(alive=True, member=True, parked=False, task=(), transaction=(), views=nothing)
        return State(
            metadata=tuple((OPEN,) * count for count in self.partitions),
            owners=(-1,) * len(self.partitions),
            marks=(NO_MARK,) * requests,
            answers=(0,) * requests,
            starts=(0,) * requests,
            processes=(process,) * self.processes,
            faults=self.faults,
        )

    def steps(self, state: State) -> Iterator[Step[State]]:
        for i, process in enumerate(state.processes):
            if not process.alive:
                yield from broker.after_death(self, state, i)
                continue
            yield from group.steps(self, state, i)
            yield from owner.steps(self, state, i)
            yield from holder.steps(self, state, i)
            if state.faults:
                yield from faults.steps(self, state, i)

    def broken(self, state: State) -> str | None:
        return invariants.broken(self, state)

    def ended(self, state: State) -> bool:
        return invariants.ended(state)

    def canonical(self, state: State) -> State:
        return broker.canonical(state)
