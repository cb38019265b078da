"""SIGTERM: running tasks finish, and the others stay for the next replica."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from chaos import groups
from tests.kafka.support.topics import task
from tests.kafka.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.site import Site

    Scenario = Callable[..., None]

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

SOON = 20.0  # seconds; the tasks that are cancelled would take ten times as long


def start(site: Callable[..., Site], payload: str, **variables: str) -> Site:
    """Start a replica of two processes with five tasks in each of two partitions."""
    one = site(partitions=2, WORKER_PROCESSES="2", KAFKA_GROUP_PROTOCOL="consumer", **variables)
    # With a short session, the partitions of a killed process move sooner.
    groups.configure(one.bootstrap, one.group, {"consumer.session.timeout.ms": "6000"})
    one.submit(task(number, payload, partition=number % 2) for number in range(10))
    one.start()
    return one


def finish_in_a_hurry(sites: list[Site]) -> None:
    """Let a second replica of each site run the remaining tasks without their waits."""
    for one in sites:
        one.start_in_a_hurry()
    for one in sites:
        one.finish()


def a_signal_lets_running_tasks_finish_and_starts_no_other(site: Callable[..., Site]) -> None:
    numbers = [signal.SIGTERM, signal.SIGINT]
    sites = [start(site, '{"do": "nap", "seconds": 4}') for _ in numbers]
    heard = []
    for one, number in zip(sites, numbers, strict=True):
        one.wait_running(2)
        one.replicas[0].send(number)
        one.replicas[0].wait_status("/readyz", 503)
        heard.append(time.monotonic())
    for one, heard_at in zip(sites, heard, strict=True):
        (replica,) = one.replicas
        assert replica.wait_exit() == 0, replica.tail()
        # 0.5 s: more than the supervisor needs to reach its processes, and less than the running tasks still take.
        assert [entry for entry in one.journal.entries("start") if entry.time > heard_at + 0.5] == []
        started = one.journal.starts()
        assert started.keys() == {(part, offset) for part, end in one.committed().items() for offset in range(end)}
        assert {answer.origin[1:] for answer in one.answers.read_all()} == started.keys()
        assert len(started) < len(one.sent), "the signal came too late to show anything"
    finish_in_a_hurry(sites)
    for one in sites:
        one.started_once()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_repeated_signals_do_not_disturb_a_drain(site: Callable[..., Site], number: signal.Signals) -> None:
    """Signals arrive until an idle replica has ended. It exits with 0, without a traceback."""
    replica = site().start().wait_ready()

    def gone() -> bool:
        replica.send(number)
        return replica.process.poll() is not None

    until(gone, replica.tail)
    assert replica.process.returncode == 0, replica.tail()
    assert "Traceback" not in replica.stderr, replica.tail()


CANCELLED = [
    # What the task does, the drain time-out, and whether a second SIGTERM is sent.
    ("heed", "0", True),
    ("nap", "0", True),
    ("grip", "0", True),
    ("heed", "2s", False),
    ("nap", "2s", False),
]


def the_next_replica_runs_the_cancelled_tasks(site: Callable[..., Site]) -> None:
    """A second SIGTERM or WORKER_DRAIN_TIMEOUT cancels them, also if they ignore it. All cases run at the same time."""
    sites = [
        start(site, json.dumps({"do": action, "seconds": 200}), WORKER_DRAIN_TIMEOUT=timeout)
        for action, timeout, _ in CANCELLED
    ]
    for one in sites:
        one.wait_running(2)
    began = time.monotonic()
    for one in sites:
        one.replicas[0].send(signal.SIGTERM)
    for one, (_, _, second) in zip(sites, CANCELLED, strict=True):
        if second:
            one.replicas[0].wait_status("/readyz", 503)  # the kernel keeps only one pending signal of each number
            one.replicas[0].send(signal.SIGTERM)
    for one in sites:
        (replica,) = one.replicas
        assert replica.wait_exit() == 6, replica.tail()
        assert "Traceback" not in replica.stderr, replica.tail()
        assert one.committed() == {}
    assert time.monotonic() - began < SOON
    finish_in_a_hurry(sites)
    for one in sites:
        once = Counter({(sent.partition, sent.offset): 1 for sent in one.sent})
        assert one.journal.starts() == once + Counter([(0, 0), (1, 0)])


SCENARIOS = [
    a_signal_lets_running_tasks_finish_and_starts_no_other,
    the_next_replica_runs_the_cancelled_tasks,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_drain(together: Callable[[Scenario], None], scenario: Scenario) -> None:
    together(scenario)
