"""The stack of a task that runs in a child."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.isolation.rig import names
from worker.stacks import stacks

if TYPE_CHECKING:
    from tests.isolation.rig import Rig

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("payload", ["grip 2", "nap 2"])
def test_the_child_that_runs_the_task_shows_its_stack(rig: Rig, payload: str) -> None:
    """Also while C code holds its interpreter; the task goes on to its result."""
    (task,) = rig.submit(payload)
    rig.wait_running(task)
    running = rig.executor.running
    assert running is not None
    assert running.pid in rig.family

    text = stacks(running.pid)

    assert f"{payload.split(maxsplit=1)[0]} (" in text
    assert "handlers/faulty.py" in text
    assert names(rig.take(1)) == ["OK"]
