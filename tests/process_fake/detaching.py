"""Helpers for tests of detached tasks: processes that detach tasks, and checks of starts and answers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.process_fake.world import Process, World

SESSION = 45.0


def process(world: World, **options: Any) -> Process:
    """Start a process that detaches tasks after 3 s."""
    given: dict[str, Any] = {
        "state_topic": "state",
        "long_after": 3.0,
        "ordering": "unordered",
        "max_poll_interval": SESSION,
    }
    return world.process(**given | options)


def started(world: World, offset: int, number: int, *processes: Process) -> int:
    """Return how often these processes started a request."""
    return sum((number, offset, n) in one.starts for one in processes for n in range(1, 9))


def each_once(world: World) -> None:
    """Check that each answered request has exactly one answer."""
    assert set(Counter(world.answered()).values()) == {1}
