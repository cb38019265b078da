"""Tasks that have not started can be withdrawn, also while a long task runs."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from tests.isolation.rig import TOPIC, config, names
from worker.codec import encode_request
from worker.core.lease import Lease
from worker.core.model import Partition, Record, Task
from worker.core.ordering_group import OrderingGroup
from worker.isolation.child import Child
from worker.isolation.link import Link
from worker.isolation.page import SKIP_FROM, SKIP_UNTIL, STARTED
from worker.isolation.parent import ChildProcess

if TYPE_CHECKING:
    from tests.isolation.rig import Rig

pytestmark = pytest.mark.timeout(60)


def test_waiting_tasks_are_withdrawn_while_another_task_runs(rig: Rig) -> None:
    """The withdrawal does not wait and returns only tasks of the named leases, in order. The others run in order."""
    other = Lease(Partition("requests", 4))
    (running,) = rig.submit("nap 0.5")
    rig.wait_running(running)
    mine = rig.submit("ok", "ok")
    theirs = rig.submit("ok", "ok", lease=other)
    mine += rig.submit("ok")
    began = time.monotonic()
    assert rig.executor.withdraw([rig.lease]) == mine
    assert time.monotonic() - began < 0.25
    assert [task.attempt for task in mine] == [0, 0, 0]
    outcomes = rig.take(3)
    assert names(outcomes) == ["OK"] * 3
    assert [one.task for one in outcomes] == [running, *theirs]
    assert [task.attempt for task in theirs] == [1, 1]
    assert rig.executor.withdraw([rig.lease, other]) == []


def test_withdrawn_tasks_can_be_submitted_again(rig: Rig) -> None:
    """This can be repeated. Each task runs once."""
    (running,) = rig.submit("nap 0.4")
    rig.wait_running(running)
    tasks = rig.submit("ok", "ok", "ok")
    for _ in range(5):
        assert rig.executor.withdraw([rig.lease]) == tasks
        rig.executor.submit(tasks)
    outcomes = rig.take(4)
    assert [one.task for one in outcomes] == [running, *tasks]
    assert [task.attempt for task in tasks] == [1, 1, 1]


def test_a_task_either_runs_or_is_withdrawn_but_never_both(rig: Rig) -> None:
    """The withdrawal comes at a different moment of a series of short tasks each time."""
    run = back = 0
    for length in range(60):
        tasks = rig.submit(*["ok"] * 40)
        time.sleep(length * 0.00005)
        returned = rig.executor.withdraw([rig.lease])
        outcomes = rig.take(40 - len(returned))
        finished = [one.task for one in outcomes if one.verdict.name == "OK"]
        returned = [*[one.task for one in outcomes if one.verdict.name == "NOT_STARTED"], *returned]
        assert finished + returned == tasks
        assert [task.attempt for task in tasks] == [1] * len(finished) + [0] * len(returned)
        run, back = run + len(finished), back + len(returned)
    assert run > 0
    assert back > 0


def test_tasks_keep_their_order_when_others_are_taken_back(rig: Rig) -> None:
    """The executor takes back a task whose lease is leaving, while the child starts one short task after another."""
    run = 0
    for _ in range(10):
        other, group = Lease(Partition("requests", 4)), OrderingGroup[Task]()
        tasks = rig.submit(*["ok"] * 3000, group=group)
        rig.submit("ok", lease=other)
        tasks += rig.submit(*["ok"] * 10, group=group)
        other.leave()
        outcomes = [one for one in rig.take(3011) if one.task.claim is rig.lease]
        finished = [one.task for one in outcomes if one.verdict.name == "OK"]
        assert finished == tasks[: len(finished)]
        run += len(finished)
    assert run > 0


def test_nothing_starts_after_it_was_closed(rig: Rig) -> None:
    """The running task finishes. Waiting tasks come back, also those that are submitted later."""
    running, *waiting = rig.submit("nap 0.5", "ok", "ok")
    rig.wait_running(running)
    rig.executor.closed = True
    waiting += rig.submit("ok")
    early = rig.take(3, 0.45)
    assert names(early) == ["NOT_STARTED"] * 3
    assert {one.task for one in early} == set(waiting)
    assert names(rig.take(1)) == ["OK"]


def test_no_task_starts_under_a_lease_that_is_leaving(rig: Rig) -> None:
    """The executor returns the tasks without a withdrawal."""
    other = Lease(Partition("requests", 4))
    (running,) = rig.submit("nap 0.5")
    rig.wait_running(running)
    waiting = rig.submit("ok", "ok")
    (theirs,) = rig.submit("ok", lease=other)
    rig.lease.leave()
    outcomes = rig.take(4)
    assert {one.task for one in outcomes if one.verdict.name == "NOT_STARTED"} == set(waiting)
    assert {one.task for one in outcomes if one.verdict.name == "OK"} == {running, theirs}


def test_all_data_of_a_task_arrive_in_the_child(rig: Rig) -> None:
    """Origin, attempt, key, headers and upcoming requests."""
    first, second, third = rig.tasks("peek", "later one", "still later", headers=(("a", b"1"), ("b", None)))
    first.upcoming = (second.record, third.record)
    rig.executor.submit([first])
    (outcome,) = rig.take(1)
    assert outcome.result.decode() == ("requests/3/1 1 b'key' {'a': b'1', 'b': None} later one,still later")


class PageWords:
    """The words of the page, as the child uses them."""

    def __init__(self, words: memoryview) -> None:
        self._words = words

    def __getitem__(self, at: int) -> int:
        return self._words[at]

    def __setitem__(self, at: int, value: int) -> None:
        self._words[at] = value


class InOneProcess:
    """Both sides of a link in this process. Three tasks were sent."""

    def __init__(self) -> None:
        self._child = ChildProcess(os.eventfd(0, os.EFD_NONBLOCK))
        self.link = Link(self._child, [TOPIC])
        lease = Lease(Partition(TOPIC, 0))
        values = [encode_request(1, f"task-{at}") for at in range(3)]
        self.tasks = [Task(Record(lease.partition, at, None, value), lease, 1) for at, value in enumerate(values)]
        self.link.send(self.tasks)

    def serve(self, words: type[PageWords]) -> list[str]:
        """Let the child run everything that was sent, with these words. Return the payloads of the tasks that ran."""
        ran: list[str] = []
        inner = Child(config(), lambda request, _context: ran.append(request.payload), self._child.channel)
        inner._words = words(inner._words)  # type: ignore[assignment]
        self._child.finish()
        inner.serve()
        return ran


def test_a_withdrawn_task_is_not_started_by_a_second_withdrawal() -> None:
    """The second one comes when the child has announced the task and has not yet read that it must skip it."""
    one = InOneProcess()
    link, tasks = one.link, one.tasks
    again: list[list[Task]] = []
    assert link.withdraw() == tasks
    link.send(tasks[1:])

    class Words(PageWords):
        def __setitem__(self, at: int, value: int) -> None:
            super().__setitem__(at, value)
            if at == STARTED and value == 1 and not again:
                again.append(link.withdraw())

    assert one.serve(Words) == []
    assert again == [tasks[1:]]


def test_a_withdrawal_between_the_childs_two_reads_does_not_skip_a_task_that_counts_as_running() -> None:
    """Otherwise a later task of its group could start before it comes back."""
    one = InOneProcess()
    link = one.link
    back: list[list[Task]] = []

    class Words(PageWords):
        def __getitem__(self, at: int) -> int:
            found = self._words[at]
            if at in (SKIP_FROM, SKIP_UNTIL) and not back:
                back.append(link.withdraw())
            return found

    assert one.serve(Words) == ["task-0"]
    assert back == [one.tasks[1:]]
    assert link.started == 1, "the skipped tasks have not started"
