"""Races between parent and child. The tests write the words of the shared page themselves, without a process."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING
from unittest.mock import MagicMock

import pytest

from tests.unit.support import PARTITION, a_task
from worker.core.ordering_group import OrderingGroup
from worker.isolation import page, seam
from worker.isolation.link import Link
from worker.isolation.page import CANCELLED, ENDED, REASON, REASONS, SKIP_FROM, SKIP_UNTIL, STARTED
from worker.isolation.policy import Policy
from worker.isolation.slot import Slot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from worker.core.model import Task


class StandInChild:
    """A stand-in for a child that does nothing by itself."""

    def __init__(self) -> None:
        self.words = memoryview(bytearray(page.SIZE)).cast("Q")
        self._ours, theirs = socket.socketpair()
        self._theirs = theirs
        self.tasks = self._ours.fileno()
        self.cancel = os.eventfd(0, os.EFD_NONBLOCK)
        self.killed = 0

    def kill(self) -> None:
        self.killed += 1

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()
        os.close(self.cancel)


@pytest.fixture
def child() -> Iterator[StandInChild]:
    one = StandInChild()
    yield one
    one.close()


@pytest.fixture
def link(child: StandInChild) -> Link:
    """Return a link on which five tasks were sent and the second runs."""
    one = Link(child, [PARTITION.topic])  # type: ignore[arg-type]
    one.send([a_task(offset=offset) for offset in range(1, 6)])
    one.flight.finished(1)
    child.words[STARTED] = 2
    return one


def meanwhile(monkeypatch: pytest.MonkeyPatch, what: Callable[[], None]) -> None:
    """Let the child act before it sees what the parent has written."""
    monkeypatch.setattr(time, "sleep", lambda _seconds: what())


def offsets(tasks: list[Task]) -> list[int]:
    return [task.record.offset for task in tasks]


def test_a_withdrawal_returns_the_tasks_that_have_not_started(link: Link, child: StandInChild) -> None:
    """The child skips them."""
    assert offsets(link.withdraw()) == [3, 4, 5]
    assert (child.words[SKIP_FROM], child.words[SKIP_UNTIL]) == (3, 6)
    assert link.withdraw() == []
    assert link.running is not None


def test_a_task_that_starts_during_a_withdrawal_is_not_returned(
    link: Link, child: StandInChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_the_next() -> None:
        link.flight.finished(2)
        child.words[STARTED] = 3

    meanwhile(monkeypatch, start_the_next)
    assert offsets(link.withdraw()) == [4, 5]
    assert [number for number, _ in link.flight] == [3]


def test_no_task_overtakes_one_that_the_child_may_skip(
    link: Link, child: StandInChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child announces a task and may have read by then that it must skip it. Other groups are not affected."""
    tasks = dict(link.flight)
    for number, task in tasks.items():
        task.group = OrderingGroup()
        if number == 5:
            task.group = tasks[3].group

    def start_the_next() -> None:
        link.flight.finished(2)
        child.words[STARTED] = 3

    meanwhile(monkeypatch, start_the_next)
    assert link.withdraw() == [tasks[4], tasks[5]]
    assert [number for number, task in tasks.items() if not seam.may_start(task)] == [3, 5]


def test_a_child_is_not_killed_if_its_next_task_has_started(
    link: Link, child: StandInChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task ends at its limit, and the next task starts before the kill. Only the later tasks are withdrawn."""

    def start_the_next() -> None:
        child.words[STARTED] = 3

    meanwhile(monkeypatch, start_the_next)
    assert offsets(link.kill_for(2, "timeout")) == [4, 5]
    assert (child.killed, link.cause) == (0, None)


def test_a_kill_withdraws_the_tasks_that_have_not_started(link: Link, child: StandInChild) -> None:
    assert offsets(link.kill_for(2, "timeout")) == [3, 4, 5]
    assert (child.killed, link.cause) == (1, "timeout")
    link.kill("memory")
    assert link.cause == "timeout", "the first cause stays"


def test_a_task_is_cancelled_once(link: Link, child: StandInChild) -> None:
    """The first reason stays. The next task can be cancelled for another reason."""
    link.cancel(2, "timeout", 1.0)
    link.cancel(2, "drain", 2.0)
    assert (child.words[CANCELLED], REASONS[child.words[REASON]]) == (2, "timeout")
    assert link.request_of(2) == ("timeout", 1.0)
    assert link.request_of(3) is None
    link.cancel(3, "drain", 3.0)
    assert (child.words[CANCELLED], REASONS[child.words[REASON]]) == (3, "drain")


def test_a_cancel_does_not_replace_that_of_the_task_that_runs(link: Link, child: StandInChild) -> None:
    """The second task has ended, but its end was not read yet. The third one runs and is cancelled at its limit."""
    slot = Slot(Policy(), MagicMock())
    slot.link = link
    second, third = [task for _, task in link.flight][:2]
    child.words[ENDED], child.words[STARTED] = 2, 3
    link.cancel(3, "timeout", 1.0)
    assert not slot.cancel_task(second, "requested", 2.0)
    assert slot.cancel("revoked", None, 2.0) is third
    assert (child.words[CANCELLED], link.request_of(3)) == (3, ("timeout", 1.0))
    child.words[ENDED] = 3
    assert slot.cancel("revoked", None, 3.0) is None


def test_a_corrupt_page_blames_only_tasks_that_were_sent(link: Link, child: StandInChild) -> None:
    """A child with corrupt memory may write any number to the page."""
    child.words[STARTED] = 2**64 - 1
    assert link.started == 5
    culprits, innocents = link.flight.settle_death(link.started)
    assert offsets(culprits) == [2, 3, 4, 5]
    assert innocents == []
