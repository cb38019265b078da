"""The fold of the state topic: turns its records into the current state of each request. Pure."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from worker.state.records import CancelRequest, Removed, TaskState, decode

if TYPE_CHECKING:
    from worker.core.task_state import Origin


class Kind(enum.Enum):
    """What a record has changed."""

    STATE = "state"  # the state of a request is different
    STALE = "stale"  # a state of an earlier start: ignored, but compaction would keep it as the last record of its key
    SETTLED = "settled"  # the state was removed
    CANCEL = "cancel"  # the request is to be cancelled
    REACHED = "reached"  # the cancel request was removed


class Change(NamedTuple):
    """A record was processed. After ``STALE``, the owner of the request writes its own state again."""

    kind: Kind
    origin: Origin


class StateTable:
    """The states and cancel requests of a state topic or a part of it. ``foreign`` counts records that are not ours.

    A state is fenced by its start: records of an earlier start of the same request are ignored, whenever they arrive.
    """

    def __init__(self) -> None:
        self.states: dict[Origin, TaskState] = {}
        self.cancels: dict[Origin, CancelRequest] = {}
        self.foreign = 0

    def apply(self, key: bytes | None, value: bytes | None) -> Change | None:
        """Process the next record of a partition; None if it is not ours. Never raise."""
        record = decode(key, value)
        if record is None:
            self.foreign += 1
            return None
        if isinstance(record, TaskState):
            return self._state(record)
        if isinstance(record, Removed):
            return self._removed(record)
        self.cancels[record.origin] = record
        return Change(Kind.CANCEL, record.origin)

    def _state(self, state: TaskState) -> Change:
        known = self.states.get(state.origin)
        if known is not None and state.start < known.start:
            return Change(Kind.STALE, state.origin)
        self.states[state.origin] = state
        return Change(Kind.STATE, state.origin)

    def _removed(self, removed: Removed) -> Change:
        if removed.cancel:
            self.cancels.pop(removed.origin, None)
            return Change(Kind.REACHED, removed.origin)
        self.states.pop(removed.origin, None)
        return Change(Kind.SETTLED, removed.origin)
