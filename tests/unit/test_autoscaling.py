"""The KEDA and HPA examples kill no task and do not flap, in a simulation of HPA's published algorithm."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.autoscaling import Hpa, Report, simulate
from worker.vocabulary import METRICS

CONFIG = Path(__file__).parents[2] / "config"
HOUR = 3_600
SLOTS = 2
LONGEST = 6 * HOUR


def example() -> dict[str, Any]:
    spec: dict[str, Any] = yaml.safe_load((CONFIG / "hpa.yaml").read_text())["spec"]
    return spec


def hpa(spec: dict[str, Any]) -> Hpa:
    targets = [float(metric["external"]["target"]["averageValue"]) for metric in spec["metrics"]]
    return Hpa(targets, spec["minReplicas"], spec["maxReplicas"], spec["behavior"])


def long_tasks(rng: random.Random) -> dict[int, list[int]]:
    """Return tasks of one to six hours, some for each hour of a working day."""
    return {hour * HOUR + 60: [rng.randint(HOUR, LONGEST) for _ in range(rng.randint(1, 6))] for hour in range(8)}


def bursts(rng: random.Random) -> dict[int, list[int]]:
    """Return many tasks of seconds to minutes, about every ten minutes."""
    return {at + rng.randint(0, 120): [rng.randint(5, 180) for _ in range(40)] for at in range(60, 6 * HOUR, 600)}


def both(rng: random.Random) -> dict[int, list[int]]:
    """Return bursts and tasks of hours."""
    arrivals = bursts(rng)
    for at, durations in long_tasks(rng).items():
        arrivals[at] = arrivals.get(at, []) + durations
    return arrivals


def long_tasks_behind_short_ones(_: random.Random) -> dict[int, list[int]]:
    """Return a backlog that needs all pods, and that ends with tasks of hours for every slot."""
    return {60: [20] * 400 + [2 * HOUR] * 20}


def run(one: Hpa, arrivals: Any, grace: int = LONGEST) -> Report:
    given = arrivals(random.Random(7))
    return simulate(one, given, seconds=20 * HOUR, slots=SLOTS, grace=grace)


@pytest.mark.parametrize(
    ("arrivals", "waves"), [(long_tasks, 8), (bursts, 0), (both, 8), (long_tasks_behind_short_ones, 0)]
)
def test_the_example_kills_no_task_and_does_not_flap(arrivals: Any, waves: int) -> None:
    """``waves``: how often work arrives after a pause in which pods may have been removed."""
    one = hpa(example())
    report = run(one, arrivals)
    assert (report.cut, report.too_few, report.unfinished) == (0, 0, 0)
    assert report.reversals <= waves
    assert max(report.replicas) > one.least, "it scales out"
    assert report.replicas[-1] == one.least, "and in again"


def test_a_target_for_short_tasks_keeps_a_slot_for_every_running_task() -> None:
    """The second metric ensures it. With the lag alone, pods with tasks of hours are removed."""
    spec = example()
    spec["metrics"][0]["external"]["target"]["averageValue"] = "40"
    assert run(hpa(spec), long_tasks_behind_short_ones).too_few == 0
    spec["metrics"][1]["external"]["target"]["averageValue"] = "1000000"
    assert run(hpa(spec), long_tasks_behind_short_ones).too_few > 0


def test_the_simulation_detects_killed_tasks() -> None:
    """The grace period is shorter than the tasks."""
    assert run(hpa(example()), long_tasks, grace=60).cut > 0


def test_the_simulation_detects_flapping() -> None:
    spec = example()
    spec["behavior"]["scaleDown"] = {
        "stabilizationWindowSeconds": 0,
        "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
    }
    assert run(hpa(spec), bursts).reversals > 10


def test_keda_makes_the_same_hpa() -> None:
    keda, spec = yaml.safe_load((CONFIG / "keda.yaml").read_text())["spec"], example()
    assert (keda["minReplicaCount"], keda["maxReplicaCount"]) == (spec["minReplicas"], spec["maxReplicas"])
    assert keda["advanced"]["horizontalPodAutoscalerConfig"]["behavior"] == spec["behavior"]
    lag, busy = (trigger["metadata"] for trigger in keda["triggers"])
    averages = [metric["external"]["target"]["averageValue"] for metric in spec["metrics"]]
    assert [lag["lagThreshold"], busy["threshold"]] == averages


def test_the_examples_fit_the_deployment() -> None:
    """They use the names of kubernetes.yaml, as many slots as the pod has CPUs, and a metric that exists."""
    documents = list(yaml.safe_load_all((CONFIG / "kubernetes.yaml").read_text()))
    settings, deployment = documents[0]["data"], documents[1]
    keda = yaml.safe_load((CONFIG / "keda.yaml").read_text())["spec"]
    lag, busy = (trigger["metadata"] for trigger in keda["triggers"])
    assert keda["scaleTargetRef"]["name"] == example()["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert lag["consumerGroup"] == settings["KAFKA_CONSUMER_GROUP_ID"]
    assert lag["topic"] == settings["KAFKA_REQUEST_TOPIC"]
    assert lag["bootstrapServers"] == settings["KAFKA_BOOTSTRAP_SERVER"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert int(container["resources"]["limits"]["cpu"]) == SLOTS == int(busy["threshold"])
    assert f"worker_{'busy'}" in busy["query"]
    assert "busy" in {metric.name for metric in METRICS}
