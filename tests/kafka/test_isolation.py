"""Faulty handlers in child processes: the worker processes stay in the group, and all requests are answered."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kafka.support.replica import alive
from tests.kafka.support.topics import task
from tests.kafka.support.waiting import until
from tests.long_form import LONG

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.replica import Replica
    from tests.kafka.support.site import Site
    from tests.kafka.support.topics import Record, Sent

    Scenario = Callable[..., None]

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not LONG, reason="its limits of time need a quiet machine: E2E_LONG=1"),
]

HANDLERS = Path(__file__).parents[1] / "isolation/handlers"
LIMIT, GRACE = 4.0, 0.3
LIMITS = {
    "WORKER_ISOLATION": "process",
    "WORKER_HANDLER": "faulty:handle",
    "WORKER_HANDLER_KWARGS": "{}",
    "WORKER_TASK_TIMEOUT": f"{LIMIT}s",
    "WORKER_CANCEL_GRACE": f"{GRACE}s",
    "WORKER_TASK_MEMORY": "300MiB",
}
REBALANCES = ("partitions.assigned", "partitions.revoked", "partitions.lost")
DIED, LATE, LARGE = "ProcessDied", "TimeLimitExceeded", "MemoryLimitExceeded"
# Actions of a handler, and the type of the error in the answer. Without a type, the outcome is OK.
FAULTS = {
    "segfault": DIED,
    "abort": DIED,
    "exit 0": DIED,
    "exit 7": DIED,
    "kill": DIED,
    "kill_parent": DIED,
    "close_all 3": DIED,
    "close_all 0": DIED,
    "reuse": DIED,
    "brood segfault": DIED,
    "grip 60": LATE,
    "spin": LATE,
    "stop": LATE,
    "deaf": LATE,
    "raise_when_cancelled": LATE,
    "grow": LARGE,
    "grow_beside": LARGE,
    "heed": "",
    "watch": "",
    "brood": "",
    "fork": "",
    "later": "",
    "limit_files": "",
}


def faults(site: Callable[..., Site], guarantee: str) -> None:
    """Submit each fault between good requests, to two processes, and check that only the faults have effects."""
    attempts = 1 if guarantee == "at-most-once" else 2
    one = site(partitions=2, WORKER_PROCESSES="2", WORKER_GUARANTEE=guarantee, WORKER_MAX_ATTEMPTS="2", **LIMITS)
    replica = one.start(cwd=HANDLERS).wait_ready()
    warm_up(one)
    pids, family, open_files = replica.pids(), processes(replica), descriptors(replica)
    rebalances = replica.events(*REBALANCES)
    faulty, good = submit_all(one)
    one.wait_answered(seconds=150)
    assert replica.pids() == pids, f"a worker process did not survive\n{replica.tail()}"
    assert replica.events("process.ended") == []
    assert replica.events(*REBALANCES) == rebalances
    for payload, sent in faulty.items():
        check(payload, one.answer_to(sent), attempts)
    for sent in good:
        answer = one.answer_to(sent)
        assert (answer.outcome, answer.response.attempt) == ("OK", 1), f"a neighbour of a fault\n{answer.response}"
    until(lambda: processes(replica) <= family, lambda: f"left behind: {replica.descendants()}")
    until(lambda: descriptors(replica) <= open_files + 2, lambda: f"{descriptors(replica)}, {open_files} before")
    everybody = replica.descendants()
    one.finish()
    until(lambda: not [pid for pid in everybody if alive(pid)], lambda: "processes outlive the replica")


def warm_up(one: Site) -> None:
    """Let both processes run tasks."""
    one.submit(task(number, "ok", partition=number % 2) for number in range(20))
    one.wait_answered()


def submit_all(one: Site) -> tuple[dict[str, Sent], list[Sent]]:
    """Submit each fault with a good request behind it in the same partition. Return both groups."""
    rows = []
    for number, payload in enumerate(FAULTS):
        rows.append(task(100 + number, payload, partition=number % 2))
        rows.append(task(200 + number, "ok", partition=number % 2))
    sent = {one.submission: one for one in one.submit(rows)}
    return {payload: sent[row] for payload, row in zip(FAULTS, rows[::2], strict=True)}, [
        sent[row] for row in rows[1::2]
    ]


def check(payload: str, answer: Record, attempts: int) -> None:
    """Check that the answer is the expected one for this fault."""
    kind, response = FAULTS[payload], answer.response
    expected = ("DEAD_LETTERED", kind, attempts) if kind else ("OK", "", 1)
    assert (answer.outcome, response.error.type, response.attempt) == expected, f"{payload}\n{response}"


def processes(replica: Replica) -> int:
    """Return the number of running processes below the supervisor. Zombies of a handler that forks do not count."""
    return sum(map(alive, replica.descendants()))


def descriptors(replica: Replica) -> int:
    """Return the number of open files of all worker processes together."""
    return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in replica.pids())


def at_least_once(site: Callable[..., Site]) -> None:
    faults(site, "at-least-once")


def at_most_once(site: Callable[..., Site]) -> None:
    faults(site, "at-most-once")


def exactly_once(site: Callable[..., Site]) -> None:
    faults(site, "exactly-once")


def a_kill_costs_milliseconds(site: Callable[..., Site]) -> None:
    """This is the time from the end of the grace to the end of the task, and from there to the next start."""
    one = site(partitions=1, WORKER_MAX_ATTEMPTS="1", **LIMITS)
    one.start(cwd=HANDLERS).wait_ready()
    killed, following = [], []
    for number in range(6):
        killed += one.submit([task(number, "spin")])
        following += one.submit([task(100 + number, "ok")])
    one.wait_answered()
    ends, starts = [], []
    for sent, after in zip(killed, following, strict=True):
        response, behind = one.answer_to(sent).response, one.answer_to(after).response
        finished = response.finished_at.ToNanoseconds()
        ends.append((finished - response.started_at.ToNanoseconds()) / 1e9 - LIMIT - GRACE)
        starts.append((behind.started_at.ToNanoseconds() - finished) / 1e9)
    assert min(ends) >= 0
    assert sorted(ends)[2] < 0.05, ends
    assert sorted(starts)[2] < 0.05, starts
    one.finish()


def a_drain_ends_a_task_that_does_not_heed_it(site: Callable[..., Site]) -> None:
    """The child process is killed after the drain time-out and the grace. The task stays for another replica."""
    variables = {**LIMITS, "WORKER_TASK_TIMEOUT": "0", "WORKER_DRAIN_TIMEOUT": "1s"}
    one = site(partitions=1, **variables)
    replica = one.start(cwd=HANDLERS).wait_ready()
    one.submit([task(1, "spin")])
    until(lambda: any(process["task"] for process in replica.tasks()), replica.tail)
    began = time.monotonic()
    replica.send(signal.SIGTERM)
    assert replica.wait_exit() == 6
    assert time.monotonic() - began < 12
    assert one.counts() == {}


def a_handler_that_cannot_be_loaded(site: Callable[..., Site]) -> None:
    """The exit code and the line are the same as without child processes."""
    one = site(partitions=1, **LIMITS)
    replica = one.start(cwd=HANDLERS, WORKER_HANDLER="nowhere:handle")
    assert replica.wait_exit() == 3
    (line,) = [line for line in replica.stderr.splitlines() if line.startswith("worker: ")]
    assert "importing nowhere failed: ModuleNotFoundError" in line


SCENARIOS = [
    at_least_once,
    at_most_once,
    exactly_once,
    a_kill_costs_milliseconds,
    a_drain_ends_a_task_that_does_not_heed_it,
    a_handler_that_cannot_be_loaded,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_isolation(site: Callable[..., Site], scenario: Scenario) -> None:
    """The scenarios run one after another: they measure times, and the machine is small."""
    scenario(site)
