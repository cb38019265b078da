"""The durations, workers and outcomes of requests, on small tables made in code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pipeline.audit import ordering, workload
from tests.spark.support.attributed import by_sequence, by_sequence_of_all, found
from tests.spark.support.tables import answer, at, bronze, dead_letter, failed, garbage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_histogram_adds_up_and_is_within_one_percent(spark: SparkSession) -> None:
    rows = [answer(number, started_at=at(0), finished_at=at(0.001 * (number + 1))) for number in range(100)]
    profiled = workload.profile(by_sequence(bronze(spark, rows), 100))
    buckets = workload.work_histogram(profiled).collect()
    assert sum(bucket["count"] for bucket in buckets) == 100
    assert sum(bucket["seconds"] for bucket in buckets) == pytest.approx(5.05)
    for bucket in buckets:
        middle = workload.GROWTH ** (bucket["bucket"] + 0.5)
        assert bucket["seconds"] / bucket["count"] == pytest.approx(middle, rel=0.0101)


def test_a_negative_duration_counts_as_the_least_duration(spark: SparkSession) -> None:
    """The clocks of a worker and of the broker differ."""
    table = bronze(spark, [answer(1, started_at=at(2), finished_at=at(1)), answer(2, started_at=None)])
    (bucket,) = workload.work_histogram(workload.profile(by_sequence(table, 100))).collect()
    assert bucket["count"] == 1
    assert workload.GROWTH ** bucket["bucket"] <= workload.LEAST < workload.GROWTH ** (bucket["bucket"] + 1)


def test_the_wait_is_known_if_the_answer_has_the_time_of_its_request(spark: SparkSession) -> None:
    table = by_sequence(bronze(spark, [answer(1, requested_at=at(0)), answer(2)]), 100)
    columns = [workload.WAIT, workload.LATENCY, workload.DELIVERY]
    assert found(workload.with_waits(table), *columns) == {(1.0, 3.0, 1.0), (None, None, 1.0)}
    assert found(workload.histograms(workload.with_waits(table)), "metric", "count", "seconds", "longest") == {
        (workload.WAIT, 1, 1.0, 1.0),
        (workload.LATENCY, 1, 3.0, 3.0),
        (workload.DELIVERY, 2, 2.0, 1.0),
    }


def test_a_sample_selects_the_answers_to_the_selected_requests(spark: SparkSession) -> None:
    table = bronze(spark, [answer(number) for number in range(400)])
    answered = found(table.where(workload.sampled(4, "origin_offset")), "origin_offset")
    assert 50 < len(answered) < 150
    assert answered == found(table.where(workload.sampled(4, "offset")), "offset")
    assert table.where(workload.sampled(1, "offset")).count() == 400


def test_one_profile_gives_kinds_workers_and_outcomes(spark: SparkSession) -> None:
    rows = [answer(0), answer(1), failed(2) | {"worker": "w2"}, failed(3, "EXPIRED"), answer(500)]
    table = by_sequence_of_all(bronze(spark, [*rows, garbage(offset=900), dead_letter(2)]))
    profiled = workload.profile(table)
    assert found(workload.by_outcome(profiled), "kind", "outcome", "records") == {
        (workload.ANSWERED, "OK", 2),
        (workload.ANSWERED, "DEAD_LETTERED", 1),
        (workload.ANSWERED, "EXPIRED", 1),
        (workload.UNEXPECTED, "OK", 1),
        (workload.UNDECODABLE, None, 1),
        (workload.DEAD, None, 1),
    }
    workers = {row.worker: row for row in workload.by_worker(profiled).collect()}
    assert (workers["w1"].answers, workers["w1"].work_seconds, workers["w1"].cpu_seconds) == (3, 3.0, 1.5)
    (good,) = workload.by_outcome(workload.answered(profiled)).where("isprocessed").collect()
    assert good["last"] - good["first"] == at(1) - at(0)


def test_failures_are_counted_by_error_and_answers_by_time(spark: SparkSession) -> None:
    table = by_sequence(bronze(spark, [answer(0), answer(1), failed(2), failed(3, "EXPIRED")]), 100)
    assert found(workload.by_error(workload.failures(table)), "outcome", "error_type", "answers", "example") == {
        ("DEAD_LETTERED", "ValueError", 1, "no good"),
        ("EXPIRED", "ValueError", 1, "no good"),
    }
    begin = at(2).timestamp()
    assert found(workload.over_time(ordering.stretches(table, 2)), "begin", "outcome", "answers") == {
        (begin, "OK", 2),
        (begin + 2, "DEAD_LETTERED", 1),
        (begin + 2, "EXPIRED", 1),
    }
