"""A failed task of a newly assigned partition starts only after a commit has recorded its next start."""

from __future__ import annotations

import math

import pytest

from tests.unit.support import a_task
from worker.core.keyed_queue import KeyedQueue

NOW = 100.0


@pytest.mark.parametrize("by_key", [True, False], ids=["key", "unordered"])
def test_a_held_task_and_the_tasks_after_it_wait(by_key: bool) -> None:
    """The commit metadata still say that the task waits. If it crashed the process, no attempt would be counted."""
    queue = KeyedQueue(by_key=by_key)
    for offset in range(3):
        queue.push(a_task(offset=offset))
    held = {1}
    assert [task.offset for task in queue.take(3, math.inf, NOW, held=held)] == [0]
    assert queue.take(3, math.inf, NOW, held=held) == []
    held.clear()
    assert [task.offset for task in queue.take(3, math.inf, NOW, held=held)] == [1, 2]
