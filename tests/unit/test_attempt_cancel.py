"""Cancelling an attempt, and observing it while it runs."""

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
def test_a_cancelled_attempt_is_dropped_only_if_it_fails(reason: Any, end: object, verdict: Verdict) -> None:
    """The cancellation may have caused the failure. A result counts, because the task is done."""
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
def test_an_attempt_that_raises_its_cancellation_is_dropped(reason: Any) -> None:
    def handler(_request: object, context: Context) -> None:
        runner.cancel(reason, task)
        context.cancelled.raise_if_set()

    task = a_task()
    runner = AttemptRunner(handler, {}, 3)
    outcome = runner.run(task)
    assert (outcome.verdict, outcome.failure) == (Verdict.DROPPED, Failure("Cancelled", reason))


def test_only_the_named_task_is_cancelled() -> None:
    """The poll thread may cancel a task when another one has started, or when none runs."""
    late = a_task()

    def handler(_request: object, context: Context) -> str:
        runner.cancel("drain", late)
        return str(context.cancelled.is_set())

    runner = AttemptRunner(handler, {}, 3)
    runner.cancel("drain", late)
    assert runner.run(a_task()).result == b"False"


def test_a_runner_shows_its_running_task() -> None:
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
    """A record of the starts that a runner reports."""

    def __init__(self) -> None:
        self.lines: list[object] = []

    def started(self, task: Task, _at_ns: int) -> None:
        self.lines.append((task.offset, task.attempt))

    def idle(self) -> None:
        self.lines.append("idle")


def test_each_start_is_recorded_before_the_handler_is_called() -> None:
    """So a crash of the process is counted for the right task. A task that does not start is not recorded."""
    journal = Journal()
    runner = AttemptRunner(lambda *_: journal.lines.append("called"), {}, 3)
    runner.starts = journal
    runner.run(a_task(offset=7, attempt=1))
    runner.run(a_task(b"no request"))
    runner.end()
    assert journal.lines == [(7, 2), "called", "idle"]
