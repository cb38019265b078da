"""Outcomes on their way to the poll thread, and its bell."""

from __future__ import annotations

import threading
import time

from tests.unit.support import a_task
from worker.core.model import Outcome, Verdict
from worker.process.mailbox import Mailbox

LONG = 30.0  # only a failure ever waits so long


def outcomes(count: int) -> list[Outcome]:
    return [Outcome(a_task(offset=number), Verdict.OK) for number in range(count)]


def test_outcomes_are_taken_once_and_in_order() -> None:
    """Also without the bell."""
    mailbox, posted = Mailbox(), outcomes(3)
    for outcome in posted:
        mailbox.post(outcome)
    assert mailbox.take() == posted
    assert mailbox.take() == []


def test_a_bell_that_rang_before_is_heard() -> None:
    """Nobody sleeps through what happened just before the wait."""
    mailbox = Mailbox()
    mailbox.ring()
    started = time.monotonic()
    mailbox.wait(LONG)
    assert time.monotonic() - started < LONG / 2


def test_many_rings_wake_once() -> None:
    """Each wake-up takes all that was posted; a bell for each outcome would wake for nothing afterwards."""
    mailbox = Mailbox()
    for _ in range(5):
        mailbox.ring()
    mailbox.wait(LONG)
    assert mailbox._bell.empty()


def test_a_wait_without_time_returns_at_once() -> None:
    mailbox = Mailbox()
    mailbox.wait(0)
    mailbox.wait(-1)
    mailbox.ring()
    mailbox.wait(0)
    assert mailbox._bell.empty()


def test_a_wait_ends_by_itself() -> None:
    mailbox = Mailbox()
    started = time.monotonic()
    mailbox.wait(0.01)
    assert time.monotonic() - started >= 0.01


def test_the_bell_wakes_another_thread() -> None:
    mailbox, woken = Mailbox(), []

    def wait() -> None:
        mailbox.wait(LONG)
        woken.append(mailbox.take())

    thread = threading.Thread(target=wait)
    thread.start()
    posted = outcomes(1)
    mailbox.post(posted[0])
    mailbox.ring()
    thread.join(LONG)
    assert woken == [posted]
