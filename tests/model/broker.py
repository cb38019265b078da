"""What the broker does with what it is sent, and how states are changed."""

from __future__ import annotations

from itertools import pairwise, permutations
from typing import TYPE_CHECKING, Any

from tests.model.explorer import Step
from tests.model.state import (
    CLEARED,
    GONE,
    HELD,
    LOOKED,
    MARK_SETTLED,
    OPEN,
    SETTLED,
    VACATED,
    VACATING,
    Process,
    State,
    Statuses,
    Transaction,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.model.protocol import Detaching

COMMITTED_AS = (OPEN, SETTLED, VACATED, VACATED, VACATED, SETTLED)
assert (COMMITTED_AS[LOOKED], COMMITTED_AS[VACATING], COMMITTED_AS[CLEARED]) == (VACATED, VACATED, SETTLED)


# -- changes


def change(items: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    return (*items[:index], value, *items[index + 1 :])


def with_process(state: State, i: int, **changes: Any) -> State:
    return state._replace(processes=change(state.processes, i, state.processes[i]._replace(**changes)))


def with_status(state: State, i: int, place: tuple[int, int], status: int) -> State:
    """Process ``i`` remembers another status of a request."""
    partition, index = place
    views = state.processes[i].views
    return with_process(state, i, views=change(views, partition, change(views[partition], index, status)))


# -- what it is sent


def to_commit(model: Detaching, view: Statuses) -> Statuses:
    """What an owner commits of what it remembers."""
    committed = tuple([COMMITTED_AS[status] if status < GONE else status for status in view])
    if "entry stays until the read" in model.without:
        committed = tuple(OPEN if status == VACATED else status for status in committed)
    if "position stays at a held offset" in model.without and committed[-1] == SETTLED:
        committed = tuple(SETTLED if status >= GONE else status for status in committed)
    return committed


def commit(model: Detaching, state: State, i: int, partition: int) -> State:
    """A commit by a member, which the broker takes."""
    view = state.processes[i].views[partition]
    return state._replace(metadata=change(state.metadata, partition, to_commit(model, view)))


def answer(state: State, request: int) -> State:
    """An answer becomes visible."""
    return state._replace(answers=change(state.answers, request, min(2, state.answers[request] + 1)))


def end_transaction(model: Detaching, state: State, i: int) -> State:
    """The transaction of process ``i`` is committed."""
    transaction = state.processes[i].transaction
    assert transaction
    request, metadata, _ = transaction
    state = answer(with_process(state, i, transaction=()), request)
    if not metadata:
        return state._replace(marks=change(state.marks, request, MARK_SETTLED))
    return state._replace(metadata=change(state.metadata, model.places[request][0], metadata))


# -- what it is asked


def is_pending(state: State, request: int) -> bool:
    """Whether a mark of the request is in an open transaction: a stable read of it waits."""
    return any(p.transaction and p.transaction[0] == request and not p.transaction[1] for p in state.processes)


def is_undecided(model: Detaching, state: State, partition: int) -> bool:
    """Whether metadata of the partition is in an open transaction."""
    return any(
        p.transaction and p.transaction[1] and model.places[p.transaction[0]][0] == partition for p in state.processes
    )


# -- what becomes of processes


def leave(state: State, i: int) -> State:
    """Nobody owns what process ``i`` owned."""
    return state._replace(owners=tuple([-1 if o == i else o for o in state.owners]))


def after_death(model: Detaching, state: State, i: int) -> Iterator[Step[State]]:
    """What a process leaves behind ends some time, and another process is started in its place."""
    transaction = state.processes[i].transaction
    if not transaction:
        yield Step(f"{i} is restarted", with_process(state, i, alive=True, member=True))
        return
    yield Step(f"the transaction of the dead {i} times out", with_process(state, i, transaction=()))
    if transaction.may_commit:
        yield Step(f"the commit of the dead {i} arrives", end_transaction(model, state, i))


def die(state: State, i: int) -> State:
    """Process ``i`` is gone, and so is its name: what is started in its place has another one."""
    renamed = _renamed(state, {HELD + i: GONE})
    dead = Process(False, False, False, (), renamed.processes[i].transaction, ((),) * len(state.owners))
    return leave(renamed, i)._replace(processes=change(renamed.processes, i, dead))


# -- names


def canonical(state: State) -> State:
    """The processes are alike: of the states that differ by their numbers only, one."""
    keys = [p[:5] for p in state.processes]
    if all(a < b for a, b in pairwise(keys)):
        return state
    orders = permutations(range(len(keys)))
    return min([_reordered(state, order) for order in orders if all(keys[a] <= keys[b] for a, b in pairwise(order))])


def _reordered(state: State, order: tuple[int, ...]) -> State:
    new = {old: number for number, old in enumerate(order)}
    renamed = _renamed(state, {HELD + old: HELD + number for old, number in new.items()})
    return renamed._replace(
        owners=tuple([new.get(o, -1) for o in state.owners]),
        processes=tuple([renamed.processes[old] for old in order]),
    )


def _renamed(state: State, names: dict[int, int]) -> State:
    """The same state with other holders' names."""

    def rename(statuses: Statuses) -> Statuses:
        if not statuses or max(statuses) < HELD:
            return statuses
        return tuple([names.get(status, status) for status in statuses])

    def renamed(transaction: Transaction | tuple[()]) -> Transaction | tuple[()]:
        if not transaction or not transaction[1]:
            return transaction
        return transaction._replace(metadata=rename(transaction.metadata))

    return state._replace(
        metadata=tuple([rename(m) for m in state.metadata]),
        processes=tuple(
            [
                p._replace(views=tuple([rename(v) for v in p.views]), transaction=renamed(p.transaction))
                for p in state.processes
            ]
        ),
    )
