"""The pure parts of the benchmarks' workloads."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import durations
from benchmarks.comparison import interleave, ratios_of_worker
from benchmarks.failure import Failure
from benchmarks.figures import (
    Figure,
    Span,
)
from benchmarks.goals import GOALS
from benchmarks.runs import TaskRun
from benchmarks.workloads import blocked, crashes, latency, limits, pipeline, scaling, uneven


def span(worker: str, started: float, finished: float) -> Span:
    return Span(worker, started, finished, cpu=finished - started)


# -- uneven tasks


def test_lengths_are_drawn_up_to_a_total_and_are_always_the_same() -> None:
    lengths = durations.take_seconds(durations.pareto(4), 40)

    assert sum(lengths) >= 40 > sum(lengths[:-1])
    assert min(lengths) >= durations.SHORTEST
    assert max(lengths) <= durations.LONGEST
    assert lengths == durations.take_seconds(durations.pareto(4), 40)


def test_one_task_in_a_hundred_is_long() -> None:
    hundred = list(itertools.islice(durations.bimodal(1), 300))

    assert [hundred[at : at + 100].count(durations.LONG) for at in (0, 100, 200)] == [1, 1, 1]
    assert hundred.count(durations.SHORTEST) == 297


@pytest.mark.parametrize(
    ("lengths", "bound", "greedy"),
    [([1, 1, 1, 1], 2, 2), ([1, 1, 4], 4, 5), ([4, 1, 1], 4, 4), ([2, 2, 2], 3, 4), ([5], 5, 5)],
)
def test_a_list_schedule_takes_tasks_in_order_and_may_exceed_the_lower_bound(
    lengths: list[float], bound: float, greedy: float
) -> None:
    assert durations.lower_bound(lengths, 2) == bound
    assert durations.list_schedule(lengths, 2) == greedy


def test_the_mean_wait_excludes_long_tasks_and_run_times() -> None:
    spans = [span("a", 100.0, 105.0), span("b", 101.0, 101.5), span("b", 103.0, 103.9)]

    assert uneven.mean_wait(spans) == pytest.approx(2.0)


def test_partitions_of_frequent_keys_get_more_requests() -> None:
    keys = durations.zipf_keys(10_000, 100, 1)
    partitions = [durations.by_key(keys, 4)(number)[1] for number in range(len(keys))]

    assert keys.count(0) > 5 * keys.count(9) > 0
    assert partitions.count(0) > 1.5 * partitions.count(3)
    assert durations.by_key([7], 4)(0) == (b"7", 3)


# -- programs in turns


class Recorder:
    """A replacement for the bench that records its messages."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.failures: list[Failure] = []

    def other_cpu_seconds(self) -> float:
        return 0.0

    def echo(self, line: str) -> None:
        self.lines.append(line)

    def report_failure(self, workload: str, program: str, error: Exception) -> None:
        self.failures.append(Failure(workload, program, error))


def test_programs_take_turns_and_one_that_fails_is_left_out() -> None:
    bench: Any = Recorder()
    order: list[str] = []

    def measure(program: Any) -> float:
        order.append(program.name)
        if program.name == "b" and order.count("b") == 2:
            raise RuntimeError("it broke")
        return float(len(order))

    programs: Any = [SimpleNamespace(name=name) for name in "abc"]
    found = interleave(bench, "peers", programs, 3, measure)

    assert order == ["a", "b", "c", "a", "b", "c", "a", "c"]
    assert found == {"a": [1.0, 4.0, 7.0], "b": [2.0], "c": [3.0, 6.0, 8.0]}
    assert [str(failure) for failure in bench.failures] == ["peers: b: RuntimeError: it broke"]


def test_ratios_divide_the_worker_by_each_peer() -> None:
    found = ratios_of_worker("peers", "empty tasks", {"worker": [6.0, 8.0], "Celery": [3.0, 2.0]}, {"Celery": "bare"})

    assert [(one.program, one.values, one.goal) for one in found] == [("worker ÷ Celery", (2.0, 4.0), "bare")]


def test_without_the_worker_there_are_no_ratios() -> None:
    assert ratios_of_worker("peers", "empty tasks", {"Celery": [3.0]}, {}) == []


# -- the pipeline's own benchmarks


def test_the_pipelines_figures_get_the_names_of_this_suite() -> None:
    written = [Figure("spark-codec", "requests", "pipeline", "/s", (1.0, 2.0), "encode")]

    found = pipeline.figures("codec", json.dumps([asdict(figure) for figure in written]))

    assert found == [Figure("pipeline-codec", "requests", "pipeline", "/s", (1.0, 2.0), "encode")]
    assert {"encode", "decode", "submit", "submit, of the sink", "audit"} < GOALS.keys()


# -- the other workloads


def test_latency_omits_quantiles_of_too_few_round_trips() -> None:
    rounds = {"worker": [[1.0] * 1000] * 2, "bare loop": [[0.5] * 1000] * 2, "arroyo": [[9.0] * 15]}

    found = {(one.quantity[-5:].strip(" ,"), one.program): len(one.values) for one in latency.figures(rounds)}

    assert found == {
        ("p50", "worker"): 2,
        ("p50", "bare loop"): 2,
        ("p50", "worker ÷ bare loop"): 2,
        ("p99", "worker"): 2,
        ("p99", "bare loop"): 2,
        ("p99", "worker ÷ bare loop"): 2,
    }


def test_a_quantile_of_too_few_values_is_computed_over_all_repetitions() -> None:
    found = latency.figures({"worker": [[1.0] * 400] * 3})

    assert [(one.quantity, len(one.values)) for one in found] == [
        ("idle round trip, p50", 3),
        ("idle round trip, p99", 1),
    ]


def test_the_wait_of_short_tasks_begins_with_the_first_start_of_any_task() -> None:
    spans = [span("a", 10.0, 30.0), *(span("b", 10.0 + n / 100, 10.01 + n / 100) for n in range(20))]

    (waited,) = [blocked.waits(TaskRun(spans), 20.0)]
    found = blocked.figures({"worker": [waited]}, 20.0)

    assert len(waited) == 20
    assert [one.quantity.rpartition(", ")[2] for one in found] == ["p50", "last"]  # too few for p95
    assert found[1].values == pytest.approx((0.2,))


def test_an_added_replica_starts_when_another_process_has_its_first_task() -> None:
    spans = [span("first", 1.0, 2.0), span("second", 5.0, 6.0), span("second", 4.0, 5.0)]

    assert scaling.first_start(spans, "first") == 4.0
    with pytest.raises(ValueError, match="empty"):
        scaling.first_start(spans[:1], "first")


def test_a_crash_is_over_when_every_partition_has_answered_a_later_request() -> None:
    assert crashes.unanswered({0, 1, 2, 3, 4, 5, 6}, 4) == [3]
    assert crashes.unanswered({4, 5, 6, 11}, 4) == []


def test_the_delay_behind_a_killed_task_excludes_its_time_limit() -> None:
    short = [span("b", 11.05, 11.06), span("a", 10.0, 10.01), span("b", 12.09, 12.1)]
    killed = span("a", 10.02, 11.03)  # Celery's results do not have it

    assert limits.delays(TaskRun(short), 2) == pytest.approx([40, 30])
    assert limits.delays(TaskRun([*short, killed]), 2) == pytest.approx([40, 30])
    with pytest.raises(ValueError, match="3 short tasks have ended, not 4"):
        limits.delays(TaskRun(short), 3)
