"""How a replica stops: it drains first, and cancels tasks after a time limit or a second signal."""

from __future__ import annotations

import enum

from worker.core.deadline import Deadline
from worker.errors import ExitCode


class Phase(enum.IntEnum):
    """The phase of a replica. It only moves forward."""

    RUN = 0
    DRAIN = 1  # running tasks finish, no task starts
    CANCEL = 2  # running tasks were cancelled


class Stopping:
    """The current phase and the exit code. ``now`` is in seconds, monotonic."""

    def __init__(self, drain_timeout: float) -> None:
        self.phase = Phase.RUN
        self.exit_code = ExitCode.DRAINED
        self._drain_timeout = drain_timeout  # 0: no limit
        self._deadline = Deadline()

    def drain(self, now: float) -> None:
        """Begin to stop."""
        if self.phase is Phase.RUN:
            self.phase = Phase.DRAIN
            self._deadline = Deadline.after(self._drain_timeout, now) if self._drain_timeout else Deadline()

    def cancel(self) -> None:
        """Stop without waiting for tasks."""
        self.phase = Phase.CANCEL

    def halt(self, exit_code: ExitCode, now: float) -> None:
        """Begin to stop because the replica cannot continue. The first cause decides the exit code."""
        if self.phase is Phase.RUN:
            self.exit_code = exit_code
            self.drain(now)

    def lost_tasks(self) -> None:
        """Record that running tasks were cancelled."""
        if self.exit_code is ExitCode.DRAINED:
            self.exit_code = ExitCode.DRAIN_TIMED_OUT

    def update(self, now: float) -> Phase:
        """Return the phase at ``now``."""
        if self.phase is Phase.DRAIN and self._deadline.passed(now):
            self.cancel()
        return self.phase
