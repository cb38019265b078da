"""The terminal message while a replica stops: which tasks it waits for, and how to cancel them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from worker.supervisor.replica_status import place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.supervisor.replica_status import Task

REPEAT_SECONDS = 30.0
MOST = 5  # tasks that a notice names


class DrainNotice:
    """Return a line when the running tasks change, and repeat it from time to time."""

    def __init__(self) -> None:
        self._shown: object = None
        self._repeat_at = -math.inf

    def update(self, tasks: Sequence[Task], wall: float, now: float, *, cancelling: bool) -> str | None:
        """Return the line to show, or None. ``wall`` is in seconds since the epoch; ``now`` is monotonic."""
        current = (cancelling, [place(task) for task in tasks])
        if not tasks or (current == self._shown and now < self._repeat_at):
            return None
        self._shown, self._repeat_at = current, now + REPEAT_SECONDS
        return _line(tasks, wall, cancelling=cancelling)


def _line(tasks: Sequence[Task], wall: float, *, cancelling: bool) -> str:
    named = ", ".join(_named(task, wall) for task in tasks[:MOST])
    more = f" and {len(tasks) - MOST} more" if len(tasks) > MOST else ""
    if cancelling:
        return f"cancelling {named}{more}"
    them = "it" if len(tasks) == 1 else "them"
    return f"waiting for {named}{more}; press Ctrl-C again to cancel {them}"


def _named(task: Task, wall: float) -> str:
    seconds = f"{max(0.0, wall - task['started']):.0f} s"
    return f"{place(task)} ({task['key']}, {seconds})" if task.get("key") else f"{place(task)} ({seconds})"
