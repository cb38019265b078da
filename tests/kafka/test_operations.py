"""The HTTP endpoints of a replica that works, loses a process and drains."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from chaos import groups
from tests.kafka.support.replica import kill
from tests.kafka.support.topics import task
from tests.kafka.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.replica import Replica
    from tests.kafka.support.site import Site

    Scenario = Callable[..., None]

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

Counters = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def counters(replica: Replica) -> Counters:
    """Return every sample that must never decrease: of counters, and of the buckets and sums of histograms."""
    page = replica.page("/metrics")
    assert page.status == 200
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page.text)
        if family.type in ("counter", "histogram")
        for sample in family.samples
    }


def answered(found: Counters) -> float:
    """Return how many requests all processes together have answered."""
    return sum(value for (name, _), value in found.items() if name == "worker_tasks_total")


def the_endpoints_show_what_runs(site: Callable[..., Site]) -> None:
    one = site(partitions=2, WORKER_PROCESSES="2")
    replica = one.start()
    early = replica.page("/readyz")
    assert (early.status, json.loads(early.text)["status"]) == (503, "not ready")
    assert replica.wait_ready().page("/livez").status == 200
    one.submit(task(part, '{"do": "nap", "seconds": 4}', partition=part) for part in (0, 1))
    running = one.wait_running(2)
    shown = until(lambda: len(busy := [p for p in replica.tasks() if p["task"]]) == 2 and busy, replica.tail)
    assert {(p["task"]["partition"], p["task"]["offset"]): p["pid"] for p in shown} == running
    assert {(p["task"]["topic"], p["task"]["attempt"]) for p in shown} == {(one.requests, 1)}
    assert replica.page("/nonsense").status == 404
    replica.send(signal.SIGTERM)
    replica.wait_status("/readyz", 503)
    assert replica.page("/livez").status == 200  # a replica must not be killed because it drains
    assert replica.wait_exit() == 0, replica.tail()
    one.finish()


def counters_never_decrease(site: Callable[..., Site]) -> None:
    """This also holds after the death of a process that has counted."""
    one = site(partitions=2, WORKER_PROCESSES="2", KAFKA_GROUP_PROTOCOL="consumer")
    groups.configure(one.bootstrap, one.group, {"consumer.session.timeout.ms": "6000"})  # the partitions move sooner
    replica = one.start().wait_ready()
    pids = replica.pids()
    sent = one.submit(task(number, "go") for number in range(200))
    one.wait_answered()
    until(lambda: answered(counters(replica)) == 200, lambda: f"{counters(replica)}\n{replica.tail()}")
    before = counters(replica)
    kill(pids[:1])
    last = before

    def replaced() -> bool:
        nonlocal last
        now = counters(replica)
        assert {name: (value, now.get(name)) for name, value in last.items() if now.get(name, -1) < value} == {}
        last = now
        fresh = replica.pids()
        return len(fresh) == 2 and pids[0] not in fresh and len([p for p in replica.tasks() if p["partitions"]]) == 2

    until(replaced, replica.tail)
    one.submit(task(1000 + number, "go") for number in range(50))
    one.wait_answered()
    until(lambda: answered(counters(replica)) == len(sent) + 50, lambda: f"{counters(replica)}\n{replica.tail()}")
    after = counters(replica)
    assert sum(after[key] for key in after if key[0] == "worker_process_restarts_total") == 1
    assert {name for name, value in before.items() if after.get(name, -1) < value} == set()
    one.finish()


SCENARIOS = [the_endpoints_show_what_runs, counters_never_decrease]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_operations(together: Callable[[Scenario], None], scenario: Scenario) -> None:
    together(scenario)
