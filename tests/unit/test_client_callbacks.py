"""Callbacks and errors on the client's own threads."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from worker.client import submitter as submitter_module
from worker.client.submitter import Submission, Submitter
from worker.core.model import Partition
from worker.errors import BrokerError

if TYPE_CHECKING:
    from worker.client.futures import TaskFuture
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


def test_a_callback_may_submit_although_other_threads_wait_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitter_module, "RequestProducer", FakeProducer)
    waiting: list[TaskFuture] = []
    answers: Any = SimpleNamespace(
        failure=None,
        threads=[],
        book=SimpleNamespace(mark=lambda: 0),
        expect=lambda future, task_id, mark: waiting.append(future),
    )
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


@pytest.mark.parametrize("limit", [0])
def test_a_limit_of_zero_is_refused(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitter_module, "RequestProducer", FakeProducer)
    answers: Any = SimpleNamespace(failure=None, threads=[], book=SimpleNamespace(mark=lambda: 0))
    with pytest.raises(ValueError, match="at least 1"):
        Submitter({}, "requests", limit, answers)


def test_an_error_in_a_confirmation_ends_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request is confirmed after the error, so ``submit`` must raise instead of waiting."""
    monkeypatch.setattr(submitter_module, "RequestProducer", FakeProducer)

    def expect(future: TaskFuture, task_id: TaskId, mark: int) -> None:
        raise ValueError("an error of ours")

    answers: Any = SimpleNamespace(failure=None, threads=[], book=SimpleNamespace(mark=lambda: 0), expect=expect)
    submitter = Submitter({}, "requests", 10, answers)
    submitter.submit(Submission(None, b"1", ()))
    submitter._thread.join(5)
    with pytest.raises(BrokerError, match="an error of ours"):
        submitter.submit(Submission(None, b"2", ()))
