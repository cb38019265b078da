"""Reports of a handler: its thread checks them, and the poll thread gets the latest ones."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.support import a_task
from worker.core.task_state import CHECKPOINT_LIMIT
from worker.executors.mailbox import Mailbox
from worker.executors.reports import MailboxSink, PendingReport
from worker.executors.thread import ThreadExecutor
from worker.handlers.attempt import AttemptRunner
from worker.testing import run_handler

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.handlers.context import Context

LONG = 30.0  # seconds; only a failure ever waits so long


def run(handler: Callable[[Any, Context], Any]) -> Any:
    return run_handler(handler, "")


@pytest.mark.parametrize("fraction", [-0.01, 1.01, float("nan")])
def test_a_progress_fraction_outside_0_to_1_fails_the_attempt(fraction: float) -> None:
    result = run(lambda _, context: context.progress(fraction))
    assert (result.outcome, result.error_type) == ("FAILED", "ValueError")
    assert result.message.endswith("the fraction must be a number from 0 to 1")


def test_a_checkpoint_that_is_too_large_is_refused() -> None:
    result = run(lambda _, context: context.checkpoint(bytes(CHECKPOINT_LIMIT + 1)))
    assert result.message == (
        "a checkpoint may have 1,000,000 bytes, this one has 1,000,001: save the data elsewhere, "
        "and checkpoint where it is"
    )
    assert run(lambda _, context: context.checkpoint(bytes(CHECKPOINT_LIMIT))).outcome == "OK"


def test_a_checkpoint_must_be_bytes() -> None:
    wrong: Any = "text"
    result = run(lambda _, context: context.checkpoint(wrong))
    assert (result.error_type, result.message) == ("TypeError", "a checkpoint must be bytes, not str: encode it")


def test_run_handler_supports_progress_and_checkpoints() -> None:
    """``run_handler`` passes a checkpoint to the handler, and returns the reports."""

    def handle(_: Any, context: Context) -> bytes | None:
        context.progress(0.5, "half")
        context.checkpoint(b"one")
        context.progress(1)
        return context.resume

    result = run_handler(handle, "", resume=b"zero")
    assert (result.result, result.progress, result.checkpoints) == (b"zero", ((0.5, "half"), (1.0, "")), (b"one",))
    assert run(lambda _, context: str(context.resume)).result == b"None"


def test_the_latest_report_counts() -> None:
    """For any number of reports there is one event in the mailbox until the poll thread takes it."""
    mailbox, taken, go_on = Mailbox(), threading.Event(), threading.Event()

    def handle(_: Any, context: Context) -> None:
        for step in range(100):
            context.progress(step / 100, str(step))
        context.checkpoint(b"first")
        taken.set()
        assert go_on.wait(LONG)
        context.checkpoint(b"second")

    executor = ThreadExecutor(AttemptRunner(handle, {}, 3), mailbox)
    executor.start()
    task = a_task()
    executor.submit([task])
    assert taken.wait(LONG)
    (event,) = mailbox.take()
    assert isinstance(event, PendingReport)
    assert event.take() == (task, (0.99, "99"), b"first")
    go_on.set()
    events: list[Any] = []
    while len(events) < 2:
        mailbox.wait(LONG)
        events += mailbox.take()
    assert events[0].take() == (task, None, b"second")
    assert events[1].task is task


def test_each_task_has_one_report_in_the_mailbox() -> None:
    """This holds also if two tasks that run beside each other report in turn."""
    mailbox, tasks = Mailbox(), [a_task(offset=number) for number in range(2)]
    sink = MailboxSink(mailbox.post, mailbox.notify)
    for step in range(100):
        for task in tasks:
            sink.checkpoint(task, str(step).encode())
    events: list[Any] = [*mailbox.take()]
    assert [event.take() for event in events] == [(task, None, b"99") for task in tasks]
    sink.progress(tasks[0], 1.0, "end")
    (event,) = mailbox.take()
    assert isinstance(event, PendingReport)
    assert event.take() == (tasks[0], (1.0, "end"), None)


def test_a_report_after_the_end_of_the_attempt_is_ignored() -> None:
    """The context of the attempt is no longer valid."""
    mailbox = Mailbox()
    kept: list[Context] = []
    executor = ThreadExecutor(AttemptRunner(lambda _, context: kept.append(context), {}, 3), mailbox)
    executor.start()
    executor.submit([a_task()])
    events: list[Any] = []
    while not events:
        mailbox.wait(LONG)
        events += mailbox.take()
    kept[0].progress(0.5)
    kept[0].checkpoint(b"late")
    assert mailbox.take() == []
