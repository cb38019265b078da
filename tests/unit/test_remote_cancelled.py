"""``context.cancelled`` in a child process, with several waiting threads."""

from __future__ import annotations

import os
import select
import threading

import pytest

from worker.isolation.context import RemoteCancelled
from worker.isolation.page import CANCELLED, REASON, REASONS, SIZE

LONG = 30.0  # seconds; only a failure ever waits so long


def test_a_thread_notices_a_cancellation_after_another_thread_took_its_wakeup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other thread took it when it removed the wakeup of an earlier task."""
    words = memoryview(bytearray(SIZE)).cast("Q")

    class Poll:
        def register(self, _descriptor: int, _events: int) -> None: ...

        def poll(self, milliseconds: float | None) -> list[tuple[int, int]]:
            """Return that nothing is ready, although the task is cancelled meanwhile."""
            assert milliseconds is not None, "it would wait without end"
            words[REASON], words[CANCELLED] = REASONS.index("drain"), 7
            return []

    monkeypatch.setattr(select, "poll", Poll)
    cancelled = RemoteCancelled(words, 0, 7)
    assert cancelled.wait()
    assert cancelled.reason == "drain"


@pytest.mark.parametrize("left_over", [0, 1])
def test_a_cancellation_wakes_all_threads(left_over: int) -> None:
    words, descriptor = memoryview(bytearray(SIZE)).cast("Q"), os.eventfd(left_over, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    cancelled = RemoteCancelled(words, descriptor, 7)
    threads = [threading.Thread(target=cancelled.wait, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    words[REASON], words[CANCELLED] = REASONS.index("drain"), 7
    os.eventfd_write(descriptor, 1)
    for thread in threads:
        thread.join(LONG)
    assert not any(thread.is_alive() for thread in threads)
    os.close(descriptor)


def test_a_wait_ends_after_its_timeout() -> None:
    words, descriptor = memoryview(bytearray(SIZE)).cast("Q"), os.eventfd(1, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    assert not RemoteCancelled(words, descriptor, 7).wait(0.01)
    assert not select.select([descriptor], [], [], 0)[0]
    os.close(descriptor)
