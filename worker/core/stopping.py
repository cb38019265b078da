"""How a replica stops: drain, then cancel, then kill. Each step has its reason to come and its time."""

from __future__ import annotations

import enum

from worker.core.deadline import Deadline
from worker.errors import ExitCode

CANCEL_SECONDS = 10.0  # for a cancelled task to stop, and for its process to leave the group


class Phase(enum.IntEnum):
    """Where the replica stands; it only moves forward."""

    RUN = 0
    DRAIN = 1  # what runs finishes, nothing starts
    CANCEL = 2  # what runs has been asked to stop
    KILL = 3  # what is left is killed


class Stopping:
    """The way from RUN to the end, and the exit code. ``now`` is in seconds, monotonic."""

    def __init__(self, drain_timeout: float, cancel_seconds: float = CANCEL_SECONDS) -> None:
        self.phase = Phase.RUN
        self.exit_code = ExitCode.DRAINED
        self._drain_timeout = drain_timeout  # 0: no limit
        self._cancel_seconds = cancel_seconds
        self._deadline = Deadline()

    def drain(self, now: float) -> None:
        """Begin to stop."""
        if self.phase is Phase.RUN:
            self.phase = Phase.DRAIN
            self._deadline = Deadline.after(self._drain_timeout, now) if self._drain_timeout else Deadline()

    def cancel(self, now: float) -> None:
        """Stop without waiting for tasks."""
        if self.phase < Phase.CANCEL:
            self.phase = Phase.CANCEL
            self._deadline = Deadline.after(self._cancel_seconds, now)

    def halt(self, exit_code: ExitCode, now: float) -> None:
        """Begin to stop because the replica cannot go on. The first cause is the one that is told."""
        if self.phase is Phase.RUN:
            self.exit_code = exit_code
            self.drain(now)

    def lost_tasks(self) -> None:
        """Note that running tasks were cancelled or killed on the way."""
        if self.exit_code is ExitCode.DRAINED:
            self.exit_code = ExitCode.DRAIN_TIMED_OUT

    def update(self, now: float) -> Phase:
        """The phase by now."""
        if self._deadline.passed(now):
            if self.phase is Phase.DRAIN:
                self.cancel(now)
            elif self.phase is Phase.CANCEL:
                self.phase = Phase.KILL
        return self.phase
