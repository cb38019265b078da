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
def test_the_stack_of_a_task_can_be_read_from_its_child(rig: Rig, payload: str) -> None:
    """Also while C code holds the interpreter lock. The task runs on and returns its result."""
    (task,) = rig.submit(payload)
    rig.wait_running(task)
    running = rig.executor.running
    assert running is not None
    assert running.pid in rig.family

    text = stacks(running.pid)

    assert f"{payload.split(maxsplit=1)[0]} (" in text
    assert "handlers/faulty.py" in text
    assert names(rig.take(1)) == ["OK"]
