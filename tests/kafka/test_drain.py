"""SIGTERM: what runs finishes, what does not run stays for the next."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.kafka.support.topics import task

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.replica import Replica
    from tests.kafka.support.site import Site

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

SOON = 20.0  # seconds; the tasks that are cancelled would take ten times as long


def start(site: Callable[..., Site], payload: str, **variables: str) -> Site:
    """A replica of two processes with three tasks in each of two partitions."""
    one = site(partitions=2, WORKER_PROCESSES="2", **variables)
    one.submit(task(number, payload, partition=number % 2) for number in range(6))
    one.start()
    return one


def finish_in_a_hurry(one: Site) -> None:
    """Let a second replica do the rest, without the waiting."""
    one.start(WORKER_HANDLER_KWARGS=json.dumps({"journal": str(one.journal.path), "hurry": True}))
    one.finish()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_tasks_finish_and_starts_no_other(site: Callable[..., Site], number: int) -> None:
    one = start(site, '{"do": "nap", "seconds": 3}')
    (replica,) = one.replicas
    running = set(one.wait_running(2))
    replica.send(signal.Signals(number))
    replica.wait_status("/readyz", 503)
    assert replica.wait_exit() == 0, replica.tail()
    assert set(one.journal.starts()) == running == {(0, 0), (1, 0)}
    assert one.committed() == {0: 1, 1: 1}
    assert {answer.origin[1:] for answer in one.answers.read_all()} == running
    finish_in_a_hurry(one)
    one.started_once()


def cancel_by_second_signal(replica: Replica) -> None:
    """SIGTERM, and another one when the first has been heard."""
    replica.send(signal.SIGTERM)
    replica.wait_status("/readyz", 503)
    replica.send(signal.SIGTERM)


CANCELLED = [
    # What the task does, the drain time-out, and whether a second SIGTERM is sent.
    ("heed", "0", True),
    ("nap", "0", True),
    ("grip", "0", True),
    ("heed", "2s", False),
    ("nap", "2s", False),
]


def test_cancelled_tasks_are_done_by_the_next_replica(site: Callable[..., Site]) -> None:
    """Cancelled by a second SIGTERM or by WORKER_DRAIN_TIMEOUT, whether they listen or not; all at the same time."""
    sites = [
        start(site, json.dumps({"do": action, "seconds": 200}), WORKER_DRAIN_TIMEOUT=timeout)
        for action, timeout, _ in CANCELLED
    ]
    for one in sites:
        one.wait_running(2)
    for one, (_, _, second) in zip(sites, CANCELLED, strict=True):
        began = time.monotonic()
        (replica,) = one.replicas
        cancel_by_second_signal(replica) if second else replica.send(signal.SIGTERM)
        assert replica.wait_exit() == 6, replica.tail()
        assert time.monotonic() - began < SOON
        assert "Traceback" not in replica.stderr, replica.tail()
        assert one.committed() == {}
    for one in sites:
        finish_in_a_hurry(one)
        twice = {(0, 0): 1, (1, 0): 1}
        once = Counter({(sent.partition, sent.offset): 1 for sent in one.sent})
        assert one.journal.starts() == once + Counter(twice)
