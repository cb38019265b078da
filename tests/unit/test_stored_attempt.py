"""Attempts whose results go into an offset store. Each has one outcome, whatever the store does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.unit.support import a_task
from worker.core.lease import Lease
from worker.core.model import Failure, Outcome, Verdict
from worker.errors import Reject
from worker.executors.mailbox import Mailbox
from worker.executors.port import ExecutorFailed
from worker.executors.thread import ThreadExecutor
from worker.handlers.attempt import AttemptRunner
from worker.handlers.stored_attempt import AGAIN_SECONDS, StoredAttemptRunner, StoredContext
from worker.handlers.task_view import view_of
from worker.stores.port import RefusedError, StaleOffsetError, StoredAnswer, StoreError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from worker.core.model import Task
    from worker.stores.port import OffsetStore, StoreTransaction


class Transaction:
    """A transaction of a store, with a scripted error."""

    handle = "handle"

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.calls: list[str] = []

    def commit(self, answer: StoredAnswer) -> None:
        self.calls.append(f"commit {answer.result!r} {answer.attempt}")
        if self.error is not None:
            raise self.error

    def rollback(self) -> None:
        self.calls.append("rollback")


class Store:
    """A store whose calls raise scripted errors."""

    def __init__(self, *, begin: Exception | None = None, commit: Exception | None = None) -> None:
        self.begin_error = begin
        self.transaction = Transaction(commit)
        self.stored: list[StoredAnswer] = []

    def begin(self, _partition: object, _offset: int) -> Transaction:
        if self.begin_error is not None:
            raise self.begin_error
        return self.transaction

    def answers(self, _partition: object, _start: int, _stop: int) -> Iterator[StoredAnswer]:
        return iter(self.stored)


def run_stored(store: Store, task: Task, handler: Callable[..., Any] = lambda _request, _context: "done") -> Outcome:
    runner = StoredAttemptRunner(handler, {}, 3, cast("OffsetStore", store), lambda _outcome: None)
    runner.begin()
    return runner.run(task)


BROKEN_STORES: list[tuple[Exception, str]] = [
    (RefusedError("no such table"), "StoreRefused"),
    (KeyError("x"), "KeyError"),
    (RuntimeError("broken"), "RuntimeError"),
]


@pytest.mark.parametrize(("error", "shown"), BROKEN_STORES)
def test_an_attempt_fails_if_the_store_cannot_begin_a_transaction(error: Exception, shown: str) -> None:
    """The handler is not called. After the last attempt the request is dead-lettered."""
    task = a_task()
    outcome = run_stored(Store(begin=error), task, lambda _request, _context: pytest.fail("started"))
    assert (outcome.verdict, outcome.result, task.attempt) == (Verdict.FAILED, b"", 1)
    assert outcome.failure is not None
    assert outcome.failure.type == shown


def test_the_outcome_has_the_sequence_although_the_store_cannot_begin() -> None:
    """The dead letter and the answer contain the sequence."""
    assert run_stored(Store(begin=KeyError("x")), a_task()).sequence == 7


@pytest.mark.parametrize(("error", "shown"), BROKEN_STORES)
def test_an_attempt_fails_if_the_store_cannot_commit(error: Exception, shown: str) -> None:
    task = a_task()
    outcome = run_stored(Store(commit=error), task)
    assert (outcome.verdict, task.attempt) == (Verdict.FAILED, 1)
    assert outcome.failure is not None
    assert outcome.failure.type == shown


@pytest.mark.parametrize("where", ["begin", "commit"])
def test_an_unavailable_store_uses_up_no_attempt(where: str) -> None:
    """The next attempt follows after ``AGAIN_SECONDS``."""
    task, store = a_task(attempt=1), Store(**{where: StoreUnavailableError("away")})
    outcome = run_stored(store, task)
    assert (outcome.verdict, outcome.retry_after, task.attempt) == (Verdict.FAILED, AGAIN_SECONDS, 1)
    assert outcome.failure == Failure("StoreUnavailable", "away")


@pytest.mark.parametrize("where", ["begin", "commit"])
def test_a_store_that_is_set_up_wrongly_ends_the_process(where: str) -> None:
    with pytest.raises(StoreError, match="set up wrongly"):
        run_stored(Store(**{where: StoreError("set up wrongly")}), a_task())


@pytest.mark.parametrize("where", ["begin", "commit"])
def test_a_request_that_the_store_has_finished_gets_the_stored_answer(where: str) -> None:
    store, task = Store(**{where: StaleOffsetError("done")}), a_task()
    assert run_stored(store, a_task()).verdict is Verdict.DONE
    store.stored = [StoredAnswer(42, b"k", b"stored", 7, 2, 1, 2, 0.5)]
    outcome = run_stored(store, task)
    assert (outcome.verdict, outcome.result, task.attempt) == (Verdict.OK, b"stored", 2)


def test_a_good_result_is_committed_and_any_other_rolled_back() -> None:
    good, bad, late = Store(), Store(), Store()
    assert run_stored(good, a_task(), lambda _request, context: context.transaction).verdict is Verdict.OK
    assert good.transaction.calls == ["commit b'handle' 1"]
    assert run_stored(bad, a_task(), lambda _request, _context: 1 / 0).verdict is Verdict.FAILED
    assert bad.transaction.calls == ["rollback"]
    lost = a_task()

    def losing(_request: object, _context: object) -> str:
        assert isinstance(lost.claim, Lease)
        lost.claim.end()
        return "done"

    run_stored(late, lost, losing)
    assert late.transaction.calls == ["rollback"]


@pytest.mark.parametrize(("end", "verdict"), [("done", Verdict.OK), (ValueError("x"), Verdict.DROPPED)])
def test_a_result_that_a_cancelled_task_returns_is_committed_in_the_store(end: object, verdict: Verdict) -> None:
    store, task = Store(), a_task()

    def handler(_request: object, _context: object) -> Any:
        runner.cancel("revoked", task)
        if isinstance(end, Exception):
            raise end
        return end

    runner = StoredAttemptRunner(handler, {}, 3, cast("OffsetStore", store), lambda _outcome: None)
    runner.begin()
    assert runner.run(task).verdict is verdict
    assert store.transaction.calls == ["commit b'done' 1" if verdict is Verdict.OK else "rollback"]


@pytest.mark.parametrize("where", ["begin", "commit"])
def test_an_error_of_the_store_reaches_the_poll_thread(where: str) -> None:
    """The error passes through the executor. A defect fails the attempt. A wrong configuration ends the process."""
    for error, kind in ((KeyError("x"), Outcome), (StoreError("set up wrongly"), ExecutorFailed)):
        mailbox, store = Mailbox(), Store(**{where: error})
        runner = StoredAttemptRunner(
            lambda _request, _context: "done", {}, 3, cast("OffsetStore", store), lambda _outcome: None
        )
        executor = ThreadExecutor(runner, mailbox)
        executor.start()
        executor.submit([a_task()])
        mailbox.wait(30)
        (event,) = mailbox.take()
        assert isinstance(event, kind)
        if isinstance(event, ExecutorFailed):
            assert event.error is error


def test_a_handler_with_an_offset_store_cannot_send() -> None:
    context = StoredContext(view_of(a_task(), None), cast("StoreTransaction", None), AttemptRunner(lambda: None, {}, 3))
    with pytest.raises(Reject, match="WORKER_OFFSET_STORE"):
        context.send("a")


def expired_task() -> Task:
    return a_task(headers=(("x-deadline", b"1"),))


def test_an_expired_request_gets_the_stored_answer_if_there_is_one() -> None:
    """The commit of an attempt in time may have been applied although the store did not reply."""
    store = Store(begin=StaleOffsetError("done"))
    store.stored = [StoredAnswer(42, b"k", b"stored", 7, 2, 1, 2, 0.5)]
    outcome = run_stored(store, expired_task())
    assert (outcome.verdict, outcome.result, outcome.sequence) == (Verdict.OK, b"stored", 7)


def test_an_expired_request_that_is_not_stored_expires() -> None:
    store = Store()
    assert run_stored(store, expired_task()).verdict is Verdict.EXPIRED
    assert store.transaction.calls == ["rollback"]


def test_an_expired_request_waits_for_the_store() -> None:
    outcome = run_stored(Store(begin=StoreUnavailableError("away")), expired_task())
    assert (outcome.verdict, outcome.retry_after, outcome.sequence) == (Verdict.FAILED, AGAIN_SECONDS, 7)
