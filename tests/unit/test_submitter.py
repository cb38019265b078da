"""The sending side of the client, with a fake producer."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from worker.client import submitter as submitter_module
from worker.client.errors import ClientClosedError, DeliveryError
from worker.client.submitter import Submission, Submitter
from worker.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable

SUBMISSION = Submission(None, b"request", ())


class FakeProducer:
    """A producer that confirms nothing. Its queued records fail when it is purged."""

    def __init__(self, *_: object) -> None:
        self.before_send: Callable[[], None] = lambda: None
        self.broken = threading.Event()
        self._queued: list[Callable[[str], None]] = []

    def send(self, *_: object, failed: Callable[[str], None], **__: object) -> bool:
        self.before_send()
        self._queued.append(failed)
        return True

    def poll(self, _timeout: float) -> None:
        if self.broken.is_set():
            raise BrokerError("_FATAL: scripted")

    def flush(self, _timeout: float) -> int:
        return len(self._queued)

    def purge(self) -> None:
        while self._queued:
            self._queued.pop()("purged")


@pytest.fixture
def submitter(monkeypatch: pytest.MonkeyPatch) -> Submitter:
    monkeypatch.setattr(submitter_module, "RequestProducer", FakeProducer)
    answers: Any = SimpleNamespace(failure=None, threads=[], book=SimpleNamespace(mark=lambda: 0))
    return Submitter({}, "requests", 10, answers)


def close(submitter: Submitter) -> None:
    """Close the submitter as ``Client.close`` does."""
    submitter.refuse("the client is closed")
    submitter.close(0)


def test_a_request_that_is_not_confirmed_when_the_client_is_closed_fails(submitter: Submitter) -> None:
    future = submitter.submit(SUBMISSION)
    assert not future.done()
    close(submitter)
    assert isinstance(future.exception(0), DeliveryError)
    with pytest.raises(ClientClosedError):
        submitter.submit(SUBMISSION)


def test_a_request_that_is_sent_while_the_client_is_closed_fails(submitter: Submitter) -> None:
    """Otherwise its future would never be done, because no thread polls for the confirmation any more."""
    producer: Any = submitter._producer
    producer.before_send = lambda: close(submitter)
    future = submitter.submit(SUBMISSION)
    assert future.done()
    assert isinstance(future.exception(0), DeliveryError)
    assert future.delivered.done()


def test_requests_fail_when_the_producer_fails(submitter: Submitter) -> None:
    """A fatal error of the client ends all deliveries. It must not only end the thread that reports them."""
    producer: Any = submitter._producer
    future = submitter.submit(SUBMISSION)
    producer.broken.set()
    assert isinstance(future.exception(5), DeliveryError)
    with pytest.raises(BrokerError, match="make a new one: _FATAL: scripted"):
        submitter.submit(SUBMISSION)
