"""What becomes of an outcome."""

from __future__ import annotations

from unittest.mock import MagicMock

from tests.unit.support import a_task
from worker.core.model import Failure, Outcome, Verdict
from worker.handlers.stored_attempt import STORE_UNAVAILABLE
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


def test_a_task_that_did_not_start_may_still_be_stored() -> None:
    """An attempt before it ended in a commit with unknown outcome."""
    shared = MagicMock()
    shared.config.message_format, shared.config.max_attempts = "protobuf", 3
    shared.assignment.owner_of.return_value = None
    results = ResultHandler(shared, MagicMock(), MagicMock(), MagicMock(), MagicMock(), MagicMock(), MagicMock())
    task, owned = a_task(), MagicMock()
    owned.lease = task.claim
    unknown = Outcome(task, Verdict.FAILED, failure=Failure(STORE_UNAVAILABLE, "away"), started_ns=1)
    for outcome in (unknown, Outcome(task, Verdict.NOT_STARTED)):
        results._handle(outcome, 0.0)
        assert results.may_be_stored(owned, task.offset)
    results._handle(Outcome(task, Verdict.DROPPED, failure=Failure("Cancelled", "drain"), started_ns=1), 0.0)
    assert not results.may_be_stored(owned, task.offset)
