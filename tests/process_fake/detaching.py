"""What tests of detached tasks share: processes that detach them, and requests."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.process_fake.world import Process, World

SESSION = 45.0


def process(world: World, **options: Any) -> Process:
    """One that detaches tasks after 3 s."""
    given: dict[str, Any] = {
        "state_topic": "state",
        "long_after": 3.0,
        "ordering": "unordered",
        "max_poll_interval": SESSION,
    }
    return world.process(**given | options)


def started(world: World, offset: int, number: int, *processes: Process) -> int:
    """How often a request was started, in these processes."""
    return sum((number, offset, n) in one.starts for one in processes for n in range(1, 9))


def each_once(world: World) -> None:
    """Every request has one answer."""
    assert set(Counter(world.answered()).values()) == {1}
