"""A failed task of a newly assigned partition starts only after a commit has recorded its next start."""

from __future__ import annotations

import math

import pytest

from tests.unit.support import a_task
from worker.core.keyed_queue import KeyedQueue

NOW = 100.0


@pytest.mark.parametrize(("by_key", "started"), [(True, [0]), (False, [0, 2])], ids=["key", "unordered"])
def test_a_held_task_waits_and_so_do_those_of_its_key(by_key: bool, started: list[int]) -> None:
    """The commit metadata still say that the task waits. If it crashed the process, no attempt would be counted."""
    queue = KeyedQueue(by_key=by_key)
    for offset in range(3):
        queue.push(a_task(offset=offset))
    held = {1}
    assert [task.offset for task in queue.take(3, math.inf, NOW, held=held)] == started
    assert queue.take(3, math.inf, NOW, held=held) == []
    held.clear()
    rest = [offset for offset in (1, 2) if offset not in started]
    assert [task.offset for task in queue.take(3, math.inf, NOW, held=held)] == rest
