"""How partitions move: assignment, giving up, parking, and being given up by the group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.model.broker import change, is_undecided, leave, with_process
from tests.model.explorer import Step
from tests.model.state import GONE, OPEN, SETTLED, State, Statuses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.model.protocol import Detaching


def steps(model: Detaching, state: State, i: int) -> Iterator[Step[State]]:
    process = state.processes[i]
    if not process.member:
        yield from _learn(state, i)
    elif not process.parked:
        for partition, who in enumerate(state.owners):
            if who == -1:
                yield from _assign(model, state, i, partition)
            elif who == i and not _runs_in(model, state, i, partition) and _is_wanted(state, i):
                yield _give_up(state, i, partition)
        if process.task and process.task.detached:
            parked = with_process(state, i, parked=True, views=((),) * len(process.views))
            yield Step(f"{i} parks", leave(parked, i))


def _learn(state: State, i: int) -> Iterator[Step[State]]:
    """A process that was given up drops its partitions and its task, and joins again. A detached task continues."""
    process = state.processes[i]
    if process.transaction and process.transaction.metadata:
        return  # first the transaction ends, one way or the other
    task = process.task if process.task and process.task.detached else ()
    after = with_process(state, i, member=True, views=((),) * len(process.views), task=task)
    yield Step(f"{i} learns that it was given up, and joins again", after)


def _assign(model: Detaching, state: State, i: int, partition: int) -> Iterator[Step[State]]:
    """The new owner reads the metadata. The read is stable: it waits for open transactions that contain metadata."""
    if is_undecided(model, state, partition):
        return
    views = change(state.processes[i].views, partition, _read(model, state.metadata[partition]))
    owners = change(state.owners, partition, i)
    yield Step(f"{i} is assigned {partition}", with_process(state, i, views=views)._replace(owners=owners))


def _read(model: Detaching, committed: Statuses) -> Statuses:
    """Return the statuses that a new owner derives from the committed metadata."""
    if "entries below the position" in model.without:
        return tuple(SETTLED if status >= GONE else status for status in committed)
    if "all owners know entries" in model.without:
        return tuple(SETTLED if status == SETTLED else OPEN for status in committed)
    return committed


def _give_up(state: State, i: int, partition: int) -> Step[State]:
    after = with_process(state, i, views=change(state.processes[i].views, partition, ()))
    return Step(f"{i} gives up {partition}", after._replace(owners=change(state.owners, partition, -1)))


def _runs_in(model: Detaching, state: State, i: int, partition: int) -> bool:
    task = state.processes[i].task
    if not task or task.detached:
        return False
    return model.places[task.request][0] == partition


def _is_wanted(state: State, i: int) -> bool:
    """Return whether another process has fewer partitions."""
    mine = state.owners.count(i)
    return any(
        p.alive and p.member and not p.parked and state.owners.count(j) < mine
        for j, p in enumerate(state.processes)
        if j != i
    )
