"""How the broker handles commits, answers and reads, and how states are changed."""

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
    """Return the state in which process ``i`` remembers this status of a request."""
    partition, index = place
    views = state.processes[i].views
    return with_process(state, i, views=change(views, partition, change(views[partition], index, status)))


# -- commits and answers


def to_commit(model: Detaching, view: Statuses) -> Statuses:
    """Return the statuses that an owner commits, given those that it remembers."""
    committed = tuple([COMMITTED_AS[status] if status < GONE else status for status in view])
    if "entry stays until the read" in model.without:
        committed = tuple(OPEN if status == VACATED else status for status in committed)
    if "position stays at a held offset" in model.without and committed[-1] == SETTLED:
        committed = tuple(SETTLED if status >= GONE else status for status in committed)
    return committed


def commit(model: Detaching, state: State, i: int, partition: int) -> State:
    """Return the state after a commit of a member, which the broker accepts."""
    view = state.processes[i].views[partition]
    return state._replace(metadata=change(state.metadata, partition, to_commit(model, view)))


def answer(state: State, request: int) -> State:
    """Return the state after an answer has become visible."""
    return state._replace(answers=change(state.answers, request, min(2, state.answers[request] + 1)))


def end_transaction(model: Detaching, state: State, i: int) -> State:
    """Return the state after the transaction of process ``i`` is committed."""
    transaction = state.processes[i].transaction
    assert transaction
    request, metadata, _ = transaction
    state = answer(with_process(state, i, transaction=()), request)
    if not metadata:
        return state._replace(marks=change(state.marks, request, MARK_SETTLED))
    return state._replace(metadata=change(state.metadata, model.places[request][0], metadata))


# -- reads


def is_pending(state: State, request: int) -> bool:
    """Return whether a mark of the request is in an open transaction. A stable read of the mark waits for it."""
    return any(p.transaction and p.transaction[0] == request and not p.transaction[1] for p in state.processes)


def is_undecided(model: Detaching, state: State, partition: int) -> bool:
    """Return whether metadata of the partition is in an open transaction."""
    return any(
        p.transaction and p.transaction[1] and model.places[p.transaction[0]][0] == partition for p in state.processes
    )


# -- processes that leave or die


def leave(state: State, i: int) -> State:
    """Return the state in which the partitions of process ``i`` have no owner."""
    return state._replace(owners=tuple([-1 if o == i else o for o in state.owners]))


def after_death(model: Detaching, state: State, i: int) -> Iterator[Step[State]]:
    """Yield the steps after a death: the open transaction ends, and then another process is started."""
    transaction = state.processes[i].transaction
    if not transaction:
        yield Step(f"{i} is restarted", with_process(state, i, alive=True, member=True))
        return
    yield Step(f"the transaction of the dead {i} times out", with_process(state, i, transaction=()))
    if transaction.may_commit:
        yield Step(f"the commit of the dead {i} arrives", end_transaction(model, state, i))


def die(state: State, i: int) -> State:
    """Return the state after process ``i`` has died. Its name is gone: the next process has another one."""
    renamed = _renamed(state, {HELD + i: GONE})
    dead = Process(False, False, False, (), renamed.processes[i].transaction, ((),) * len(state.owners))
    return leave(renamed, i)._replace(processes=change(renamed.processes, i, dead))


# -- names


def canonical(state: State) -> State:
    """Return one state for all states that differ only by the numbers of their processes, which are alike."""
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
    """Return the same state with other names of the holders."""

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
