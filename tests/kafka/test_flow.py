"""Flow control: partitions take turns, are paused separately, and have bounded queues."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.kafka.support.replica import metric
from tests.kafka.support.topics import task
from tests.kafka.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.site import Site

    Scenario = Callable[..., None]

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

DEEP, SHALLOW = 1_000, 10
MEGABYTES = 1024 * 1024


def nap(seconds: float) -> str:
    return json.dumps({"do": "nap", "seconds": seconds})


def a_deep_partition_does_not_starve_a_shallow_one(site: Callable[..., Site]) -> None:
    """In all three orderings, the shallow partition gets requests while tasks of the deep one run."""
    sites = {}
    for ordering in ("partition", "key", "unordered"):
        one = sites[ordering] = site(partitions=2, WORKER_ORDERING=ordering)
        one.submit(task(n, nap(0.02), partition=0) for n in range(DEEP))
        one.start()
    waited = {}
    for ordering, one in sites.items():
        until(lambda one=one: len(one.journal.entries("start")) > SHALLOW, one.tails)  # type: ignore[misc]
        shallow = one.submit(task(n, nap(0.02), partition=1) for n in range(SHALLOW))
        before = len(one.journal.entries("start"))
        one.wait_answered(shallow)
        starts = [entry.partition for entry in one.journal.entries("start")]
        last = len(starts) - starts[::-1].index(1)
        waited[ordering] = starts[before:last].count(0)
    print(f"{SHALLOW} shallow requests had to let that many of {DEEP} deep ones go first: {waited}")  # noqa: T201
    assert max(waited.values()) < DEEP / 4
    for one in sites.values():
        one.finish()
        one.started_once()


def only_a_full_partition_is_paused(site: Callable[..., Site]) -> None:
    """The partition waits for the next attempt of its first request. Meanwhile requests of the other are fetched."""
    one = site(partitions=2, WORKER_RETRY_BACKOFF="20s..20s")
    failing = json.dumps({"do": "fail_until", "attempt": 2})
    one.submit([task(0, failing, partition=0), *[task(n, "go", partition=0) for n in range(1, 9_000)]])
    replica = one.start().wait_ready()
    until(lambda: one.journal.starts()[0, 0], replica.tail)
    until(lambda: metric(replica, "pauses_total") >= 1, replica.tail)
    waiting = metric(replica, "queued_records")
    for number in range(5):
        others = one.submit([task(number, "go", partition=1)])
        one.wait_answered(others)
    assert one.journal.starts()[0, 0] == 1, "the other partition was too slow to show anything"
    assert waiting < 9_000
    assert metric(replica, "rebalances_total") == 1
    one.finish()
    starts = [entry.offset for entry in one.journal.entries("start") if entry.partition == 0]
    assert starts == [0, *range(9_000)]


def large_requests_do_not_fill_the_memory(site: Callable[..., Site]) -> None:
    """A process keeps only a few requests and answers of 900 kB, however many there are."""
    one = site(partitions=4)
    load = "x" * 900_000
    replica = one.start().wait_ready()
    one.submit([task(0, nap(0.01), partition=0)])
    one.wait_answered()
    (pid,) = replica.pids()
    empty = psutil.Process(pid).memory_info().rss
    for _ in range(5):
        one.submit(task(n, load, partition=n % 4) for n in range(30))
    most = 0

    def grown() -> bool:
        nonlocal most
        most = max(most, psutil.Process(pid).memory_info().rss - empty)
        return len(one.journal.entries("end")) >= len(one.sent)

    until(grown, one.tails)
    print(f"{most / MEGABYTES:.0f} MB more for 135 MB of requests")  # noqa: T201 - measured
    assert most < 90 * MEGABYTES
    one.finish()
    one.started_once()


SCENARIOS = [
    a_deep_partition_does_not_starve_a_shallow_one,
    only_a_full_partition_is_paused,
    large_requests_do_not_fill_the_memory,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_flow(together: Callable[[Scenario], None], scenario: Scenario) -> None:
    together(scenario)
