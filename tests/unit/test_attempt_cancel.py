"""Cancelling an attempt, and what can be seen of it while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.support import a_task
from worker.core.model import Failure, Verdict
from worker.errors import Reject, Retry
from worker.handlers.attempt import AttemptRunner

if TYPE_CHECKING:
    from worker.core.model import Task
    from worker.handlers.context import Context


@pytest.mark.parametrize("reason", ["revoked", "drain"])
@pytest.mark.parametrize(
    ("end", "verdict"),
    [
        ("done", Verdict.OK),
        (None, Verdict.OK),
        (ValueError("interrupted"), Verdict.DROPPED),
        (Retry("later", after=5), Verdict.DROPPED),
        (Reject("never"), Verdict.REJECTED),
    ],
)
def test_only_a_failed_attempt_is_dropped_when_it_was_cancelled(reason: Any, end: object, verdict: Verdict) -> None:
    """Its failure may come from the cancelling. A result counts: the task is done, in spite of it."""
    seen: list[str | None] = []

    def handler(_request: object, context: Context) -> Any:
        runner.cancel(reason, task)
        seen.append(context.cancelled.reason)
        if isinstance(end, Exception):
            raise end
        return end

    task = a_task()
    runner = AttemptRunner(handler, {}, 3)
    outcome = runner.run(task)
    assert seen == [reason]
    assert outcome.verdict is verdict
    if verdict is Verdict.DROPPED:
        assert outcome.failure == Failure("Cancelled", reason)


@pytest.mark.parametrize("reason", ["revoked", "drain"])
def test_a_handler_that_raises_what_it_was_cancelled_with_is_dropped(reason: Any) -> None:
    def handler(_request: object, context: Context) -> None:
        runner.cancel(reason, task)
        context.cancelled.raise_if_set()

    task = a_task()
    runner = AttemptRunner(handler, {}, 3)
    outcome = runner.run(task)
    assert (outcome.verdict, outcome.failure) == (Verdict.DROPPED, Failure("Cancelled", reason))


def test_only_the_task_that_is_meant_is_cancelled() -> None:
    """The poll thread may ask when another task has begun, or none runs."""
    late = a_task()

    def handler(_request: object, context: Context) -> str:
        runner.cancel("drain", late)
        return str(context.cancelled.is_set())

    runner = AttemptRunner(handler, {}, 3)
    runner.cancel("drain", late)
    assert runner.run(a_task()).result == b"False"


def test_the_running_task_can_be_seen() -> None:
    seen: list[Any] = []

    def handler(_request: object, _context: object) -> None:
        seen.append(runner.current)

    task = a_task()
    runner = AttemptRunner(handler, {}, 3)
    assert runner.current is None
    runner.run(task)
    assert seen[0] is not None
    assert seen[0][0] is task
    assert seen[0][1] >= 0
    assert runner.current is None


class Journal:
    """Keeps what a runner reports of its starts."""

    def __init__(self) -> None:
        self.lines: list[object] = []

    def started(self, task: Task, _at_ns: int) -> None:
        self.lines.append((task.offset, task.attempt))

    def idle(self) -> None:
        self.lines.append("idle")


def test_each_start_is_written_down_before_the_handler_is_called() -> None:
    """So that a crash of the process can be charged to the right task. What does not start is not written down."""
    journal = Journal()
    runner = AttemptRunner(lambda *_: journal.lines.append("called"), {}, 3)
    runner.starts = journal
    runner.run(a_task(offset=7, attempt=1))
    runner.run(a_task(b"no request"))
    runner.end()
    assert journal.lines == [(7, 2), "called", "idle"]
