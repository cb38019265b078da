"""A task that breaks its process fails alone and leaves nothing behind."""

from __future__ import annotations

import gc
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.isolation.rig import descriptors, names
from tests.long_form import LONG
from worker import linux
from worker.core.ordering_group import OrderingGroup
from worker.isolation.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.isolation.rig import Rig
    from worker.core.model import Outcome, Task

pytestmark = pytest.mark.timeout(60)

FAULTS = 200 if LONG else 20
KINDS = ("segfault", "exit 3", "kill", "brood segfault", "abort")
# The payload, and a part of the failure's message.
DEADLY = {
    "exit 0": "exit code 0",
    "exit 7": "exit code 7",
    "segfault": "SIGSEGV",
    "abort": "SIGABRT",
    "overflow": "SIGSEGV",
    "kill": "SIGKILL",
    "kill_parent": "SIGKILL",
    "close_all 3": "exit code 70",
    "close_all 0": "exit code 70",
    "reuse": "exit code 70",
}


def between_two_good_ones(rig: Rig, payload: str) -> Outcome:
    before, outcome, behind = rig.run("ok", payload, "ok")
    assert names([before, behind]) == ["OK", "OK"]
    assert (before.task.attempt, outcome.task.attempt, behind.task.attempt) == (1, 1, 1)
    return outcome


@pytest.mark.parametrize("payload", DEADLY)
def test_a_task_that_ends_its_process_is_a_failed_attempt(rig: Rig, payload: str) -> None:
    """The message names how the process ended. The tasks before and after it succeed."""
    outcome = between_two_good_ones(rig, payload)
    assert names([outcome]) == ["FAILED ProcessDied"]
    assert outcome.failure is not None
    assert DEADLY[payload] in outcome.failure.message
    assert outcome.sequence == outcome.task.record.offset
    assert outcome.finished_ns > outcome.started_ns > 0


@pytest.mark.parametrize("payload", ["segfault", "abort", "overflow"])
def test_the_failure_of_a_crash_shows_the_handlers_line(rig: Rig, payload: str) -> None:
    """The traceback is that of faulthandler."""
    failure = between_two_good_ones(rig, payload).failure
    assert failure is not None
    assert f"in {payload}" in failure.traceback
    assert "faulty.py" in failure.traceback


@pytest.mark.parametrize(
    ("payload", "name"),
    [("fail", "FAILED ValueError"), ("fork", "OK"), ("limit_files", "OK"), ("big 5000000", "OK"), ("later", "OK")],
)
def test_a_task_that_does_not_end_its_process_has_its_usual_outcome(rig: Rig, payload: str, name: str) -> None:
    """The outcome is the same as without a child process."""
    assert names([between_two_good_ones(rig, payload)]) == [name]


def test_a_thread_that_crashes_after_its_task_fails_no_task(rig: Rig) -> None:
    rig.run("later")
    first = rig.link
    while rig.link is first:
        time.sleep(0.01)
    assert names(rig.run("ok", "ok")) == ["OK", "OK"]


def test_processes_that_a_task_has_started_end_with_its_child(rig: Rig) -> None:
    """Also those in a separate session or in the background of a shell, and those that were forked twice."""
    (outcome,) = rig.run("brood segfault")
    assert names([outcome]) == ["FAILED ProcessDied"]
    child = rig.link.child.pid  # waits for the next child
    assert rig.family == [child], "something is left"


def test_no_process_outlives_the_worker_process(rig: Rig) -> None:
    """Processes that a successful task has left end too. The template only sees that its socket was closed."""
    rig.run("brood")
    family = [rig.executor._children.template.pid, *rig.family]
    assert len(family) > 4
    rig.executor._children.template._connection.close()
    end = time.monotonic() + 10
    while alive := [pid for pid in family if state_of(pid) not in ("", "Z")]:
        assert time.monotonic() < end, f"{alive} are left"
        time.sleep(0.005)


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


@pytest.mark.timeout(60 + FAULTS)
def test_many_faults_leave_nothing_behind(rig: Rig) -> None:
    """No process, no descriptor and no memory is left. ``E2E_LONG=1`` makes 200 faults."""
    rig.run("ok", *KINDS)
    rig.run("ok")
    before, used = len(descriptors()), memory(rig)
    for number in range(FAULTS):
        assert names(rig.run(KINDS[number % len(KINDS)])) == ["FAILED ProcessDied"]
    rig.run("ok")
    assert len(descriptors()) <= before  # descriptors of earlier tests may be closed meanwhile
    assert rig.family == [rig.link.child.pid]
    assert memory(rig) < used + (4 << 20)


def memory(rig: Rig) -> int:
    """Return the resident bytes of this process and of the template."""
    gc.collect()
    return sum(map(linux.resident_bytes, (os.getpid(), rig.executor._children.template.pid)))


def test_a_failure_blocks_only_its_ordering_group(rig: Rig) -> None:
    """Later tasks of the group come back unstarted. Other tasks run."""
    group: OrderingGroup[Task] = OrderingGroup()
    other: OrderingGroup[Task] = OrderingGroup()
    tasks = [
        *rig.tasks("ok", "fail", group=group),
        *rig.tasks("ok", group=other),
        *rig.tasks("ok", group=group),
        *rig.tasks("ok"),
    ]
    rig.executor.submit(tasks)
    outcomes = rig.take(5)
    assert names(outcomes) == ["OK", "FAILED ValueError", "OK", "NOT_STARTED", "OK"]
    assert [one.task for one in outcomes] == tasks
    assert [task.attempt for task in tasks] == [1, 1, 1, 0, 1]
    assert group.blocked
    group.blocked = False
    rig.executor.submit([tasks[3]])
    assert names(rig.take(1)) == ["OK"]


@pytest.mark.parametrize("payload", ["segfault", "spin"])
def test_the_death_of_a_child_blocks_only_the_ordering_group_of_its_task(
    make: Callable[..., Rig], payload: str
) -> None:
    rig = make(Policy(timeout=0.3, grace=0.1))
    group: OrderingGroup[Task] = OrderingGroup()
    tasks = [*rig.tasks(payload, "ok", group=group), *rig.tasks("ok", group=OrderingGroup())]
    rig.executor.submit(tasks)
    outcomes = {one.task.record.offset: one for one in rig.take(3)}
    assert names([outcomes[1]])[0].startswith("FAILED")
    assert names([outcomes[2], outcomes[3]]) == ["NOT_STARTED", "OK"]


def test_the_next_task_runs_soon_after_a_crash(rig: Rig) -> None:
    """It starts within 50 ms, in the best of five tries, because other programs use this machine too."""
    took = []
    for _ in range(5):
        crash, good = rig.run("segfault", "ok")
        took.append((good.started_ns - crash.finished_ns) / 1e9)
        assert crash.verdict.name == "FAILED"
    assert min(took) < 0.05


def test_the_template_and_the_child_ignore_sigterm_and_sighup(rig: Rig) -> None:
    """On SIGTERM to every process of a service, as from systemd, only the supervisor drains. The task finishes."""
    (task,) = rig.submit("nap 0.3")
    rig.wait_running(task)
    for pid in (rig.executor._children.template.pid, rig.link.child.pid):
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGHUP)
    assert names(rig.take(1)) == ["OK"]


def test_sigterm_ends_processes_that_a_task_has_started(rig: Rig) -> None:
    (outcome,) = rig.run("end_others")
    assert outcome.result == b"-15 -15"


def test_the_child_has_the_highest_out_of_memory_score(rig: Rig) -> None:
    (outcome,) = rig.run("score")
    assert outcome.result == b"1000"
    assert linux.children_of(os.getpid())
