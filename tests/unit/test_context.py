"""The context of a handler, and the event that asks it to stop."""

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

LONG = 30.0  # seconds; only a failing test waits this long


def test_a_context_describes_its_request() -> None:
    headers = (("trace", b"1"), ("trace", None))
    context = Context(view_of(a_task(key=b"key", headers=headers, attempt=2), None))
    assert (context.attempt, context.key, context.headers) == (2, b"key", headers)
    assert context.origin == Origin(PARTITION.topic, PARTITION.number, 42)
    assert str(context.origin) == "requests/3/42"
    assert (context.remaining, context.upcoming, context.transaction) == (None, (), None)


def test_a_context_shows_the_upcoming_requests() -> None:
    """Records that are not requests are left out."""
    task = a_task()
    task.upcoming = tuple(a_task(value).record for value in (b"\x08\x01\x12\x01a", None, b"\xff", b"\x08\x02\x12\x01b"))
    shown = Context(view_of(task, None)).upcoming
    assert [(request.sequence, request.payload) for request in shown] == [(1, "a"), (2, "b")]


def test_the_view_of_a_task_can_be_pickled() -> None:
    view = view_of(a_task(key=b"key", attempt=2), 5.0)
    assert pickle.loads(pickle.dumps(view)) == view


def test_the_logger_of_a_context_names_the_request() -> None:
    context = Context(view_of(a_task(attempt=3), None))
    with structlog.testing.capture_logs() as lines:
        context.log.info("hello", more=1)
    assert lines == [
        {"event": "hello", "log_level": "info", "more": 1, "attempt": 3}
        | {"topic": PARTITION.topic, "partition": PARTITION.number, "offset": 42}
    ]


@pytest.mark.parametrize(("ahead", "least", "most"), [(600, 500, 600), (-60, 0, 0)])
def test_the_remaining_time_is_never_negative(ahead: float, least: float, most: float) -> None:
    remaining = Context(view_of(a_task(), time.time() + ahead)).remaining
    assert remaining is not None
    assert least <= remaining <= most


def test_a_new_task_is_not_cancelled() -> None:
    """``bool``, ``is_set`` and ``wait(0)`` all say so."""
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


def test_a_cancellation_wakes_a_waiting_thread() -> None:
    """The thread waits for the event without a time-out."""
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


def test_a_cancellation_wakes_every_waiting_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds even if a second thread begins to wait in the same moment as the first."""
    cancelled = Cancelled()
    threads = [threading.Thread(target=cancelled.wait, args=(LONG,)) for _ in range(2)]
    waits = {thread: threading.Event() for thread in threads}

    class Event(threading.Event):
        """An event. While the first thread creates it, the second thread begins to wait."""

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
