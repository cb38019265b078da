"""Time and memory limits. A task is cancelled first, and its process is killed if the task does not stop."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.isolation.rig import names
from worker import linux
from worker.executors.thread import MAX_WAITING_BYTES
from worker.isolation.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.isolation.rig import Rig
    from worker.core.model import Outcome

pytestmark = pytest.mark.timeout(60)

MIB = 1 << 20
SLACK = 0.3  # seconds of delay that a busy machine may add


def late(outcome: Outcome, limit: float) -> float:
    """Return the seconds from the limit to the outcome."""
    return (outcome.finished_ns - outcome.started_ns) / 1e9 - limit


@pytest.mark.parametrize("payload", ["grip 60", "spin", "stop", "deaf"])
def test_a_task_that_does_not_stop_is_killed_when_its_grace_is_over(make: Callable[..., Rig], payload: str) -> None:
    """Also if it holds the interpreter lock in C, or is stopped. The tasks before and after it succeed."""
    rig = make(Policy(timeout=0.5, grace=0.3))
    before, outcome, behind = rig.run("ok", payload, "ok")
    assert names([before, outcome, behind]) == ["OK", "FAILED TimeLimitExceeded", "OK"]
    assert outcome.failure is not None
    assert "0.5 s" in outcome.failure.message
    assert 0 <= late(outcome, 0.8) < SLACK
    assert behind.task.attempt == 1


@pytest.mark.parametrize(("payload", "result"), [("heed", b"stopped: timeout"), ("watch", b"saw: timeout")])
def test_a_task_that_stops_within_its_grace_returns_its_result(
    make: Callable[..., Rig], payload: str, result: bytes
) -> None:
    """The outcome is what the handler returns within its grace."""
    rig = make(Policy(timeout=0.3, grace=10))
    rig.run("ok")  # now there is a child, and the task starts at once
    began = time.monotonic()
    (outcome,) = rig.run(payload)
    assert time.monotonic() - began >= 0.3, "the limit counts from when the child announces the task"
    assert (names([outcome]), outcome.result) == (["OK"], result)
    assert late(outcome, 0.3) < SLACK


def test_an_exception_after_the_time_limit_counts_as_time_limit_exceeded(make: Callable[..., Rig]) -> None:
    rig = make(Policy(timeout=0.2, grace=10))
    (outcome,) = rig.run("raise_when_cancelled")
    assert names([outcome]) == ["FAILED TimeLimitExceeded"]
    assert outcome.failure is not None
    assert "RuntimeError: interrupted" in outcome.failure.message
    assert "raise RuntimeError" in outcome.failure.traceback


def test_the_header_lowers_the_limit(make: Callable[..., Rig]) -> None:
    """A request with a malformed time-out or deadline is rejected."""
    rig = make(Policy(timeout=30, grace=0.1))
    assert names(rig.run("spin", headers=(("x-timeout", b"200ms"),))) == ["FAILED TimeLimitExceeded"]
    assert names(rig.run("ok", headers=(("x-timeout", b"soon"),))) == ["REJECTED MalformedTimeout"]
    assert names(rig.run("ok", headers=(("x-deadline", b"soon"),))) == ["REJECTED MalformedDeadline"]


def test_a_task_that_runs_past_its_deadline_is_killed(make: Callable[..., Rig]) -> None:
    """It is cancelled at the deadline, and killed and expired after the grace. An expired task does not start."""
    rig = make(Policy(grace=0.2))
    deadline = ("x-deadline", str(time.time() + 0.4).encode())
    assert names(rig.run("spin", headers=(deadline,))) == ["EXPIRED TimeLimitExceeded"]
    (outcome,) = rig.run("ok", headers=(deadline,))
    assert (names([outcome]), outcome.started_ns, outcome.task.attempt) == (["EXPIRED Expired"], 0, 0)


@pytest.mark.parametrize("reason", ["revoked", "drain"])
def test_a_cancelled_task_that_does_not_stop_is_killed(make: Callable[..., Rig], reason: str) -> None:
    rig = make(Policy(grace=0.2))
    (task,) = rig.submit("spin")
    rig.wait_running(task)
    assert rig.executor.cancel(reason, []) == []  # type: ignore[arg-type]
    assert rig.executor.cancel(reason, [rig.lease]) == [task]  # type: ignore[arg-type]
    (outcome,) = rig.take(1)
    assert names([outcome]) == ["DROPPED Cancelled"]
    assert outcome.failure is not None
    assert outcome.failure.message == reason


@pytest.mark.parametrize("payload", ["grow", "grow 1000", "grow_beside"])
def test_a_task_that_exceeds_its_memory_limit_is_killed(make: Callable[..., Rig], payload: str) -> None:
    """The memory of processes that it has started counts too. The sum never gets far above the limit."""
    rig = make(Policy(memory=400 * MIB))
    outcomes, peak = rig.submit("ok", payload, "ok"), 0
    while (running := rig.executor.running) is None or running[0] is not outcomes[2]:
        peak = max(peak, sum(map(linux.resident_bytes, rig.family)))
        if len(rig.mailbox._outcomes) > 1:
            break
        time.sleep(0.005)
    results = rig.take(3)
    assert names(results) == ["OK", "FAILED MemoryLimitExceeded", "OK"]
    assert results[1].failure is not None
    assert "400 MiB" in results[1].failure.message
    if payload == "grow 1000":
        assert peak < 550 * MIB


def test_a_task_within_its_memory_limit_is_not_killed(make: Callable[..., Rig]) -> None:
    rig = make(Policy(memory=400 * MIB))
    assert names(rig.run("leak 200", "nap 0.3", "ok")) == ["OK"] * 3


def test_a_child_is_replaced_after_its_maximum_number_of_tasks(make: Callable[..., Rig]) -> None:
    """It is replaced between two tasks, and no task is lost or blamed."""
    rig = make(Policy(child_max_tasks=3))
    outcomes = rig.run(*["ok"] * 10)
    assert names(outcomes) == ["OK"] * 10
    runs = [one.result for one in outcomes]
    assert [runs.count(pid) for pid in dict.fromkeys(runs)] == [3, 3, 3, 1]


def test_only_tasks_that_ran_count_towards_the_maximum_number_of_a_child(make: Callable[..., Rig]) -> None:
    """Tasks that were taken back and sent again count once."""
    rig = make(Policy(child_max_tasks=8))
    (running,) = rig.submit("nap 0.3")
    rig.wait_running(running)
    tasks = rig.submit("ok", "ok", "ok", "ok")
    for _ in range(5):
        assert rig.executor.withdraw([rig.lease]) == tasks
        rig.executor.submit(tasks)
    outcomes = rig.take(5)
    assert names(outcomes) == ["OK"] * 5
    assert len({one.result for one in outcomes[1:]} | {one.result for one in rig.run("ok", "ok", "ok")}) == 1
    assert rig.run("ok")[0].result != outcomes[1].result


def test_a_child_above_its_maximum_memory_is_replaced(make: Callable[..., Rig]) -> None:
    """It is replaced between two tasks."""
    rig = make(Policy(child_max_memory=300 * MIB))
    processes = set()
    for _ in range(8):
        (outcome,) = rig.run("leak 100")
        assert names([outcome]) == ["OK"]
        processes.add(outcome.result)
        time.sleep(0.12)  # time for two measurements of its memory
    assert 2 <= len(processes) <= 4


def test_results_that_are_not_taken_stay_in_the_childs_pipe(make: Callable[..., Rig]) -> None:
    """Above 16 MiB the reports stay in the pipe. The child continues when the poll thread has taken the results."""
    rig, size, count = make(), 3 * MIB, 20
    rig.submit(*[f"big {size}"] * count)
    end = time.monotonic() + 30
    while waiting_bytes(rig) < MAX_WAITING_BYTES:
        assert time.monotonic() < end
        report(rig)
    for _ in range(20):
        report(rig)
    assert waiting_bytes(rig) < MAX_WAITING_BYTES + size
    assert {len(outcome.result) for outcome in rig.take(count)} == {size}


def report(rig: Rig) -> None:
    """Run a turn of the poll thread that takes no results."""
    rig.mailbox.wait(0.02)
    rig.executor.check()


def waiting_bytes(rig: Rig) -> int:
    return sum(len(event.result) for event in rig.mailbox._outcomes)


def test_every_end_of_a_child_is_reported_with_its_cause(make: Callable[..., Rig]) -> None:
    """The memory of the running child is measured."""
    rig = make(Policy(grace=0.1, memory=400 * MIB))
    before = rig.executor.child_bytes
    rig.run("leak 50")
    assert before < rig.executor.child_bytes - 40 * MIB
    rig.run("segfault")
    rig.run("spin", headers=(("x-timeout", b"0.3"),))
    rig.run("grow", "ok")
    assert rig.ends == ["crash", "timeout", "memory"]
