"""How soon short tasks behind a long one are answered, by heartbeat interval. Prints the figures.

    E2E_LONG=1 pytest -n 0 -s tests/kafka/test_detached_figures.py

Run it alone: the limits are for idle CPUs.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import click
import pytest

from chaos import groups
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
from tests.long_form import LONG

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
    """The group's heartbeat interval, and the time for the short tasks without their own durations. Both in seconds."""

    heartbeat: int
    seconds: float


LONG_AFTER, SHORT_SECONDS = 3.0, 4.0  # the latter: the durations of all short tasks together
LIMITS = [Limit(5, 12.0), Limit(1, 7.0)]  # 5 s is the broker's default


def beating(site: Callable[..., Site], heartbeat: int, **variables: str) -> Site:
    """Return a site whose group has this heartbeat interval, in seconds."""
    one = make(site, "consumer", WORKER_GUARANTEE="exactly-once", **variables)
    groups.configure(one.bootstrap, one.group, {"consumer.heartbeat.interval.ms": str(1000 * heartbeat)})
    return one


def check(one: Site, took: float, limit: float, what: str) -> None:
    """Check that all short tasks were answered in time, and each request once."""
    click.echo(f"\n{what}: {SHORT} short tasks answered in {took:.1f} s, goal {limit:g} s")
    assert took < limit + SHORT_SECONDS, one.tails()
    one.finish()
    one.started_once()


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: f"{limit.heartbeat}s")
def test_an_idle_replica_answers_the_short_tasks_within_the_limit(site: Callable[..., Site], limit: Limit) -> None:
    one = beating(site, limit.heartbeat)
    took = behind_with_an_idle_replica(one)
    check(one, took, limit.seconds, f"heartbeat {limit.heartbeat} s, an idle replica")


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: f"{limit.heartbeat}s")
def test_a_joining_replica_answers_the_short_tasks_within_the_limit(site: Callable[..., Site], limit: Limit) -> None:
    """The time is counted from the readiness of this replica."""
    one = beating(site, limit.heartbeat)
    took = behind_with_a_new_replica(one)
    check(one, took, limit.seconds, f"heartbeat {limit.heartbeat} s, a replica that joins")


def test_an_extra_slot_answers_the_short_tasks_within_the_limit(site: Callable[..., Site]) -> None:
    """There is no other replica."""
    one = beating(site, 5, WORKER_ISOLATION="process", WORKER_EXTRA_SLOTS="1")
    one.start().wait_ready()
    submit_long(one)
    began = time.monotonic() + LONG_AFTER
    one.wait_answered(submit_short(one))
    check(one, time.monotonic() - began, 5.0, "an extra slot, alone, from when a task is long")


def test_scaling_to_four_replicas_and_back_starts_no_task_twice(site: Callable[..., Site]) -> None:
    """Each task takes 60 s. New replicas start tasks within 12 s, and leaving replicas finish theirs."""
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
