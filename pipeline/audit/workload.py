"""Statistics of the work: durations, amounts, workers and outcomes. Each result is a small table."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.lake.schemas import DEAD_LETTER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

GROWTH = 1.02  # from one bucket bound of a histogram to the next: values are accurate to within 1 %
LEAST = 1e-6  # seconds; shorter values, and negative ones between two clocks, count as this
# The kind of a record, for an audit.
ANSWERED, UNEXPECTED, UNDECODABLE, DEAD = range(4)
WORK, DELIVERY, WAIT, LATENCY = "work", "delivery", "wait", "latency"


def seconds_between(begin: str, end: str) -> Column:
    """Return the seconds from one timestamp to another."""
    return (F.unix_micros(end) - F.unix_micros(begin)) / 1_000_000


def profile(claims: DataFrame) -> DataFrame:
    """Return all records by kind and, for answers, by worker, outcome and time of work.

    One pass over the whole table gives counts, workers, outcomes and the histogram of ``work``. ``claims`` may be of
    any kind.
    """
    work = seconds_between("started_at", "finished_at")
    kind = (
        F.when(F.col("kind") == DEAD_LETTER, DEAD)
        .when(F.col("decode_error").isNotNull(), UNDECODABLE)
        .when(F.col("reason").isNotNull(), UNEXPECTED)
        .otherwise(ANSWERED)
    )
    return claims.groupBy(kind.alias("kind"), "worker", "outcome", "isprocessed", _bucket(work).alias("bucket")).agg(
        F.count(F.lit(1)).alias("records"),
        F.count_if(F.col("run").isNull()).alias("without_run"),
        F.sum(work).alias("work_seconds"),
        F.max(work).alias("longest"),
        F.sum("cpu_seconds").alias("cpu_seconds"),
        F.min("started_at").alias("first_start"),
        F.max("finished_at").alias("last_finish"),
        F.min("timestamp").alias("first"),
        F.max("timestamp").alias("last"),
    )


def answered(profiled: DataFrame) -> DataFrame:
    """Return the answers to planned requests in a profile."""
    return profiled.where(F.col("kind") == ANSWERED)


def by_outcome(profiled: DataFrame) -> DataFrame:
    """Return the number of records of each kind and outcome, with the first and the last time."""
    return profiled.groupBy("kind", "outcome", "isprocessed").agg(
        F.sum("records").alias("records"),
        F.sum("without_run").alias("without_run"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
    )


def by_worker(profiled: DataFrame) -> DataFrame:
    """Return each worker's answers, seconds of work and CPU, and the time from its first start to its last finish."""
    return (
        answered(profiled)
        .groupBy("worker")
        .agg(
            F.sum("records").alias("answers"),
            F.sum("work_seconds").alias("work_seconds"),
            F.sum("cpu_seconds").alias("cpu_seconds"),
            F.min("first_start").alias("first_start"),
            F.max("last_finish").alias("last_finish"),
        )
    )


def work_histogram(profiled: DataFrame) -> DataFrame:
    """Return the ``histogram`` of ``work``."""
    return (
        answered(profiled)
        .where(F.col("bucket").isNotNull())
        .groupBy("worker", "bucket")
        .agg(F.sum("records").alias("count"), F.sum("work_seconds").alias("seconds"), F.max("longest").alias("longest"))
        .select(F.lit(WORK).alias("metric"), "worker", "bucket", "count", "seconds", "longest")
    )


def with_waits(claims: DataFrame) -> DataFrame:
    """Return seconds of ``delivery`` (from the finish to the answer's record), ``wait`` and ``latency``.

    ``wait`` (from sent to started) and ``latency`` (from sent to answered) need the time of the request in the answer.
    """
    return claims.select(
        "worker",
        seconds_between("finished_at", "timestamp").alias(DELIVERY),
        seconds_between("requested_at", "started_at").alias(WAIT),
        seconds_between("requested_at", "timestamp").alias(LATENCY),
    )


def sampled(every: int, offset: str) -> Column:
    """Return whether a record is in the sample: one in ``every``, chosen by the request's offset in every frame."""
    return F.lit(True) if every <= 1 else F.pmod(F.xxhash64(offset), F.lit(every)) == 0  # noqa: FBT003 - a value


def histograms(durations: DataFrame) -> DataFrame:
    """Return how many values of each column of ``with_waits`` are in which bucket, by worker.

    Adding the counts merges histograms.
    """
    return (
        durations.unpivot("worker", [DELIVERY, WAIT, LATENCY], "metric", "value")
        .where(F.col("value").isNotNull())
        .groupBy("metric", "worker", _bucket(F.col("value")).alias("bucket"))
        .agg(F.count(F.lit(1)).alias("count"), F.sum("value").alias("seconds"), F.max("value").alias("longest"))
        .select("metric", "worker", "bucket", "count", "seconds", "longest")
    )


def _bucket(seconds: Column) -> Column:
    at_least = F.when(seconds < LEAST, LEAST).otherwise(seconds)  # null stays null
    return F.floor(F.log(at_least) / math.log(GROWTH)).cast("int")


def over_time(stretches: DataFrame) -> DataFrame:
    """Return answers by outcome in each step of time. ``begin`` is in epoch seconds. Empty steps have no row."""
    return stretches.groupBy("begin", "outcome").agg(F.sum("answers").alias("answers"))


def failures(claims: DataFrame) -> DataFrame:
    """Return the answers that report a failure of any kind."""
    return claims.where(failing())


def failing() -> Column:
    """Return whether an answer reports a failure."""
    return ~F.col("isprocessed")


def by_error(failed: DataFrame) -> DataFrame:
    """Return ``failures`` by outcome and type, with one message as an example."""
    return (
        failed.groupBy("outcome", F.coalesce("error_type", F.lit("")).alias("error_type"))
        .agg(F.count(F.lit(1)).alias("answers"), F.min(F.left("error_message", F.lit(300))).alias("example"))
        .select("outcome", "error_type", "answers", "example")
    )
