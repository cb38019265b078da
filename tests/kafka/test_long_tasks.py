"""Tasks longer than every time-out of the group: the main purpose of the program."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chaos import groups
from tests.kafka.support.topics import task

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.site import Site

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SESSION, HOLD = "6000", "8s"  # the tasks below take two or three times as long
VARIANTS = [
    ("consumer", '{"do": "nap", "seconds": 20}', 20),
    ("consumer", '{"do": "grip", "seconds": 15}', 15),
    ("classic", '{"do": "spin", "seconds": 20}', 20),
    ("classic", '{"do": "grip", "seconds": 15}', 15),
]


def busy(site: Callable[..., Site], protocol: str, payload: str) -> Site:
    """Start two processes with a partition each. Each partition has a long task and a short one behind it."""
    settings = {"WORKER_PROCESSES": "2", "WORKER_REVOKE_HOLD": HOLD, "WORKER_REVOKE_HOLD_CLASSIC": HOLD}
    one = site(partitions=2, KAFKA_GROUP_PROTOCOL=protocol, **settings)
    if protocol == "consumer":
        groups.configure(one.bootstrap, one.group, {"consumer.session.timeout.ms": SESSION})
        one.start()
    else:
        one.start(KAFKA_CONFIG_SESSION_TIMEOUT_MS=SESSION)
    one.submit(task(partition, payload, partition=partition) for partition in (0, 1))
    one.submit(task(2 + partition, "go", partition=partition) for partition in (0, 1))
    return one


@pytest.mark.timeout(240)
def test_tasks_longer_than_session_and_hold_run_once(site: Callable[..., Site]) -> None:
    """Tasks sleep, compute, or hold the interpreter lock in C, under both protocols. All cases run at the same time."""
    sites = [busy(site, protocol, payload) for protocol, payload, _ in VARIANTS]
    running = [set(one.wait_running(2).values()) for one in sites]
    for one in sites:
        one.wait_answered()
    assert [set(one.replicas[0].pids()) for one in sites] == running
    for one, (_, _, seconds) in zip(sites, VARIANTS, strict=True):
        one.finish()
        one.started_once()
        for sent in one.sent[:2]:
            response = one.answer_to(sent).response
            assert response.finished_at.ToNanoseconds() - response.started_at.ToNanoseconds() >= (seconds - 0.1) * 1e9
