"""What the work was like, as plain values from small aggregates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.durations import Bucket, merged, summary
from pipeline.transforms import workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame, Row

    from pipeline.findings import Findings

_SAMPLE = 250_000  # requests whose waits are measured, about: they have to be brought together with their answers
_WORKERS = 10_000  # rows that come to the driver, at most


def sampled_every(requests: int) -> int:
    """Of how many requests the waits of one are measured."""
    return max(1, requests // _SAMPLE)


def wanted(findings: Findings) -> Column:
    """Which answers are looked at one by one: every failure, and the sample whose waits are measured."""
    return workload.failing() | workload.sampled(findings.sampled_every, "origin_offset")


def measure(
    findings: Findings,
    profiled: DataFrame,
    stretches: DataFrame,
    answers: DataFrame,
    sent: Callable[[], DataFrame | None],
) -> dict[str, DataFrame]:
    """Fill in times, workers and errors; returns histograms and workers as tables. ``answers`` are the ``wanted``."""
    if findings.begin is None:
        return {}
    rows = workload.over_time(stretches).collect()
    findings.over_time = sorted((float(row.begin), row.outcome, row.answers) for row in rows)
    workers = _by_count(workload.by_worker(profiled)).persist()
    findings.workers = [_worker(row) for row in workers.collect()]
    waits = workload.histograms(_waits(findings, answers, sent))
    histograms = workload.work_histogram(profiled).unionByName(waits).persist()
    _durations(findings, histograms)
    if findings.counts.failed:
        errors = _by_count(workload.by_error(workload.failures(answers)))
        findings.errors = [row.asDict() for row in errors.collect()]
    return {"histograms": histograms, "workers": workers}


def _by_count(frame: DataFrame) -> DataFrame:
    return frame.orderBy(F.desc("answers")).limit(_WORKERS)


def _worker(row: Row) -> dict[str, Any]:
    times = {name: row[name].timestamp() if row[name] else None for name in ("first_start", "last_finish")}
    return row.asDict() | times


def _waits(findings: Findings, answers: DataFrame, sent: Callable[[], DataFrame | None]) -> DataFrame:
    every, requests = findings.sampled_every, sent()
    if requests is not None:
        requests = requests.where(workload.sampled(every, "offset"))
    return workload.with_waits(answers.where(workload.sampled(every, "origin_offset")), requests)


def _durations(findings: Findings, histograms: DataFrame) -> None:
    # Summed up over there: a bucket of each of thousands of workers would be much to bring here.
    rows = (
        histograms.groupBy("metric", "bucket")
        .agg(F.sum("count").alias("count"), F.sum("seconds").alias("seconds"), F.max("longest").alias("longest"))
        .collect()
    )
    for metric in sorted({row.metric for row in rows}):
        buckets = merged(Bucket(r.bucket, r["count"], r.seconds, r.longest) for r in rows if r.metric == metric)
        findings.durations[metric] = summary(buckets)
        findings.histograms[metric] = [(bucket.number, bucket.values) for bucket in buckets]
