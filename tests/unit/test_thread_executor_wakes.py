"""When the executor's thread wakes the poll thread, and when it waits for the poll thread."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

from tests.unit.poll_thread import LONG, PollThread
from worker.executors import thread as thread_module

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from worker.executors.port import Event


def test_the_end_of_a_slow_task_wakes_the_poll_thread_immediately(
    poll_thread: PollThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This happens although more tasks are queued. Fast tasks wake the poll thread only after the last one."""
    monkeypatch.setattr(thread_module, "NOTIFY_SECONDS", 0.0)
    poll_thread.runner.hold(2)
    started = time.monotonic()
    poll_thread.submit(1, 2)
    assert poll_thread.collect(1) == [(1, "OK")]
    assert time.monotonic() - started < LONG, "nobody woke it"
    poll_thread.runner.gates[2].set()
    assert poll_thread.collect(1) == [(2, "OK")]


def test_the_poll_thread_is_woken_before_the_last_task(
    poll_thread: PollThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The poll thread can then submit more tasks while the last one runs, so that the executor always has a task."""
    monkeypatch.setattr(thread_module, "NOTIFY_SECONDS", LONG)
    monkeypatch.setattr(thread_module, "OVERLAP_SECONDS", 0.0)
    poll_thread.runner.hold(3)
    poll_thread.submit(1, 2, 3)
    assert poll_thread.collect(2) == [(1, "OK"), (2, "OK")]
    assert not poll_thread.runner.gates[3].is_set()
    poll_thread.runner.gates[3].set()
    assert poll_thread.collect(1) == [(3, "OK")]


def test_short_tasks_wake_the_poll_thread_once_at_their_end(
    poll_thread: PollThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To wake the poll thread takes longer than to run such a task."""
    monkeypatch.setattr(thread_module, "NOTIFY_SECONDS", LONG)
    monkeypatch.setattr(thread_module, "OVERLAP_SECONDS", LONG)  # so that the tasks count as short on any machine
    notified = threading.Event()
    calls = count_calls(poll_thread.mailbox, "notify", monkeypatch, notified)
    poll_thread.submit(*range(100))
    assert notified.wait(LONG)
    assert len(poll_thread.collect(100)) == 100
    assert len(calls) == 1


def count_calls(target: object, name: str, monkeypatch: pytest.MonkeyPatch, called: threading.Event) -> list[None]:
    calls: list[None] = []
    original: Callable[[], None] = getattr(target, name)

    def counted() -> None:
        calls.append(None)
        original()
        called.set()

    monkeypatch.setattr(target, name, counted)
    return calls


def test_the_results_that_wait_for_the_poll_thread_are_limited(
    poll_thread: PollThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executor wakes the poll thread, and continues only when the poll thread has taken the results."""
    monkeypatch.setattr(thread_module, "MAX_WAITING_BYTES", 20)
    monkeypatch.setattr(thread_module, "NOTIFY_SECONDS", LONG)
    waits = threading.Event()  # the executor waits for room

    def sleep(seconds: float) -> None:
        waits.set()
        time.sleep(seconds)

    monkeypatch.setattr(thread_module, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    poll_thread.runner.result = b"x" * 10
    poll_thread.submit(*range(10))
    taken: list[Event] = []
    while len(taken) < 10:
        poll_thread.mailbox.wait(LONG)
        assert waits.wait(LONG)
        waits.clear()
        events = poll_thread.mailbox.take()
        assert len(events) <= 2
        taken += events
    assert poll_thread.runner.started == list(range(10))


def test_the_executor_does_not_wait_while_results_are_small(poll_thread: PollThread) -> None:
    poll_thread.runner.hold(99)
    poll_thread.submit(*range(100))
    assert poll_thread.runner.begun[99].wait(LONG)
    poll_thread.runner.gates[99].set()
    assert len(poll_thread.collect(100)) == 100
