"""The states of a worker process, and the allowed transitions."""

from __future__ import annotations

import enum


class State(enum.IntEnum):
    """Numbers are fixed, so that metrics keep their meaning when a state is added."""

    NEW = 0
    JOINING = 10  # in the group; tasks wait until the peer processes have joined
    RUNNING = 20
    DRAINING = 30  # running tasks finish, no task starts
    CANCELLING = 40  # running tasks have been cancelled
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
    """The state of a worker process. It only moves forward."""

    def __init__(self) -> None:
        self.state = State.NEW

    def to(self, state: State) -> bool:
        """Move to ``state``. Return False if the process is there or further. Raise ValueError if it is not allowed."""
        if state <= self.state:
            return False
        if state not in _NEXT[self.state]:
            message = f"no way from {self.state.name} to {state.name}"
            raise ValueError(message)
        self.state = state
        return True

    @property
    def may_start(self) -> bool:
        """Return whether a task may start now."""
        return self.state is State.RUNNING

    @property
    def leaving(self) -> bool:
        """Return whether the process is leaving the group."""
        return self.state >= State.DRAINING
