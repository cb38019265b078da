"""Retries of one partition, of which only low offsets may start while the commit metadata are full."""

from __future__ import annotations

import math

import pytest

from tests.unit.support import a_task
from worker.core.keyed_queue import KeyedQueue

NOW = 100.0


@pytest.fixture
def queue() -> KeyedQueue:
    """Return a queue with three retries that are due, the highest offset first, and one that is not due."""
    made = KeyedQueue(by_key=False)
    for offset, ready_at in ((0, 30.0), (1, 20.0), (2, 10.0), (3, NOW + 1)):
        made.requeue(a_task(offset=offset), ready_at)
    return made


def test_a_retry_that_may_not_start_does_not_block_others(queue: KeyedQueue) -> None:
    """Otherwise the partition would be blocked permanently."""
    assert queue.head(NOW, below=2) == 0
    assert [task.offset for task in queue.take(9, 2, NOW)] == [0, 1]
    assert queue.head(NOW, below=2) is None
    assert [task.offset for task in queue.take(9, math.inf, NOW)] == [2]
    assert len(queue) == 1


def test_the_retry_that_is_due_first_starts_first_without_an_offset_limit(queue: KeyedQueue) -> None:
    assert queue.head(NOW) == 2
    assert [task.offset for task in queue.take(9, math.inf, NOW, held={1})] == [2, 0]
