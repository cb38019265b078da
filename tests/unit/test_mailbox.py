"""The mailbox: events for the poll thread, and its wakeup."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from chaos.procutil import ROOT
from tests.unit.support import a_task
from worker.core.model import Outcome, Verdict
from worker.executors.mailbox import Mailbox
from worker.executors.port import ChildEnded

LONG = 30.0  # only a failure ever waits so long


def outcomes(count: int) -> list[Outcome]:
    return [Outcome(a_task(offset=number), Verdict.OK) for number in range(count)]


def test_outcomes_are_taken_once_and_in_order() -> None:
    """The poll thread can take them without a wakeup."""
    mailbox, posted = Mailbox(), outcomes(3)
    for outcome in posted:
        mailbox.post(outcome)
    assert not mailbox.is_empty
    assert mailbox.take() == posted
    assert mailbox.take() == []
    assert mailbox.is_empty


def test_other_events_can_be_taken_without_the_outcomes() -> None:
    """``take`` returns them before the outcomes, because a report counts if it was made before the end of its task."""
    mailbox, posted, news = Mailbox(), outcomes(2), [ChildEnded("crash"), ChildEnded("recycled")]
    for event in (posted[0], news[0], posted[1]):
        mailbox.post(event)
    assert mailbox.take_news() == [news[0]]
    assert not mailbox.is_empty
    mailbox.post(news[1])
    assert mailbox.take() == [news[1], *posted]
    assert mailbox.is_empty


def test_a_wakeup_before_a_wait_ends_the_wait() -> None:
    """The poll thread misses no event that was posted just before the wait."""
    mailbox = Mailbox()
    mailbox.notify()
    started = time.monotonic()
    mailbox.wait(LONG)
    assert time.monotonic() - started < LONG / 2


def test_many_wakeups_end_one_wait() -> None:
    """After one wait the poll thread takes all events. The other wakeups would end later waits without an event."""
    mailbox = Mailbox()
    for _ in range(5):
        mailbox.notify()
    mailbox.wait(LONG)
    assert mailbox._wakeup.locked(), "a wakeup is left"


def test_a_wait_of_no_time_returns_immediately() -> None:
    mailbox = Mailbox()
    mailbox.wait(0)
    mailbox.wait(-1)
    mailbox.notify()
    mailbox.wait(0)
    assert mailbox._wakeup.locked(), "a wakeup is left"


def test_a_wait_ends_after_its_timeout() -> None:
    mailbox = Mailbox()
    started = time.monotonic()
    mailbox.wait(0.01)
    assert time.monotonic() - started >= 0.01


def test_a_wakeup_ends_the_wait_of_another_thread() -> None:
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


WAITING = """
import signal, sys, time
from worker.executors.mailbox import Mailbox
from worker.process.transaction_thread import TransactionThread

class Transactor:
    called_at = time.monotonic()
    def open(self):
        time.sleep(60)

signal.signal(signal.SIGTERM, lambda *_: None)
thread = TransactionThread(Transactor, lambda: None)
thread.busy = True
wait = Mailbox().wait if sys.argv[1] == "mailbox" else thread.ended
while True:
    thread._sent_at = time.monotonic()
    wait(0.05)
    print("turn", flush=True)
"""


@pytest.mark.parametrize("what", ["mailbox", "transaction thread"])
def test_a_wait_ends_after_a_signal_that_comes_during_a_freeze(what: str) -> None:
    """``SimpleQueue.get`` never returns if a signal interrupts it after its time is up (CPython 3.11)."""
    process = subprocess.Popen([sys.executable, "-c", WAITING, what], stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    try:
        for _ in range(5):
            process.stdout.readline()
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.1)
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)
            time.sleep(0.05)
            os.set_blocking(process.stdout.fileno(), False)
            process.stdout.read()
            time.sleep(0.3)
            assert process.stdout.read(), "the wait does not end"
            os.set_blocking(process.stdout.fileno(), True)
    finally:
        process.kill()
        process.communicate()
