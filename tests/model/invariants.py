"""What must hold in every state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.model.state import SETTLED, State

if TYPE_CHECKING:
    from tests.model.protocol import Detaching


def broken(model: Detaching, state: State) -> str | None:
    """Return the name of the first invariant that does not hold, or None."""
    if model.guarantee == "exactly-once" and 2 in state.answers:
        return "never two committed answers"
    if model.guarantee == "at-most-once":
        if 2 in state.starts:
            return "never two starts"
    elif _lost(model, state):
        return "never lost"
    if model.ordered and _overtakes(model, state):
        return "order"
    return None


def _lost(model: Detaching, state: State) -> bool:
    """Return whether a request without an answer is committed as settled."""
    return any(
        state.metadata[partition][index] == SETTLED and not state.answers[request]
        for request, (partition, index) in enumerate(model.places)
    )


def _overtakes(model: Detaching, state: State) -> bool:
    """Return whether a task runs before an earlier one is answered; at-most-once: while an earlier one runs."""
    running = {p.task.request: p.member for p in state.processes if p.task and p.alive}
    for request in running:
        ahead = range(request - model.places[request][1], request)
        if model.guarantee == "at-most-once":
            if any(running.get(one) for one in ahead):
                return True
        elif not all(state.answers[one] for one in ahead):
            return True
    return False


def ended(state: State) -> bool:
    """Return whether every request is settled and nothing runs."""
    idle = all(not p.task and not p.transaction for p in state.processes)
    return idle and all(status == SETTLED for metadata in state.metadata for status in metadata)
