"""Other tasks run beside a long task, each in another child, if their ordering group allows it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from tests.isolation.rig import TOPIC, WAIT_LIMIT, names
from worker import linux
from worker.core.lease import Lease
from worker.core.model import Partition, Task
from worker.core.ordering_group import OrderingGroup
from worker.executors.port import all_running
from worker.isolation.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.isolation.rig import Rig

pytestmark = pytest.mark.timeout(60)

LONG_AFTER = 0.2
MIB = 1 << 20


def policy(slots: int = 1, **limits: float) -> Policy:
    return Policy(extra_slots=slots, long_after=LONG_AFTER, **limits)  # type: ignore[arg-type]


def set_aside(rig: Rig, task: Task) -> None:
    """Wait until this task runs beside others."""
    end = time.monotonic() + WAIT_LIMIT
    while task not in [running.task for running in rig.executor.beside]:
        assert time.monotonic() < end, "it is not set aside"
        rig.executor.check()
        time.sleep(0.005)


def test_short_tasks_do_not_wait_for_a_long_one(make: Callable[..., Rig]) -> None:
    """Tasks that were submitted with the long one run, and so do tasks that come later."""
    rig = make(policy())
    long, *behind = rig.submit("nap 2", "ok", "ok")
    outcomes = rig.take(2)
    assert [one.task for one in outcomes] == behind
    assert [task.attempt for task in behind] == [1, 1]
    assert [running.task for running in rig.executor.beside] == [long]
    assert names(rig.run("ok")) == ["OK"]
    assert rig.executor.running is None
    (last,) = rig.take(1)
    assert (last.task, last.result) == (long, b"slept")


def test_a_task_that_has_reported_is_long_after_a_second(make: Callable[..., Rig]) -> None:
    """The poll thread sets ``reported``. Others run beside the task long before ``WORKER_LONG_AFTER``."""
    rig = make(Policy(extra_slots=1, long_after=30.0))
    long, behind = rig.submit("nap 4", "ok")
    long.reported = True
    begin = time.monotonic()
    (outcome,) = rig.take(1)
    assert outcome.task is behind
    assert time.monotonic() - begin < 3
    assert [running.task for running in rig.executor.beside] == [long]


def test_tasks_wait_for_a_long_one_without_extra_slots(make: Callable[..., Rig]) -> None:
    rig = make(Policy(long_after=LONG_AFTER))
    tasks = rig.submit("nap 0.6", "ok")
    assert [one.task for one in rig.take(2)] == tasks


def test_a_second_long_task_waits_for_a_free_slot(make: Callable[..., Rig]) -> None:
    """There is one child more than there are extra slots."""
    rig = make(policy())
    first, second, third = rig.submit("nap 1.5", "nap 1", "ok")
    set_aside(rig, first)
    time.sleep(3 * LONG_AFTER)
    rig.executor.check()
    assert [running.task for running in rig.executor.beside] == [first]
    assert len(rig.family) == 2
    assert {one.task for one in rig.take(3)} == {first, second, third}


def wait_running(rig: Rig, *tasks: Task) -> None:
    """Wait until these tasks, and no others, run at the same time."""
    end = time.monotonic() + WAIT_LIMIT
    while {one.task for one in all_running(rig.executor)} != set(tasks):
        assert time.monotonic() < end, "they do not run at the same time"
        rig.executor.check()
        time.sleep(0.005)


def test_as_many_short_tasks_as_extra_slots_run_beside_a_long_one(make: Callable[..., Rig]) -> None:
    """A third short task waits until one of the two has ended."""
    rig = make(Policy(extra_slots=2, long_after=1.5))
    long, first, second, third = rig.submit("nap 4", "nap 1", "nap 1", "ok")
    wait_running(rig, long, first, second)
    assert len(rig.family) == 3
    assert {one.task for one in rig.take(3)} == {first, second, third}
    assert [one.task for one in rig.take(1)] == [long]


def test_a_task_waits_while_every_slot_has_a_long_task(make: Callable[..., Rig]) -> None:
    rig = make(policy(slots=2))
    *long, behind = rig.submit("nap 2", "nap 2", "nap 2", "ok")
    wait_running(rig, *long)
    time.sleep(2 * LONG_AFTER)
    wait_running(rig, *long)
    assert len(rig.family) == 3
    outcomes = rig.take(4)
    assert outcomes[0].task is not behind


def test_short_tasks_run_one_by_one_without_a_long_task(make: Callable[..., Rig]) -> None:
    rig = make(Policy(extra_slots=2))
    tasks = rig.submit("nap 0.2", "nap 0.2", "nap 0.2")
    for task in tasks:
        rig.wait_running(task)
        assert not rig.executor.beside
        assert [one.task for one in rig.take(1)] == [task]
    assert len(rig.family) == 1


def test_short_tasks_beside_a_long_one_share_the_children(make: Callable[..., Rig]) -> None:
    """A short task does not start a new child. When the long task has ended, all children but one end."""
    rig = make(Policy(extra_slots=2, long_after=1.0))
    (long,) = rig.submit("nap 5")
    set_aside(rig, long)
    children = set()
    for _ in range(4):
        pair = rig.submit("nap 0.2", "nap 0.2")
        wait_running(rig, long, *pair)
        children |= set(rig.family)
        assert {one.task for one in rig.take(2)} == set(pair)
    assert len(children) == 3
    assert [one.task for one in rig.take(1)] == [long]
    end = time.monotonic() + WAIT_LIMIT
    while rig.family != [rig.link.child.pid]:
        assert time.monotonic() < end, "a child is left"
        time.sleep(0.01)
    assert names(rig.run("ok")) == ["OK"]


def test_the_child_of_a_long_task_ends_with_it(make: Callable[..., Rig]) -> None:
    """The slot is free for the next long task."""
    rig = make(policy())
    for _ in range(2):
        (long,) = rig.submit("nap 0.5")
        set_aside(rig, long)
        assert names(rig.take(1)) == ["OK"]
        end = time.monotonic() + WAIT_LIMIT
        while rig.family != [rig.link.child.pid]:
            assert time.monotonic() < end, "the child is left"
            time.sleep(0.01)


def test_a_task_never_overtakes_a_long_task_of_its_ordering_group(make: Callable[..., Rig]) -> None:
    """The second task comes back unstarted. The queue keeps it until the long task has ended."""
    rig = make(policy())
    group: OrderingGroup[Task] = OrderingGroup()
    (long, behind), (other,) = rig.tasks("nap 1", "ok", group=group), rig.tasks("ok", group=OrderingGroup())
    group.in_flight = 2
    rig.executor.submit([long, behind, other])
    outcomes = {one.task: one for one in rig.take(2)}
    assert names([outcomes[behind], outcomes[other]]) == ["NOT_STARTED", "OK"]
    assert (group.blocked, group.beside, behind.attempt) == (True, True, 0)
    group.requeue(behind, 0.0)
    assert not group.is_open(time.monotonic())
    (outcome,) = rig.take(1)
    assert outcome.task is long
    group.in_flight -= 1
    group.unblock()
    assert group.is_open(time.monotonic())
    assert list(group.queue) == [behind]


def test_a_cancel_kills_only_the_task_under_the_named_lease(make: Callable[..., Rig]) -> None:
    """The short task is under another lease and finishes."""
    rig = make(policy(grace=0.2))
    lease = Lease(Partition(TOPIC, 4))
    (long,) = rig.submit("deaf")
    set_aside(rig, long)
    (short,) = rig.submit("nap 1", lease=lease)
    rig.wait_running(short)
    assert rig.executor.cancel("revoked", [rig.lease]) == [long]
    outcomes = rig.take(2)
    assert [(one.task, name) for one, name in zip(outcomes, names(outcomes), strict=True)] == [
        (long, "DROPPED Cancelled"),
        (short, "OK"),
    ]


def test_a_crash_fails_only_the_task_that_crashed(make: Callable[..., Rig]) -> None:
    """The processes that the long task has started keep running, also those in a separate session."""
    rig = make(policy())
    (long,) = rig.submit("brood_and_nap 1.5")
    set_aside(rig, long)
    child = rig.executor._beside[0].link
    assert child is not None
    assert names(rig.run("segfault", "ok")) == ["FAILED ProcessDied", "OK"]
    assert len(linux.descendants_of(child.child.pid)) >= 4, "its processes were killed"
    assert names(rig.take(1)) == ["OK"]
    end = time.monotonic() + WAIT_LIMIT
    while rig.family != [rig.link.child.pid]:
        assert time.monotonic() < end, "its processes outlive it"
        time.sleep(0.01)


def test_each_task_has_its_own_time_and_memory_limits(make: Callable[..., Rig]) -> None:
    """A task that exceeds a limit does not affect the other task."""
    rig = make(policy(grace=0.1, memory=400 * MIB))
    (long,) = rig.submit("spin", headers=(("x-timeout", b"1s"),))
    set_aside(rig, long)
    large, behind = rig.submit("grow", "ok")
    outcomes = {one.task: one for one in rig.take(3)}
    assert names([outcomes[large], outcomes[behind]]) == ["FAILED MemoryLimitExceeded", "OK"]
    assert names([outcomes[long]]) == ["FAILED TimeLimitExceeded"]


def test_both_tasks_fail_when_the_template_dies(make: Callable[..., Rig]) -> None:
    rig = make(policy())
    (long,) = rig.submit("nap 30")
    set_aside(rig, long)
    outcomes = rig.run("kill_parent") + rig.take(1)
    assert names(outcomes) == ["FAILED ProcessDied"] * 2
    assert names(rig.run("ok")) == ["OK"]


def test_the_priority_of_a_long_task_falls_step_by_step(make: Callable[..., Rig]) -> None:
    rig = make(policy())
    (long,) = rig.submit("nap 1.2")
    set_aside(rig, long)
    link = rig.executor._beside[0].link
    assert link is not None
    seen = set()
    while rig.executor.beside:
        seen.add(os.getpriority(os.PRIO_PROCESS, link.child.pid))
        time.sleep(0.01)
    assert seen >= {5, 10, 15}
    assert os.getpriority(os.PRIO_PROCESS, rig.link.child.pid) == os.getpriority(os.PRIO_PROCESS, 0)
    rig.take(1)


def test_a_closed_executor_starts_no_task_beside_a_long_one(make: Callable[..., Rig]) -> None:
    """An executor is closed when its process drains."""
    rig = make(policy())
    long, behind = rig.submit("nap 0.6", "ok")
    rig.wait_running(long)
    rig.executor.closed = True
    outcomes = {one.task: one for one in rig.take(2)}
    assert names([outcomes[long], outcomes[behind]]) == ["OK", "NOT_STARTED"]
    assert not rig.executor.beside
