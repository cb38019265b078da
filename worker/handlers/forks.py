"""Ends the children that a handler forks, which must not continue as workers with their parent's connections."""

from __future__ import annotations

import os


class ForkCount:
    """Counts how often this process became a forked child. Getting the process id would be a system call per task."""

    def __init__(self) -> None:
        self.value = 0
        os.register_at_fork(after_in_child=self._add)

    def _add(self) -> None:
        self.value += 1


FORKS = ForkCount()  # the only one: what is registered stays registered


def leave_fork(*, good: bool) -> None:
    """End the child that a handler forked and that returned here, as a successful or a failed process."""
    os._exit(0 if good else 1)
