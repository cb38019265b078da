"""Events on their way to the poll thread, and its wakeup."""

from __future__ import annotations

import threading
import time

from tests.unit.support import a_task
from worker.core.model import Outcome, Verdict
from worker.executors.mailbox import Mailbox
from worker.executors.port import ChildEnded

LONG = 30.0  # only a failure ever waits so long


def outcomes(count: int) -> list[Outcome]:
    return [Outcome(a_task(offset=number), Verdict.OK) for number in range(count)]


def test_outcomes_are_taken_once_and_in_order() -> None:
    """Also without a wakeup."""
    mailbox, posted = Mailbox(), outcomes(3)
    for outcome in posted:
        mailbox.post(outcome)
    assert not mailbox.is_empty
    assert mailbox.take() == posted
    assert mailbox.take() == []
    assert mailbox.is_empty


def test_other_events_can_be_taken_without_the_outcomes() -> None:
    """And with them they come first, because a report counts if it was made before the end of its task."""
    mailbox, posted, news = Mailbox(), outcomes(2), [ChildEnded("crash"), ChildEnded("recycled")]
    for event in (posted[0], news[0], posted[1]):
        mailbox.post(event)
    assert mailbox.take_news() == [news[0]]
    assert not mailbox.is_empty
    mailbox.post(news[1])
    assert mailbox.take() == [news[1], *posted]
    assert mailbox.is_empty


def test_a_wakeup_before_the_wait_ends_it() -> None:
    """Nothing that happened just before the wait is missed."""
    mailbox = Mailbox()
    mailbox.notify()
    started = time.monotonic()
    mailbox.wait(LONG)
    assert time.monotonic() - started < LONG / 2


def test_many_wakeups_end_one_wait() -> None:
    """Each takes all that was posted; the others would end later waits for nothing."""
    mailbox = Mailbox()
    for _ in range(5):
        mailbox.notify()
    mailbox.wait(LONG)
    assert mailbox._wakeup.empty()


def test_a_wait_without_time_returns_at_once() -> None:
    mailbox = Mailbox()
    mailbox.wait(0)
    mailbox.wait(-1)
    mailbox.notify()
    mailbox.wait(0)
    assert mailbox._wakeup.empty()


def test_a_wait_ends_by_itself() -> None:
    mailbox = Mailbox()
    started = time.monotonic()
    mailbox.wait(0.01)
    assert time.monotonic() - started >= 0.01


def test_another_thread_is_woken() -> None:
    mailbox, woken = Mailbox(), []

    def wait() -> None:
        mailbox.wait(LONG)
        woken.append(mailbox.take())

    thread = threading.Thread(target=wait)
    thread.start()
    posted = outcomes(1)
    mailbox.post(posted[0])
    mailbox.notify()
    thread.join(LONG)
    assert woken == [posted]
