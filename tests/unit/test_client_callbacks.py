"""Callbacks and errors on the client's own threads."""

from __future__ import annotations

import queue
import sys
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from worker.client import submitter as submitter_module
from worker.client.answers import Answers
from worker.client.book import Book
from worker.client.client import Client
from worker.client.errors import DeliveryError, TooManyInFlightError
from worker.client.futures import TaskFuture
from worker.client.ids import Origin
from worker.client.submitter import Submission, Submitter
from worker.codec import Response
from worker.core.model import Partition, Record
from worker.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.client.ids import TaskId


class FakeProducer:
    def __init__(self, *_: object) -> None:
        self.confirmations: list[Any] = []
        self.offset = 0

    def send(self, *_: object, confirmed: Any, failed: Any, **__: object) -> bool:
        self.confirmations.append(confirmed)
        return True

    def poll(self, timeout: float) -> None:
        if not self.confirmations:
            time.sleep(0.01)
        while self.confirmations:
            self.confirmations.pop(0)(Partition("requests", 0), self.offset, 1000)
            self.offset += 1

    def flush(self, _timeout: float) -> int:
        return 0

    def purge(self) -> None:
        pass


def answers_with(expect: Callable[..., None]) -> Any:
    """Return the reading side of a client. ``expect`` is called with each confirmed request."""
    return SimpleNamespace(failure=None, threads=[], book=SimpleNamespace(mark=lambda: 0), expect=expect)


def test_a_callback_may_submit_although_other_threads_wait_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitter_module, "RequestProducer", FakeProducer)
    waiting: list[TaskFuture] = []
    answers = answers_with(lambda future, task_id, mark: waiting.append(future))
    submitter = Submitter({}, "requests", 1, answers)
    first = submitter.submit(Submission(None, b"1", ()))
    done = threading.Event()

    def follow_up(_future: object) -> None:
        other.join(5)  # the other thread gets the room
        submitter.submit(Submission(None, b"2", ()))
        done.set()

    first.add_done_callback(follow_up)
    other = threading.Thread(target=submitter.submit, args=(Submission(None, b"3", ()),), daemon=True)
    other.start()

    def reader() -> None:  # like the client's thread that reads answers
        while not done.is_set():
            if waiting:
                waiting.pop(0).answer(b"x")
            time.sleep(0.01)

    answers.threads.append(threading.Thread(target=reader, daemon=True))
    answers.threads[0].start()
    try:
        assert done.wait(5)
    finally:
        submitter.refuse("over")


def test_a_limit_of_zero_is_refused_before_anything_is_started() -> None:
    with pytest.raises(ValueError, match="max_in_flight must be at least 1"):
        Client({}, max_in_flight=0)


def test_an_error_in_a_confirmation_ends_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request is confirmed after the error, so ``submit`` must raise instead of waiting."""
    monkeypatch.setattr(submitter_module, "RequestProducer", FakeProducer)

    def expect(future: TaskFuture, task_id: TaskId, mark: int) -> None:
        raise ValueError("an error of ours")

    submitter = Submitter({}, "requests", 10, answers_with(expect))
    submitter.submit(Submission(None, b"1", ()))
    submitter._thread.join(5)
    with pytest.raises(BrokerError, match="an error of ours"):
        submitter.submit(Submission(None, b"2", ()))


def pausing(submitter: Submitter) -> threading.Event:
    """Let the producer confirm nothing until the returned event is set."""
    go_on, producer = threading.Event(), submitter._producer
    poll = producer.poll

    def paused(timeout: float) -> None:
        time.sleep(0.01)
        if go_on.is_set():
            poll(timeout)

    producer.poll = paused  # type: ignore[method-assign]
    return go_on


def test_a_callback_of_a_confirmation_does_not_wait_for_a_full_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only its thread empties the queue."""
    monkeypatch.setattr(submitter_module, "RequestProducer", FakeProducer)
    submitter = Submitter({}, "requests", 10, answers_with(lambda *_: None))
    raised: queue.Queue[BaseException] = queue.Queue()

    def follow_up(_delivered: object) -> None:
        monkeypatch.setattr(FakeProducer, "send", lambda *_, **__: False)
        try:
            submitter.submit(Submission(None, b"2", ()))
        except TooManyInFlightError as error:
            raised.put(error)

    polls = pausing(submitter)
    first = submitter.submit(Submission(None, b"1", ()))
    first.delivered.add_done_callback(follow_up)
    polls.set()
    try:
        assert isinstance(raised.get(timeout=5), TooManyInFlightError)
    finally:
        submitter.refuse("over")


def test_a_callback_that_exits_loses_no_future(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the client, which fails all futures that it knows."""
    monkeypatch.setattr(submitter_module, "RequestProducer", FakeProducer)
    known: list[TaskFuture] = []
    submitter = Submitter({}, "requests", 10, answers_with(lambda future, task_id, mark: known.append(future)))
    polls = pausing(submitter)
    future = submitter.submit(Submission(None, b"1", ()))
    future.delivered.add_done_callback(lambda _delivered: sys.exit(1))
    polls.set()
    submitter._thread.join(5)
    assert known == [future]


def test_a_request_that_was_not_confirmed_fails_although_a_callback_exits() -> None:
    future, submitter = TaskFuture(), SimpleNamespace(_topic="requests")
    future.delivered.add_done_callback(lambda _delivered: sys.exit(1))
    with pytest.raises(SystemExit):
        Submitter._failed(submitter, future, "scripted")  # type: ignore[arg-type]
    assert isinstance(future.exception(0), DeliveryError)


def test_a_callback_that_exits_leaves_no_other_future_waiting_when_the_client_ends() -> None:
    futures = [TaskFuture() for _ in range(3)]
    book = Book(1000, 0)
    for offset, future in enumerate(futures):
        future.add_done_callback(lambda _done: sys.exit(1))
        book.expect(future, Origin("requests", 0, offset), 1)
    answers: Any = SimpleNamespace(book=book, failure=BrokerError("gone"))
    with pytest.raises(SystemExit):
        Answers.fail_if_ended(answers)
    assert [type(future.exception(0)) for future in futures] == [BrokerError] * 3


def test_a_callback_that_exits_leaves_no_other_future_of_its_answer_unresolved() -> None:
    first, second = TaskFuture(), TaskFuture()
    first.add_done_callback(lambda _done: sys.exit(1))
    book = Book(1000, 0)
    origin = Origin("requests", 0, 7)
    for future in (first, second):
        book.expect(future, origin, 1)
    response = Response(result=b"x", isprocessed=True)
    response.origin.topic, response.origin.partition, response.origin.offset = origin
    answers: Any = SimpleNamespace(book=book)
    with pytest.raises(SystemExit):
        Answers._take(answers, [Record(Partition("acks", 0), 0, None, response.SerializeToString())])
    assert (first.result(0), second.result(0)) == (b"x", b"x")
