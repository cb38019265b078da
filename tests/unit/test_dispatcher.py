"""How many tasks must end before another one starts."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from worker.executors.port import Running
from worker.process.dispatcher import Dispatcher


@pytest.mark.parametrize(("alone", "in_slot"), [(False, 1), (True, 2)])
def test_a_task_that_may_crash_runs_beside_long_tasks_only(alone: bool, in_slot: int) -> None:
    """Other tasks start beside every task that was set aside."""
    shared, executor = MagicMock(), MagicMock()
    shared.config.long_after = 60.0
    shared.assignment = [MagicMock(has_suspect=False), MagicMock(has_suspect=alone)]
    executor.beside = [Running(MagicMock(reported=False), seconds) for seconds in (61.0, 1.0)]
    dispatcher = Dispatcher(shared, executor, MagicMock(), MagicMock(), None)
    dispatcher.in_flight = 3
    assert dispatcher.in_slot == in_slot
