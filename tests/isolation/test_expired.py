"""The poll thread learns which tasks were cancelled at a limit, and why."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from worker.isolation.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.isolation.rig import Rig

pytestmark = pytest.mark.timeout(60)


def test_a_task_that_is_cancelled_at_a_limit_is_reported_once_with_the_reason(make: Callable[..., Rig]) -> None:
    """A task that stops and a task that is killed are reported. A task that a drain has cancelled before is not."""
    rig = make(Policy(timeout=1.0, grace=0.2))
    rig.run("heed", "ok", "spin")
    deadline = f"{time.time() + 0.6:.3f}".encode()
    rig.run("heed", headers=(("x-deadline", deadline),))
    (drained,) = rig.submit("deaf")
    rig.wait_running(drained)
    rig.executor.cancel("drain")
    rig.take(1)
    assert [(one.task.record.offset, one.reason) for one in rig.expired] == [
        (1, "timeout"),
        (3, "timeout"),
        (4, "deadline"),
    ]
