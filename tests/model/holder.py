"""How a process detaches the task that it runs, and how it ends the task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.model import rules
from tests.model.broker import answer, change, commit, end_transaction, to_commit, with_process, with_status
from tests.model.explorer import Step
from tests.model.owner import confirm
from tests.model.state import (
    ALLOWED,
    ANSWERED,
    HELD,
    MARK_RELEASED,
    MARK_SETTLED,
    MARKED,
    NO_MARK,
    RELEASING,
    RUNNING,
    SETTLED,
    VACATING,
    WROTE,
    Running,
    State,
    Transaction,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.model.protocol import Detaching


def steps(model: Detaching, state: State, i: int) -> Iterator[Step[State]]:
    task = state.processes[i].task
    if not task:
        return
    if not task.detached:
        yield from _settle(model, state, i, task.request)
        yield from _detach(model, state, i, task.request)
        return
    if task.step == RELEASING:
        yield _release(model, state, i, task.request)
        return
    if model.releases and task.step == RUNNING:
        yield Step(f"{i} is to release {task.request}", _at(state, i, RELEASING))
    if model.guarantee != "exactly-once":
        yield from _end_without_transaction(model, state, i, task)
    else:
        yield from _end(model, state, i, task)


# -- a task whose partition has not moved


def _settle(model: Detaching, state: State, i: int, request: int) -> Iterator[Step[State]]:
    """Send the answer and the metadata: in one transaction under exactly-once."""
    process = state.processes[i]
    partition, index = model.places[request]
    view = process.views[partition]
    if process.transaction:
        after = with_status(state, i, (partition, index), SETTLED) if view else state
        yield Step(f"{i} commits its answer to {request}", with_process(end_transaction(model, after, i), i, task=()))
    elif not view:
        yield Step(f"{i} drops {request}", with_process(state, i, task=()))
    elif process.member and model.guarantee == "exactly-once":
        settled = to_commit(model, change(view, index, SETTLED))
        transaction = Transaction(request, settled, may_commit=True)
        sent = with_process(state, i, transaction=transaction)
        if not model.split:
            after = with_status(sent, i, (partition, index), SETTLED)
            sent = with_process(end_transaction(model, after, i), i, task=())
        yield Step(f"{i} sends its answer to {request}", sent)
    elif process.member:
        after = with_status(answer(state, request), i, (partition, index), SETTLED)
        yield Step(f"{i} answers {request}", with_process(after, i, task=()))


def _detach(model: Detaching, state: State, i: int, request: int) -> Iterator[Step[State]]:
    """Commit that this process continues the task. From then on the partition may move."""
    process = state.processes[i]
    place = model.places[request]
    if process.member and not process.transaction and process.views[place[0]]:
        after = confirm(commit(model, with_status(state, i, place, HELD + i), i, place[0]), i, place[0])
        yield Step(f"{i} detaches {request}", detached(named(after, request), i))


def named(state: State, request: int) -> State:
    """Return the state after the metadata name a new holder. A release by an earlier holder does not count."""
    if state.marks[request] != MARK_RELEASED:
        return state
    return state._replace(marks=change(state.marks, request, NO_MARK))


def detached(state: State, i: int) -> State:
    task = state.processes[i].task
    assert task
    return with_process(state, i, task=task._replace(detached=True))


# -- a detached task


def is_named(model: Detaching, state: State, i: int, request: int) -> bool:
    """Return whether the committed metadata names this process as the holder. This is the holder's look."""
    partition, index = model.places[request]
    return rules.is_named(state.metadata[partition][index], i)


def _end(model: Detaching, state: State, i: int, task: Running) -> Iterator[Step[State]]:
    """Yield the next step: write a pending mark, look at the metadata, and commit or abort."""
    request, _, step = task
    if step == RUNNING:
        yield _begin(model, state, i, request)
    elif not state.processes[i].transaction:
        yield _find_out(model, state, i, task)
    elif step == MARKED:
        yield _look_after_mark(model, state, i, request)
    elif step == WROTE:
        yield _look(model, state, i, request, allowed(state, i))
    elif step == ALLOWED:
        yield Step(f"{i} commits its answer to {request}", over(end_transaction(model, state, i), i))


def _begin(model: Detaching, state: State, i: int, request: int) -> Step[State]:
    if "look" in model.without:
        mark = Transaction(request, may_commit=True)
        return Step(f"{i} marks {request}, without a look", _at(state, i, ALLOWED, transaction=mark))
    if "mark before the look" in model.without:
        return _look(model, state, i, request, _at(state, i, ALLOWED))
    return Step(f"{i} marks {request}", _at(state, i, MARKED, transaction=Transaction(request)))


def _look_after_mark(model: Detaching, state: State, i: int, request: int) -> Step[State]:
    """Look at the metadata after another write, which only the real coordinator accepts, and only from a member."""
    if "write before a read" not in model.without and not state.processes[i].member:
        return Step(f"the write of {i} is refused", _at(state, i, RUNNING, transaction=()))
    passed = _at(state, i, WROTE) if model.writes_first(state) else allowed(state, i)
    return _look(model, state, i, request, passed)


def _look(model: Detaching, state: State, i: int, request: int, passed: State) -> Step[State]:
    if is_named(model, state, i, request):
        return Step(f"{i} is named in {request}", passed)
    return Step(f"{i} is not named in {request}", superseded(model, state, i))


def allowed(state: State, i: int) -> State:
    transaction = state.processes[i].transaction
    assert transaction
    return _at(state, i, ALLOWED, transaction=transaction._replace(may_commit=True))


def _find_out(model: Detaching, state: State, i: int, task: Running) -> Step[State]:
    """The transaction is over, and its outcome is not known. The mark shows the outcome."""
    request = task.request
    mark = Transaction(request, may_commit=True)
    if state.marks[request]:
        return Step(f"{i} finds its answer to {request}", over(state, i))
    if "mark before the look" in model.without and task.step == ALLOWED:
        return Step(f"{i} marks {request}", with_process(state, i, transaction=mark))
    if "look in each try" in model.without:
        return Step(f"{i} repeats its transaction for {request}", _at(state, i, ALLOWED, transaction=mark))
    return Step(f"{i} does not find its answer to {request}", _at(state, i, RUNNING))


def _release(model: Detaching, state: State, i: int, request: int) -> Step[State]:
    """Leave the task to the owner. A mark of a holder that is no longer named does not count."""
    partition, index = model.places[request]
    marks = state.marks
    if state.metadata[partition][index] == HELD + i:
        marks = change(marks, request, marks[request] or MARK_RELEASED)
    elif "a mark for each holder" in model.without:
        marks = change(marks, request, NO_MARK)
    return Step(f"{i} releases {request}", superseded(model, state._replace(marks=marks), i))


def _end_without_transaction(model: Detaching, state: State, i: int, task: Running) -> Iterator[Step[State]]:
    request = task.request
    if task.step == ANSWERED:
        marked = state._replace(marks=change(state.marks, request, MARK_SETTLED))
        yield Step(f"{i} marks {request}", over(marked, i))
    elif model.guarantee == "at-most-once" or is_named(model, state, i, request):
        yield Step(f"{i} answers {request}", _at(answer(state, request), i, ANSWERED))
    else:
        yield Step(f"{i} is not named in {request}", superseded(model, state, i))


def _at(state: State, i: int, step: int, **changes: Any) -> State:
    task = state.processes[i].task
    assert task
    return with_process(state, i, task=task._replace(step=step), **changes)


def over(state: State, i: int) -> State:
    """Return the state in which the process has no task, and takes part in the group again."""
    return with_process(state, i, task=(), transaction=(), parked=False)


def superseded(model: Detaching, state: State, i: int) -> State:
    """Drop the task. If this process owns the partition, its entry must no longer name this process."""
    task, views = state.processes[i].task, state.processes[i].views
    assert task
    partition, index = model.places[task.request]
    if views[partition] and views[partition][index] == HELD + i and "drop the own entry" not in model.without:
        state = with_status(state, i, (partition, index), VACATING)
    return over(state, i)
