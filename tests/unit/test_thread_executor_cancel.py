"""How the poll thread sees and cancels the running task of the executor's thread."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from unittest.mock import MagicMock

from tests.unit.poll_thread import LONG, OTHER, next_event
from tests.unit.support import PARTITION, Watch, a_task
from worker.core.lease import Lease
from worker.core.model import Outcome, Verdict
from worker.executors.mailbox import Mailbox
from worker.executors.thread import BatchExecutor, ThreadExecutor
from worker.handlers import attempt as attempt_module
from worker.handlers import context as context_module
from worker.handlers.attempt import AttemptRunner
from worker.handlers.batch import BatchRunner
from worker.process.dispatcher import Dispatcher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest

    from worker.core.model import Task
    from worker.executors.port import Event
    from worker.handlers.batch import Batch, BatchContext
    from worker.handlers.context import Context


class Endless:
    """A handler that runs until it is cancelled."""

    def __init__(self) -> None:
        self.begun = threading.Event()

    def __call__(self, _request: object, context: Context) -> str:
        self.begun.set()
        assert context.cancelled.wait(LONG)
        return str(context.cancelled.reason)


def test_a_handler_that_starts_after_the_first_cancel_is_cancelled_by_the_next() -> None:
    """When the poll thread first cancels, the task may be submitted although its handler is not called yet."""
    handler, mailbox, task = Endless(), Mailbox(), a_task()
    executor = ThreadExecutor(AttemptRunner(handler, {}, 3), mailbox)
    executor.submit([task])
    assert executor.cancel("drain") == []
    assert executor.running is None
    executor.start()
    assert handler.begun.wait(LONG)
    assert executor.cancel("drain") == [task]
    event = next_event(mailbox)
    assert isinstance(event, Outcome)
    assert (event.verdict, event.result) == (Verdict.OK, b"drain")
    assert executor.cancel("drain") == []


def test_only_a_task_under_the_given_claims_is_cancelled() -> None:
    """The first reason stays."""
    handler, mailbox, task = Endless(), Mailbox(), a_task()
    executor = ThreadExecutor(AttemptRunner(handler, {}, 3), mailbox)
    executor.start()
    executor.submit([task])
    assert handler.begun.wait(LONG)
    running = executor.running
    assert running is not None
    assert running.task is task
    assert running.seconds >= 0
    assert not executor.check()
    assert executor.cancel("drain", [Lease(PARTITION)]) == []
    assert executor.cancel("drain", []) == []
    assert executor.cancel("revoked", [task.claim]) == [task]
    executor.cancel("drain")
    event = next_event(mailbox)
    assert isinstance(event, Outcome)
    assert event.result == b"revoked"


def test_a_task_is_cancelled_when_its_deadline_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    handler, mailbox, watch = Endless(), Mailbox(), Watch()
    for module in (attempt_module, context_module):
        monkeypatch.setattr(module, "time", watch)
    task = a_task(headers=(("x-deadline", str(watch.time() + 60.0).encode()),))
    executor = ThreadExecutor(AttemptRunner(handler, {}, 3), mailbox)
    executor.start()
    executor.submit([task])
    assert handler.begun.wait(LONG)
    assert not executor.check()
    watch.sleep(60.0)
    assert executor.check() == [(task, "deadline")]
    event = next_event(mailbox)
    assert isinstance(event, Outcome)
    assert event.result == b"deadline"


def test_a_task_is_cancelled_at_its_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deadline that passes afterwards does not change the reason."""
    handler, mailbox, watch = Endless(), Mailbox(), Watch()
    for module in (attempt_module, context_module):
        monkeypatch.setattr(module, "time", watch)
    task = a_task(headers=(("x-deadline", str(watch.time() + 60.0).encode()),))
    executor = ThreadExecutor(AttemptRunner(handler, {}, 3, timeout=10.0), mailbox)
    executor.start()
    executor.submit([task])
    assert handler.begun.wait(LONG)
    assert not executor.check()
    watch.sleep(10.0)
    assert executor.check() == [(task, "timeout")]
    event = next_event(mailbox)
    assert isinstance(event, Outcome)
    assert event.result == b"timeout"
    assert not executor.check()


def test_a_batch_is_cancelled_at_its_time_limit() -> None:
    mailbox, task = Mailbox(), a_task()
    finish = threading.Event()

    def handler(batch: Batch, context: BatchContext) -> None:
        assert context.cancelled.wait(LONG)
        assert finish.wait(LONG)
        for one in batch:
            batch.ack(one)

    executor = BatchExecutor(lambda post: BatchRunner(handler, {}, 3, post, timeout=0.001), mailbox)
    executor.start()
    executor.submit([task])
    while not (expired := executor.check()):
        mailbox.wait(0.001)
    assert expired == [(task, "timeout")]
    finish.set()
    assert isinstance(next_event(mailbox), Outcome)


def running_batch(
    handler: Callable[[Batch, BatchContext], None], mailbox: Mailbox, tasks: Sequence[Task], *, cancel_wait: float
) -> tuple[BatchExecutor, Dispatcher]:
    """Start a batch. Return its executor, and a dispatcher for which it is in flight."""
    executor = BatchExecutor(lambda post: BatchRunner(handler, {}, 3, post), mailbox)
    shared = MagicMock()
    shared.config.cancel_wait = cancel_wait
    dispatcher = Dispatcher(shared, executor, MagicMock(), MagicMock(), None)
    dispatcher.in_flight = 1
    executor.start()
    executor.submit(tasks)
    return executor, dispatcher


def test_a_batch_is_not_cancelled_if_the_lease_of_a_settled_task_ends() -> None:
    """The dispatcher sees only the tasks that are not settled yet. If their lease ends, it cancels the batch."""
    acked, go_on, mailbox = threading.Event(), threading.Event(), Mailbox()
    ended, other = Lease(PARTITION), Lease(OTHER)
    first, second = a_task(offset=1, lease=ended), a_task(offset=2, lease=other)

    def handler(batch: Batch, context: BatchContext) -> None:
        batch.ack(batch[0])
        acked.set()
        assert go_on.wait(LONG)
        batch.ack(batch[1], context.cancelled.reason or "not cancelled")

    _, dispatcher = running_batch(handler, mailbox, [first, second], cancel_wait=0.0)
    assert acked.wait(LONG)
    ended.end()
    dispatcher.check(0.0)
    assert not dispatcher.cancelled
    assert not dispatcher.is_blocked(1.0)
    other.end()
    dispatcher.check(2.0)
    assert dispatcher.cancelled == {first: 2.0}
    assert dispatcher.is_blocked(3.0)
    go_on.set()
    outcomes: list[Event] = []
    while len(outcomes) < 2:
        mailbox.wait(LONG)
        outcomes += mailbox.take()
    assert [one.result for one in outcomes if isinstance(one, Outcome)] == [b"", b"revoked"]


def test_a_cancelled_batch_is_blocked_however_many_tasks_it_settles() -> None:
    """It is reported once. When all of them are settled, nothing is left that the end of a lease concerns."""
    settle, settled, end, mailbox = threading.Semaphore(0), threading.Semaphore(0), threading.Event(), Mailbox()
    lease = Lease(PARTITION)
    tasks = [a_task(offset=offset, lease=lease) for offset in (1, 2, 3)]
    reasons: list[str | None] = []

    def handler(batch: Batch, context: BatchContext) -> None:
        for task in batch:
            assert settle.acquire(timeout=LONG)
            batch.ack(task)
            settled.release()
        assert end.wait(LONG)
        reasons.append(context.cancelled.reason)

    executor, dispatcher = running_batch(handler, mailbox, tasks, cancel_wait=5.0)
    settle.release()
    assert settled.acquire(timeout=LONG)
    lease.end()
    for now in (1.0, 3.0):
        dispatcher.check(now)
    settle.release()
    assert settled.acquire(timeout=LONG)
    for now in (4.0, 5.0):
        dispatcher.check(now)
    assert dispatcher.cancelled == {tasks[0]: 1.0}
    assert not dispatcher.is_blocked(5.9)
    assert dispatcher.is_blocked(6.0)
    settle.release()
    assert settled.acquire(timeout=LONG)
    dispatcher.check(7.0)
    assert not dispatcher.is_blocked(7.0)
    assert executor.cancel("drain") == []
    end.set()
    while not reasons:
        mailbox.wait(0.01)
    assert reasons == ["revoked"]


def test_a_batch_keeps_its_grace_although_its_first_task_was_cancelled_before() -> None:
    """That was a cancel request for this task alone."""
    begun, end, mailbox, other = threading.Event(), threading.Event(), Mailbox(), Lease(OTHER)
    first, second = a_task(offset=1), a_task(offset=2, lease=other)

    def handler(_batch: Batch, _context: BatchContext) -> None:
        begun.set()
        assert end.wait(LONG)

    _, dispatcher = running_batch(handler, mailbox, [first, second], cancel_wait=5.0)
    assert begun.wait(LONG)
    assert dispatcher.cancel_task(first)
    assert dispatcher.cancel_task(first)
    other.end()
    dispatcher.check(100.0)
    assert not dispatcher.is_blocked(104.0)
    assert dispatcher.is_blocked(105.0)
    labels = [call.kwargs["label"] for call in dispatcher._metrics.add.call_args_list]  # type: ignore[attr-defined]
    assert labels == ["requested", "revoked"]
    end.set()


def test_a_batch_that_has_just_ended_is_not_reported_as_cancelled() -> None:
    """It ends between the two reads of the poll thread. A drain must not count it as given up."""
    executor = BatchExecutor(lambda post: BatchRunner(lambda *_: None, {}, 3, post), Mailbox())
    executor._runner = MagicMock(current=(a_task(), 1.0))
    executor._runner.open_tasks.return_value = ()
    assert executor.cancel("drain") == []


def test_a_batch_is_cancelled_if_one_of_its_tasks_is() -> None:
    begun, mailbox = threading.Event(), Mailbox()
    other = Lease(OTHER)
    first, second = a_task(offset=1), a_task(offset=2, lease=other)

    def handler(batch: Batch, context: BatchContext) -> None:
        begun.set()
        assert context.cancelled.wait(LONG)
        for task in batch:
            batch.ack(task, context.cancelled.reason)

    executor = BatchExecutor(lambda post: BatchRunner(handler, {}, 3, post), mailbox)
    executor.submit([first, second])
    assert executor.cancel("revoked", [other]) == []
    executor.start()
    assert begun.wait(LONG)
    running = executor.running
    assert running is not None
    assert running.task is first
    assert not executor.check()
    assert executor.cancel("revoked", [Lease(OTHER)]) == []
    assert executor.cancel("revoked", [other]) == [first]
    outcomes: list[Event] = []
    while len(outcomes) < 2:
        mailbox.wait(LONG)
        outcomes += mailbox.take()
    assert [one.result for one in outcomes if isinstance(one, Outcome)] == [b"revoked", b"revoked"]
