"""The simulation of large groups: it reproduces measurements, and small cases give results that can be worked out."""

from __future__ import annotations

import json
import re
from random import Random

import pytest

from benchmarks.simulation import page
from benchmarks.simulation.__main__ import PAGE, RESULTS
from benchmarks.simulation.group import Request
from benchmarks.simulation.measured import TOLERANCE, checks
from benchmarks.simulation.process import Policy
from benchmarks.simulation.run import Setup, central, simulate, summarise
from benchmarks.simulation.sweeps import SWEEPS
from benchmarks.simulation.traffic import BORG, MIXED, Lengths, poisson

HOLD = Policy("hold")
DETACH = Policy("detach", 10.0, detach=True)
LONG_AND_SHORT = [Request(1.0, 100.0, 0), Request(2.0, 1.0, 0)]


def waits(policy: Policy, requests: list[Request], processes: int = 2, partitions: int = 2) -> dict[float, float]:
    """Return how long each request waited, by the time at which it was sent."""
    results, _, _ = simulate(Setup(processes, partitions), policy, requests, until=1000.0)
    return {request.sent: waited for request, waited in zip(results.requests, results.waited, strict=True)}


def test_the_simulation_agrees_with_the_measurements() -> None:
    """Otherwise its results about larger groups cannot be trusted."""
    found = checks()
    assert len(found) == 31
    assert [check for check in found if abs(check.deviation) > TOLERANCE] == []


def test_a_held_partition_waits_for_its_long_task() -> None:
    assert waits(HOLD, LONG_AND_SHORT)[2.0] == pytest.approx(99.0)


def test_the_partition_of_a_detached_task_moves_to_the_other_process() -> None:
    """It moves after 10 s and at most one heartbeat."""
    assert 9.0 <= waits(DETACH, LONG_AND_SHORT)[2.0] <= 14.1


def test_a_single_process_does_not_give_way() -> None:
    assert waits(DETACH, LONG_AND_SHORT, processes=1)[2.0] == pytest.approx(99.0)


def test_a_process_gets_partitions_again_after_its_long_task_has_ended() -> None:
    """It gets its share with its next heartbeat."""
    _, group, _ = simulate(Setup(2, 2), DETACH, LONG_AND_SHORT, until=1000.0)
    assert sorted(len(member.owned) for member in group.active) == [1, 1]
    assert group.changes == 2


def test_a_short_task_gets_the_cpu_before_the_long_task_beside_it() -> None:
    """The short task starts when the other task has become a long task, and uses the CPU alone for its second."""
    results, _, busy = simulate(Setup(1, 1), Policy("slots", 10.0, slots=1), LONG_AND_SHORT, until=1000.0)
    took = {request.sent: took for request, took in results.took}
    assert took[2.0] == pytest.approx(10.0)
    assert took[1.0] == pytest.approx(101.0)
    assert busy == pytest.approx(101.0)


def test_long_tasks_in_slots_share_the_cpu() -> None:
    requests = [Request(0.0, 30.0, 0), Request(0.0, 30.0, 0)]
    results, _, _ = simulate(Setup(1, 1), Policy("slots", 10.0, slots=1), requests, until=1000.0)
    assert [took for _, took in results.took] == pytest.approx([60.0, 60.0])


def test_a_central_queue_gives_each_request_to_the_first_free_process() -> None:
    results, busy = central(2, [Request(0.0, 10.0, 0), Request(0.0, 4.0, 0), Request(1.0, 2.0, 0)], until=5.0)
    assert results.waited == [0.0, 0.0, 3.0]
    assert busy == pytest.approx(5.0 + 4.0 + 1.0)


@pytest.mark.parametrize("policy", [HOLD, DETACH, Policy("both", 10.0, detach=True, slots=2)], ids=lambda p: p.name)
def test_every_request_runs_once(policy: Policy) -> None:
    """Processes give way and come back repeatedly."""
    requests = list(poisson(Random(3), Lengths("", lambda r: r.choice([1.0, 60.0]), 30.5), 0.2, 3000.0, 20))
    results, group, busy = simulate(Setup(10, 20), policy, requests, until=20_000.0, seed=4)
    assert sorted(results.requests) == sorted(requests)
    assert sorted(request for request, _ in results.took) == sorted(requests)
    assert busy == pytest.approx(sum(request.seconds for request in requests))
    assert (group.changes > 0) == policy.detach


def test_a_request_that_never_starts_counts_as_waiting_until_the_end() -> None:
    summary = summarise(Setup(1, 1), HOLD, LONG_AND_SHORT, until=51.0, warm_up=1.5)
    assert (summary.tasks, summary.mean_wait) == (1, 49.0)
    assert summary.utilisation == pytest.approx(50 / 51)


@pytest.mark.parametrize("lengths", [BORG, MIXED], ids=lambda lengths: lengths.name)
def test_the_stated_mean_of_the_lengths_is_the_mean_of_drawn_lengths(lengths: Lengths) -> None:
    random = Random(1)
    drawn = [lengths.draw(random) for _ in range(400_000)]
    assert sum(drawn) / len(drawn) == pytest.approx(lengths.mean, rel=0.05)


def test_the_page_shows_the_kept_results() -> None:
    """The results cover all sweeps, with the cases that the code has now."""
    kept = json.loads(RESULTS.read_text("utf-8"))
    text = PAGE.read_text("utf-8")
    assert page.fill(text, page.tables(kept["runs"], kept["checks"])) == text
    assert [row["sweep"] for row in kept["runs"]].count("policies") == len(list(SWEEPS["policies"]()))
    assert {row["sweep"] for row in kept["runs"]} == set(SWEEPS)
    assert all((PAGE.parent / link).exists() for link in re.findall(r"\((simulation/[\w-]+\.svg)\)", text))
