"""The faults. Each one reduces the number of faults that may still happen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.model.broker import commit, die, end_transaction, is_pending, leave, with_process, with_status
from tests.model.explorer import Step
from tests.model.holder import allowed, detached, named
from tests.model.owner import is_missing, taken_over, vacate
from tests.model.state import ALLOWED, GONE, HELD, LOOKED, MARK_RELEASED, MARKED, VACATED, VACATING, WROTE, State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.model.protocol import Detaching


def steps(model: Detaching, state: State, i: int) -> Iterator[Step[State]]:
    process = state.processes[i]
    kinds = model.kinds
    left = state._replace(faults=state.faults - 1)
    if "crash" in kinds:
        yield Step(f"{i} crashes", die(left, i), fault=True)
    if "freeze" in kinds and process.member:
        yield from _freeze(left, i)
    if "transaction time-out" in kinds and process.transaction:
        yield Step(f"the transaction of {i} times out", with_process(left, i, transaction=()), fault=True)
    if "lost answer" in kinds:
        yield from _lost_end(model, left, i)
        yield from _lost_detach(model, left, i)
    for partition, view in enumerate(process.views if process.member else ()):
        for index, status in enumerate(view):
            yield from _misjudge(model, left, i, (partition, index), status)
    if "stale read" in kinds:
        yield from _stale_look(model, left, i)


def _freeze(left: State, i: int) -> Iterator[Step[State]]:
    """The process is frozen beyond its session time-out, and perhaps beyond the time-out of its transaction."""
    given_up = leave(with_process(left, i, member=False), i)
    yield Step(f"{i} is given up", given_up, fault=True)
    if left.processes[i].transaction:
        both = with_process(given_up, i, transaction=())
        yield Step(f"{i} is given up, and its transaction times out", both, fault=True)


def _lost_end(model: Detaching, left: State, i: int) -> Iterator[Step[State]]:
    """The commit of an answer is applied, but its sender gets no confirmation."""
    process = left.processes[i]
    if process.transaction and process.task and process.task.detached and process.task.step == ALLOWED:
        request = process.task.request
        made = end_transaction(model, left, i)
        yield Step(f"{i} commits its answer to {request}, no confirmation comes", made, fault=True)


def _lost_detach(model: Detaching, left: State, i: int) -> Iterator[Step[State]]:
    """The task counts as detached when the commit is sent. Otherwise its end would not look at the metadata."""
    process = left.processes[i]
    if not process.task or process.task.detached or process.transaction or not process.member:
        return
    place = model.places[process.task.request]
    if not process.views[place[0]]:
        return
    kept = with_status(left, i, place, HELD + i)
    made = named(commit(model, kept, i, place[0]), process.task.request)
    if "detached when sent" in model.without:
        made, kept = left._replace(metadata=made.metadata), left
    else:
        made, kept = detached(made, i), detached(kept, i)
    yield Step(f"{i} detaches {process.task.request}, no confirmation comes", made, fault=True)
    if left.marks[process.task.request] != MARK_RELEASED:  # this mark would be of a holder with another name
        yield Step(f"{i} detaches {process.task.request}, the commit is lost", kept, fault=True)


def _misjudge(model: Detaching, left: State, i: int, place: tuple[int, int], status: int) -> Iterator[Step[State]]:
    """Yield the mistakes that an owner may make about one request."""
    request = model.request(*place)
    if "wrong look" in model.kinds and status >= HELD and status != HELD + i and left.processes[status - HELD].member:
        yield Step(
            f"{i} misses the holder of {request}, and vacates it", vacate(model, left, i, place).state, fault=True
        )
    if "lost answer" in model.kinds and status >= GONE and is_missing(left, i, request, status):
        kept = with_status(left, i, place, VACATING)
        made = commit(model, kept, i, place[0])
        if "vacated when sent" in model.without:
            made = left._replace(metadata=made.metadata)
        yield Step(f"{i} vacates {request}, no confirmation comes", made, fault=True)
    waits = LOOKED if "write before a read" not in model.without else VACATED
    if "stale read" in model.kinds and status == waits and (left.marks[request] or is_pending(left, request)):
        after = with_status(left, i, place, taken_over(model))
        yield Step(f"{i} reads of no mark of {request} from a deposed coordinator", after, fault=True)


def _stale_look(model: Detaching, left: State, i: int) -> Iterator[Step[State]]:
    """A deposed coordinator answers. It accepts no writes, so it knows at least what came before the last write."""
    process = left.processes[i]
    step = WROTE if "write before a read" not in model.without else MARKED
    if process.task and process.transaction and not process.transaction.metadata and process.task.step == step:
        label = f"{i} is named in {process.task.request} by a deposed coordinator"
        yield Step(label, allowed(left, i), fault=True)
