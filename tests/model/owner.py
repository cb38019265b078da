"""How the owner of a partition handles its requests: tasks of this process, and entries of tasks in other processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.model.broker import answer, change, commit, is_pending, to_commit, with_process, with_status
from tests.model.explorer import Step
from tests.model.rules import step_of_owner
from tests.model.state import (
    CLEARED,
    GONE,
    HELD,
    LOOKED,
    NO_MARK,
    OPEN,
    SETTLED,
    VACATED,
    VACATING,
    Running,
    State,
)
from worker.core.detached import Step as Action

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.model.protocol import Detaching

Place = tuple[int, int]  # partition and index


def steps(model: Detaching, state: State, i: int) -> Iterator[Step[State]]:
    process = state.processes[i]
    if not process.member:
        return
    for partition, view in enumerate(process.views):
        if not view:
            continue
        if not process.transaction and (to_commit(model, view) != state.metadata[partition] or VACATING in view):
            yield Step(f"{i} commits {partition}", confirm(commit(model, state, i, partition), i, partition))
        for index, status in enumerate(view):
            yield from _care(model, state, i, (partition, index), status)


def confirm(state: State, i: int, partition: int) -> State:
    """Return the state after a commit of the partition was confirmed. Vacating entries become vacated."""
    views = state.processes[i].views
    if VACATING not in views[partition]:
        return state
    view = tuple(VACATED if status == VACATING else status for status in views[partition])
    return with_process(state, i, views=change(views, partition, view))


def _care(model: Detaching, state: State, i: int, place: Place, status: int) -> Iterator[Step[State]]:
    if status in {OPEN, CLEARED}:
        yield from _work(model, state, i, place, status)
    elif status == SETTLED:
        yield from _delete_mark(model, state, i, place)
    else:
        yield from _watch(model, state, i, place, status)


# -- entries


def _watch(model: Detaching, state: State, i: int, place: Place, status: int) -> Iterator[Step[State]]:
    request = model.request(*place)
    pending = is_pending(state, request) and "stable read" not in model.without
    missing = status >= GONE and is_missing(state, i, request, status)
    mark = state.marks[request]
    step = step_of_owner(status, mark, pending=pending, missing=missing)
    if step is Action.SETTLE:
        # Its record may not have been fetched yet.
        after = with_status(state, i, place, OPEN if "early mark counts" in model.without else SETTLED)
        yield Step(f"{i} sees the mark of {request}", after)
    elif step is Action.VACATE:
        yield vacate(model, state, i, place)
    elif step is Action.TAKE_OVER:
        writes = status == VACATED and not mark and model.writes_first(state)
        after = with_status(state, i, place, LOOKED if writes else taken_over(model))
        yield Step(f"{i} {'writes beside the mark of' if writes else 'takes over'} {request}", after)


def is_missing(state: State, i: int, request: int, status: int) -> bool:
    """Return whether a correct look at the group shows no holder. A process knows whether it runs the task itself."""
    if status == GONE:
        return True
    holder = status - HELD
    if holder == i:
        task = state.processes[i].task
        return not task or task.request != request
    return not state.processes[holder].member


def vacate(model: Detaching, state: State, i: int, place: Place) -> Step[State]:
    """Commit that the entry no longer names a holder."""
    after = with_status(state, i, place, VACATED)
    if "vacate before the read" not in model.without:
        after = confirm(commit(model, after, i, place[0]), i, place[0])
    return Step(f"{i} vacates {model.request(*place)}", after)


def taken_over(model: Detaching) -> int:
    """Return the new status of a request without a holder. At-most-once, it is lost. Otherwise it starts again."""
    return SETTLED if model.guarantee == "at-most-once" and "no requeue" not in model.without else OPEN


def _delete_mark(model: Detaching, state: State, i: int, place: Place) -> Iterator[Step[State]]:
    partition, index = place
    request = model.request(*place)
    safe = state.metadata[partition][index] == SETTLED or "mark stays until the commit" in model.without
    if model.deletes and state.marks[request] and safe:
        yield Step(f"{i} deletes the mark of {request}", state._replace(marks=change(state.marks, request, NO_MARK)))


# -- tasks


def _work(model: Detaching, state: State, i: int, place: Place, status: int) -> Iterator[Step[State]]:
    """Start a task. A short task ends in the same step."""
    partition, index = place
    process, request = state.processes[i], model.request(*place)
    waits = model.ordered and "order" not in model.without
    if process.task or (waits and any(s != SETTLED for s in process.views[partition][:index])):
        return
    if request not in model.long:
        done = commit(model, with_status(answer(state, request), i, place, SETTLED), i, partition)
        yield Step(f"{i} runs and settles {request}", confirm(done, i, partition))
    elif model.guarantee != "at-most-once":
        yield Step(f"{i} starts {request}", with_process(state, i, task=Running(request)))
    elif status == OPEN and "commit before the start" not in model.without:
        cleared = commit(model, with_status(state, i, place, CLEARED), i, partition)
        yield Step(f"{i} commits that it starts {request}", confirm(cleared, i, partition))
    else:
        starts = change(state.starts, request, min(2, state.starts[request] + 1))
        started = with_process(state, i, task=Running(request))._replace(starts=starts)
        yield Step(f"{i} starts {request}", with_status(started, i, place, SETTLED))
