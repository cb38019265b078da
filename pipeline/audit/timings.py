"""Measurements of the work, as plain values from small aggregates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.audit import workload
from pipeline.audit.durations import Bucket, merged, summary

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

    from pipeline.audit.result import AuditResult

_SAMPLE = 250_000  # about the number of requests with measured waits: enough for percentiles
_WORKERS = 10_000  # rows that the driver fetches at most


def sampled_every(requests: int) -> int:
    """Return N such that the waits of one in N requests are measured."""
    return max(1, requests // _SAMPLE)


def wanted(result: AuditResult) -> Column:
    """Return which answers are fetched with details: every failure, and the sample with measured waits."""
    return workload.failing() | workload.sampled(result.sampled_every, "origin_offset")


def measure(
    result: AuditResult,
    profiled: DataFrame,
    stretches: DataFrame,
    answers: DataFrame,
) -> dict[str, DataFrame]:
    """Fill in times, workers and errors. Return histograms and workers as tables. ``answers`` are the ``wanted``."""
    if result.begin is None:
        return {}
    rows = workload.over_time(stretches).collect()
    result.over_time = sorted((float(row.begin), row.outcome, row.answers) for row in rows)
    workers = _by_count(workload.by_worker(profiled)).persist()
    result.workers = [_worker(row) for row in workers.collect()]
    waits = workload.histograms(workload.with_waits(_sample(result, answers)))
    histograms = workload.work_histogram(profiled).unionByName(waits).persist()
    _durations(result, histograms)
    if result.counts.failed:
        errors = _by_count(workload.by_error(workload.failures(answers)))
        result.errors = [row.asDict() for row in errors.collect()]
    return {"histograms": histograms, "workers": workers}


def _by_count(frame: DataFrame) -> DataFrame:
    return frame.orderBy(F.desc("answers")).limit(_WORKERS)


def _worker(row: Row) -> dict[str, Any]:
    times = {name: row[name].timestamp() if row[name] else None for name in ("first_start", "last_finish")}
    return row.asDict() | times


def _sample(result: AuditResult, answers: DataFrame) -> DataFrame:
    return answers.where(workload.sampled(result.sampled_every, "origin_offset"))


def _durations(result: AuditResult, histograms: DataFrame) -> None:
    # Summed up by Spark: a bucket for each of thousands of workers would be much data for the driver.
    rows = (
        histograms.groupBy("metric", "bucket")
        .agg(F.sum("count").alias("count"), F.sum("seconds").alias("seconds"), F.max("longest").alias("longest"))
        .collect()
    )
    for metric in sorted({row.metric for row in rows}):
        buckets = merged(Bucket(r.bucket, r["count"], r.seconds, r.longest) for r in rows if r.metric == metric)
        result.durations[metric] = summary(buckets)
        result.histograms[metric] = [(bucket.number, bucket.values) for bucket in buckets]
