"""When the dispatcher starts tasks, and how many must end before another one starts."""

from __future__ import annotations

import math
from typing import Any
from unittest.mock import MagicMock

import pytest

from worker.executors.port import Running
from worker.process.dispatcher import Dispatcher


@pytest.mark.parametrize(("alone", "in_slot"), [(False, 1), (True, 2)])
def test_a_suspect_runs_beside_long_tasks_only(alone: bool, in_slot: int) -> None:
    """Without a suspect, tasks start beside every task in ``beside``."""
    shared, executor = MagicMock(), MagicMock()
    shared.config.long_after = 60.0
    shared.assignment = [MagicMock(has_suspect=False), MagicMock(has_suspect=alone)]
    executor.beside = [Running(MagicMock(reported=False), seconds, []) for seconds in (61.0, 1.0)]
    dispatcher = Dispatcher(shared, executor, MagicMock(), MagicMock(), None)
    dispatcher.in_flight = 3
    assert dispatcher.in_slot == in_slot


def test_with_synchronous_commits_no_task_is_taken_during_a_transaction() -> None:
    dispatcher, shared = dispatcher_of(commit_mode="sync")
    dispatcher._responder.busy = True  # type: ignore[misc]
    dispatcher.dispatch(0.0)
    shared.assignment.take.assert_not_called()
    dispatcher._responder.busy = False  # type: ignore[misc]
    dispatcher.dispatch(0.0)
    shared.assignment.take.assert_called()


def test_a_task_that_could_not_start_when_due_does_not_keep_the_loop_awake() -> None:
    """The task waits for another condition than the time, such as room in the commit metadata."""
    dispatcher, shared = dispatcher_of()
    shared.assignment.next_ready.return_value = 5.0
    dispatcher.dispatch(4.0)
    assert dispatcher.next_due() == 5.0
    dispatcher.dispatch(5.0)
    assert dispatcher.next_due() == math.inf


def dispatcher_of(**config: Any) -> tuple[Dispatcher, MagicMock]:
    shared, executor, committer = MagicMock(), MagicMock(beside=[]), MagicMock(in_flight=False, round_trip=0.002)
    committer.starts_are_overdue.return_value = False
    shared.config = MagicMock(**{"batch_size": 1, "max_attempts": 3, "commit_mode": "async", "peek": 0} | config)
    shared.guarantee.starts_once = False
    shared.assignment.take.return_value = []
    responder = MagicMock(outstanding=0, outstanding_bytes=0, busy=False)
    return Dispatcher(shared, executor, responder, committer, None), shared
