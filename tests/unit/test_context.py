"""What a handler is told, and how it learns that it should stop."""

from __future__ import annotations

import pickle
import threading
import time

import pytest
import structlog

from tests.unit.support import PARTITION, a_task
from worker.core.task_state import Origin
from worker.handlers.context import Cancelled, Context
from worker.handlers.task_view import view_of

LONG = 30.0  # seconds; only a failure ever waits so long


def test_a_context_tells_of_its_request() -> None:
    headers = (("trace", b"1"), ("trace", None))
    context = Context(view_of(a_task(key=b"key", headers=headers, attempt=2), None))
    assert (context.attempt, context.key, context.headers) == (2, b"key", headers)
    assert context.origin == Origin(PARTITION.topic, PARTITION.number, 42)
    assert str(context.origin) == "requests/3/42"
    assert (context.remaining, context.upcoming, context.transaction) == (None, (), None)


def test_it_shows_the_requests_that_come_next() -> None:
    """What is no request is left out."""
    task = a_task()
    task.upcoming = tuple(a_task(value).record for value in (b"\x08\x01\x12\x01a", None, b"\xff", b"\x08\x02\x12\x01b"))
    shown = Context(view_of(task, None)).upcoming
    assert [(request.sequence, request.payload) for request in shown] == [(1, "a"), (2, "b")]


def test_what_it_knows_of_its_task_can_be_pickled() -> None:
    view = view_of(a_task(key=b"key", attempt=2), 5.0)
    assert pickle.loads(pickle.dumps(view)) == view


def test_its_logger_says_which_request() -> None:
    context = Context(view_of(a_task(attempt=3), None))
    with structlog.testing.capture_logs() as lines:
        context.log.info("hello", more=1)
    assert lines == [
        {"event": "hello", "log_level": "info", "more": 1, "attempt": 3}
        | {"topic": PARTITION.topic, "partition": PARTITION.number, "offset": 42}
    ]


@pytest.mark.parametrize(("ahead", "least", "most"), [(600, 500, 600), (-60, 0, 0)])
def test_what_remains_until_the_deadline_never_falls_below_nothing(ahead: float, least: float, most: float) -> None:
    remaining = Context(view_of(a_task(), time.time() + ahead)).remaining
    assert remaining is not None
    assert least <= remaining <= most


def test_a_task_goes_on_until_it_is_cancelled() -> None:
    """Asked as an event, as a truth, or by waiting without time."""
    cancelled = Cancelled()
    assert not cancelled
    assert not cancelled.is_set()
    assert not cancelled.wait(0)
    assert cancelled.reason is None


def test_the_first_reason_stays() -> None:
    cancelled = Cancelled()
    cancelled.set("revoked")
    cancelled.set("drain")
    assert cancelled
    assert cancelled.is_set()
    assert cancelled.wait()
    assert cancelled.reason == "revoked"


def test_whoever_waits_is_woken() -> None:
    """A thread that sleeps on the event wakes at once, without a time-out."""
    cancelled, waiting = Cancelled(), threading.Event()
    woken: list[bool] = []

    def wait() -> None:
        waiting.set()
        woken.append(cancelled.wait())

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    cancelled.set("deadline")
    thread.join(LONG)
    assert woken == [True]


def test_every_thread_that_waits_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when a second one begins to wait in the very moment in which the first one does."""
    cancelled = Cancelled()
    threads = [threading.Thread(target=cancelled.wait, args=(LONG,)) for _ in range(2)]
    waits = {thread: threading.Event() for thread in threads}

    class Event(threading.Event):
        """While the first thread makes its event, the second one comes and waits."""

        def __init__(self) -> None:
            super().__init__()
            if threading.current_thread() is threads[0]:
                threads[1].start()
                assert waits[threads[1]].wait(LONG)

        def wait(self, timeout: float | None = None) -> bool:
            if threading.current_thread() in waits:
                waits[threading.current_thread()].set()
            return super().wait(timeout)

    monkeypatch.setattr("worker.handlers.context.threading.Event", Event)
    threads[0].start()
    assert all(waiting.wait(LONG) for waiting in waits.values())
    cancelled.set("drain")
    for thread in threads:
        thread.join(LONG)
    assert [thread.is_alive() for thread in threads] == [False, False]
