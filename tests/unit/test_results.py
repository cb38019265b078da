"""What becomes of an outcome."""

from __future__ import annotations

from unittest.mock import MagicMock

from tests.unit.support import a_task
from worker.core.model import Outcome, Verdict
from worker.process.results import ResultHandler


def test_a_cancelled_task_that_did_not_start_is_answered_with_its_sequence() -> None:
    """The outcome of a task that did not start has no sequence."""
    shared, responder = MagicMock(), MagicMock()
    shared.config.message_format = "protobuf"
    results = ResultHandler(shared, MagicMock(), MagicMock(), responder, MagicMock(), None, MagicMock())
    task = a_task()
    results.to_cancel(task)
    results._handle(Outcome(task, Verdict.NOT_STARTED), 0.0)
    ((outcome, _, code), _) = responder.fail.call_args
    assert (outcome.sequence, code) == (7, "CANCELLED")
