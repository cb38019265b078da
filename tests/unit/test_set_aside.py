"""A long task runs beside others. Only the tasks that must not overtake it wait for its end."""

from __future__ import annotations

import math

import pytest

from tests.unit.support import a_task
from worker.core.keyed_queue import KeyedQueue
from worker.core.limits import MOST_NICE, niceness
from worker.core.queues import PartitionQueue

NOW = 100.0


def test_no_task_of_its_partition_starts_before_a_long_task_ends() -> None:
    """The waiting tasks do not count as startable, so other partitions are fetched meanwhile."""
    queue = PartitionQueue()
    for offset in range(4):
        queue.push(a_task(offset=offset))
    long, behind = queue.take(2, math.inf, NOW)
    assert long.group is not None
    long.group.set_aside()
    queue.requeue(behind, 0.0)
    assert queue.head(NOW) is None
    assert queue.take(5, math.inf, NOW) == []
    assert queue.is_waiting(NOW)
    assert queue.startable(NOW) == (0, 0)
    assert queue.next_ready() == math.inf
    queue.finish(long)
    assert not queue.is_waiting(NOW)
    assert [task.offset for task in queue.take(5, math.inf, NOW)] == [1, 2, 3]


def test_no_task_of_its_key_starts_before_a_long_task_ends() -> None:
    """Tasks of other keys start."""
    queue = KeyedQueue(by_key=True)
    for offset, key in enumerate([b"a", b"a", b"b", b"a"]):
        queue.push(a_task(offset=offset, key=key))
    (long,) = queue.take(1, math.inf, NOW)
    assert long.group is not None
    long.group.set_aside()
    assert [task.offset for task in queue.take(5, math.inf, NOW)] == [2]
    assert queue.head(NOW) is None
    queue.finish(long)
    assert [task.offset for task in queue.take(5, math.inf, NOW)] == [1, 3]


def test_a_long_task_that_is_requeued_for_another_attempt_opens_its_group() -> None:
    queue = PartitionQueue()
    queue.push(a_task(offset=0))
    (long,) = queue.take(1, math.inf, NOW)
    assert long.group is not None
    long.group.set_aside()
    queue.requeue(long, NOW + 1)
    assert queue.next_ready() == NOW + 1
    assert queue.take(1, math.inf, NOW + 1) == [long]


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.0, 5), (60.0, 5), (119.0, 5), (120.0, 10), (240.0, 15), (480.0, 19), (1e6, MOST_NICE)]
)
def test_the_nice_level_of_a_long_task_rises_each_time_its_run_time_doubles(seconds: float, expected: int) -> None:
    assert niceness(seconds, 60.0) == expected
