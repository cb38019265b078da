"""How soon short tasks are answered behind a long one, with the heartbeats that brokers have. Prints the figures.

    E2E_LONG=1 pytest -n 0 -s tests/kafka/test_detached_figures.py

Run alone: the limits are for CPUs that are not busy.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import click
import pytest

from chaos import groups
from tests.kafka.conftest import LONG
from tests.kafka.support.detaching import (
    PARTITIONS,
    SHORT,
    behind_with_a_new_replica,
    behind_with_an_idle_replica,
    make,
    shared,
    submit_long,
    submit_short,
)
from tests.kafka.support.topics import task
from tests.kafka.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.site import Site

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not LONG, reason="long form: figures, which other tests would disturb"),
]


class Limit(NamedTuple):
    """Seconds between two heartbeats of the group's members, and for the short tasks, beside what they take."""

    heartbeat: int
    seconds: float


LONG_AFTER, SHORT_SECONDS = 3.0, 4.0  # the latter: of all short tasks, one after another
LIMITS = [Limit(5, 12.0), Limit(1, 7.0)]  # 5 s is the broker's default


def beating(site: Callable[..., Site], heartbeat: int, **variables: str) -> Site:
    """Requests and a group with that heartbeat."""
    one = make(site, "consumer", WORKER_GUARANTEE="exactly-once", **variables)
    groups.configure(one.bootstrap, one.group, {"consumer.heartbeat.interval.ms": str(1000 * heartbeat)})
    return one


def check(one: Site, took: float, limit: float, what: str) -> None:
    """All short tasks were answered in time, and each request once."""
    click.echo(f"\n{what}: {SHORT} short tasks answered in {took:.1f} s, goal {limit:g} s")
    assert took < limit + SHORT_SECONDS, one.tails()
    one.finish()
    one.started_once()


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: f"{limit.heartbeat}s")
def test_with_an_idle_replica(site: Callable[..., Site], limit: Limit) -> None:
    one = beating(site, limit.heartbeat)
    took = behind_with_an_idle_replica(one)
    check(one, took, limit.seconds, f"heartbeat {limit.heartbeat} s, an idle replica")


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: f"{limit.heartbeat}s")
def test_with_a_replica_that_joins(site: Callable[..., Site], limit: Limit) -> None:
    """Counted from when it is ready to work."""
    one = beating(site, limit.heartbeat)
    took = behind_with_a_new_replica(one)
    check(one, took, limit.seconds, f"heartbeat {limit.heartbeat} s, a replica that joins")


def test_with_an_extra_slot(site: Callable[..., Site]) -> None:
    """And no other replica."""
    one = beating(site, 5, WORKER_ISOLATION="process", WORKER_EXTRA_SLOTS="1")
    one.start().wait_ready()
    submit_long(one)
    began = time.monotonic() + LONG_AFTER
    one.wait_answered(submit_short(one))
    check(one, time.monotonic() - began, 5.0, "an extra slot, alone, from when a task is long")


def test_from_one_replica_to_four_and_back(site: Callable[..., Site]) -> None:
    """While each task takes 60 s: new replicas work soon, leaving ones end theirs, and nothing is done again."""
    one = beating(site, 5)
    replicas = [one.start().wait_ready()]
    shared(one, [PARTITIONS])
    one.submit(task(n, '{"do": "nap", "seconds": 60}', partition=n) for n in range(PARTITIONS))
    one.wait_running(1)
    replicas += [replica.wait_ready() for replica in [one.start() for _ in range(3)]]
    joined = time.monotonic()
    one.wait_running(4)
    took = time.monotonic() - joined
    click.echo(f"\n1 to 4 replicas: all four run a task {took:.1f} s after the last one was ready, limit 12 s")
    until(lambda: sum(one.journal.starts().values()) == PARTITIONS, one.tails)
    for replica in replicas[:3]:
        replica.process.terminate()
    one.submit(task(PARTITIONS + n, '{"do": "nap", "seconds": 1}', partition=n) for n in range(PARTITIONS))
    one.finish()
    again = sum(one.journal.starts().values()) - len(one.sent)
    click.echo(f"4 to 1 replicas: {again} of {len(one.sent)} tasks done again")
    one.started_once()
    assert took < 12, one.tails()
