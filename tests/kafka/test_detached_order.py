"""Requests that must not overtake a detached task wait, and others run. Under at-most-once no task starts twice."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from chaos import groups
from tests.kafka.support.detaching import PARTITIONS, SESSION, holder_of, make, two_replicas
from tests.kafka.support.topics import task
from tests.kafka.support.waiting import until
from tests.long_form import LONG

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.site import Site
    from tests.kafka.support.topics import Sent

    Scenario = Callable[..., None]

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(240)]

# Seconds for the requests that do not wait, with the default heartbeat of 5 s. Beside other tests the CPUs are busy.
LIMIT = 12.0 if LONG else 25.0
SECONDS = 30  # of the long task
QUICK = '{"do": "nap", "seconds": 0.02}'


def span(one: Site, sent: Sent) -> tuple[int, int]:
    """Return the start and the end of the answered attempt, in nanoseconds since the epoch."""
    response = one.answer_to(sent).response
    return response.started_at.ToNanoseconds(), response.finished_at.ToNanoseconds()


def submit(one: Site) -> tuple[Sent, list[Sent]]:
    """Submit a long task with key ``a`` to partition 0, and behind it short ones with both keys to all partitions."""
    (long,) = one.submit([task(0, f'{{"do": "nap", "seconds": {SECONDS}}}', key=b"a", partition=0)])
    one.wait_running(1)
    keys = (b"a", b"b")
    return long, one.submit(
        task(1 + n, QUICK, key=keys[n // PARTITIONS % 2], partition=n % PARTITIONS) for n in range(5 * PARTITIONS)
    )


def must_wait(ordering: str, sent: Sent) -> bool:
    """Return whether this short task must not overtake the long one. Every second one behind it has its key."""
    return sent.partition == 0 and (ordering == "partition" or sent.offset % 2 == 1)


def the_rest_flows(site: Callable[..., Site], ordering: str, guarantee: str, protocol: str) -> None:
    """Requests that may overtake the long task do. Every request starts once and has one answer."""
    one = make(site, protocol, WORKER_ORDERING=ordering, WORKER_GUARANTEE=guarantee)
    replicas = two_replicas(one)
    began = time.monotonic()
    long, shorts = submit(one)
    free = [sent for sent in shorts if not must_wait(ordering, sent)]
    one.wait_answered(free)
    assert time.monotonic() - began < LIMIT, one.tails()
    holder_of(one, replicas)
    one.finish()
    one.started_once()
    _, end = span(one, long)
    assert max(span(one, sent)[1] for sent in free) < end, "they have waited for the long task"
    waited = [sent for sent in shorts if sent not in free]
    assert waited
    assert min(span(one, sent)[0] for sent in waited) >= end, "it was overtaken"


def in_order_of_the_partition(site: Callable[..., Site]) -> None:
    the_rest_flows(site, "partition", "exactly-once", "consumer")


def in_order_of_the_key(site: Callable[..., Site]) -> None:
    the_rest_flows(site, "key", "at-least-once", "classic")


def in_order_of_the_key_at_most_once(site: Callable[..., Site]) -> None:
    the_rest_flows(site, "key", "at-most-once", "consumer")


def in_order_of_the_partition_at_most_once(site: Callable[..., Site]) -> None:
    the_rest_flows(site, "partition", "at-most-once", "classic")


def a_holder_that_dies_loses_its_task(site: Callable[..., Site]) -> None:
    """Under at-most-once the task is reported as lost. It does not start again, and the requests behind it run."""
    one = make(site, "consumer", WORKER_ORDERING="partition", WORKER_GUARANTEE="at-most-once")
    groups.configure(one.bootstrap, one.group, {"consumer.session.timeout.ms": SESSION})
    replicas = two_replicas(one)
    long, shorts = submit(one)
    one.wait_answered([sent for sent in shorts if sent.partition])
    holder = holder_of(one, replicas)
    owner = next(replica for replica in replicas if replica is not holder)
    holder.process.send_signal(signal.SIGKILL)
    until(lambda: owner.events("tasks.lost"), one.tails)
    (lost,) = owner.events("tasks.lost")
    assert lost["offsets"] == [f"{long.offset}-{long.offset}"]
    one.wait_answered(shorts)
    one.wait_committed()
    one.stop()
    one.started_once()
    assert long[:3] not in one.counts()


SCENARIOS: list[Scenario] = [
    in_order_of_the_partition,
    in_order_of_the_key_at_most_once,
    a_holder_that_dies_loses_its_task,
]
OTHERS: list[Scenario] = [in_order_of_the_key, in_order_of_the_partition_at_most_once]


@pytest.mark.parametrize("scenario", SCENARIOS + OTHERS * LONG, ids=lambda scenario: scenario.__name__)
def test_detached_order(together: Callable[[Scenario], None], scenario: Scenario) -> None:
    together(scenario)
