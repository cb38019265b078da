"""The states of a worker process and the ways between them."""

from __future__ import annotations

import enum


class State(enum.IntEnum):
    """Numbers are fixed, so that metrics keep their meaning when a state is added."""

    NEW = 0
    JOINING = 10  # in the group, tasks held until the siblings are there
    RUNNING = 20
    DRAINING = 30  # what runs finishes, nothing starts
    CANCELLING = 40  # what runs has been asked to stop
    CLOSED = 50


_NEXT: dict[State, frozenset[State]] = {
    State.NEW: frozenset({State.JOINING, State.CLOSED}),
    State.JOINING: frozenset({State.RUNNING, State.DRAINING, State.CANCELLING, State.CLOSED}),
    State.RUNNING: frozenset({State.DRAINING, State.CANCELLING, State.CLOSED}),
    State.DRAINING: frozenset({State.CANCELLING, State.CLOSED}),
    State.CANCELLING: frozenset({State.CLOSED}),
    State.CLOSED: frozenset(),
}


class Lifecycle:
    """Where a worker process stands. It only moves forward."""

    def __init__(self) -> None:
        self.state = State.NEW

    def to(self, state: State) -> bool:
        """Move to ``state``; False if it is already there or further on. An unlawful jump raises ValueError."""
        if state <= self.state:
            return False
        if state not in _NEXT[self.state]:
            message = f"no way from {self.state.name} to {state.name}"
            raise ValueError(message)
        self.state = state
        return True

    @property
    def may_start(self) -> bool:
        """Whether a task may start now."""
        return self.state is State.RUNNING

    @property
    def leaving(self) -> bool:
        """Whether the process is on its way out."""
        return self.state >= State.DRAINING
