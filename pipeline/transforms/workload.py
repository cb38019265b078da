"""What the work was like: how long, how much, by whom, with what outcome. Each result is a small table."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.schemas import DEAD_LETTER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

GROWTH = 1.02  # from one bound of a histogram's bucket to the next: a value is known to within 1 %
LEAST = 1e-6  # seconds; what is shorter, or negative because two clocks differ, counts as this
# What a record is to an audit.
ANSWERED, UNEXPECTED, UNDECODABLE, LETTER = range(4)
WORK, DELIVERY, WAIT, LATENCY = "work", "delivery", "wait", "latency"


def seconds_between(begin: str, end: str) -> Column:
    """Seconds from one timestamp to another."""
    return (F.unix_micros(end) - F.unix_micros(begin)) / 1_000_000


def profile(claims: DataFrame) -> DataFrame:
    """All records by kind (see below) and, of answers, worker, outcome and time of work: one look at the whole table,
    from which counts, workers, outcomes and the histogram of ``work`` follow. ``claims`` may be of any kind.
    """
    work = seconds_between("started_at", "finished_at")
    kind = (
        F.when(F.col("kind") == DEAD_LETTER, LETTER)
        .when(F.col("decode_error").isNotNull(), UNDECODABLE)
        .when(F.col("reason").isNotNull(), UNEXPECTED)
        .otherwise(ANSWERED)
    )
    return claims.groupBy(kind.alias("kind"), "worker", "outcome", "isprocessed", _bucket(work).alias("bucket")).agg(
        F.count(F.lit(1)).alias("records"),
        F.sum(work).alias("work_seconds"),
        F.max(work).alias("longest"),
        F.sum("cpu_seconds").alias("cpu_seconds"),
        F.min("started_at").alias("first_start"),
        F.max("finished_at").alias("last_finish"),
        F.min("timestamp").alias("first"),
        F.max("timestamp").alias("last"),
    )


def answered(profiled: DataFrame) -> DataFrame:
    """Of a profile: the answers to planned requests."""
    return profiled.where(F.col("kind") == ANSWERED)


def by_outcome(profiled: DataFrame) -> DataFrame:
    """How many records there are of each kind and outcome, the first and the last of them."""
    return profiled.groupBy("kind", "outcome", "isprocessed").agg(
        F.sum("records").alias("records"), F.min("first").alias("first"), F.max("last").alias("last")
    )


def by_worker(profiled: DataFrame) -> DataFrame:
    """Answers, seconds of work and CPU, and the time from first start to last finish, of each worker."""
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
    """The ``histogram`` of ``work``."""
    return (
        answered(profiled)
        .where(F.col("bucket").isNotNull())
        .groupBy("worker", "bucket")
        .agg(F.sum("records").alias("count"), F.sum("work_seconds").alias("seconds"), F.max("longest").alias("longest"))
        .select(F.lit(WORK).alias("metric"), "worker", "bucket", "count", "seconds", "longest")
    )


def with_waits(claims: DataFrame, requests: DataFrame | None) -> DataFrame:
    """Seconds of ``delivery`` (finished to the answer's place in the log) and, where the request is known, of ``wait``
    (sent to started) and ``latency`` (sent to answered).
    """
    origin = ["origin_topic", "origin_partition", "origin_offset"]
    answers = claims.select(*origin, "worker", "started_at", "finished_at", F.col("timestamp").alias("answered_at"))
    if requests is None:
        known = answers.withColumn("requested_at", F.lit(None).cast("timestamp"))
    else:
        places = [F.col(old).alias(new) for old, new in zip(("topic", "partition", "offset"), origin, strict=True)]
        sent = requests.select(*places, F.col("timestamp").alias("requested_at"))
        known = answers.join(sent, on=origin, how="left")
    return known.select(
        "worker",
        seconds_between("finished_at", "answered_at").alias(DELIVERY),
        seconds_between("requested_at", "started_at").alias(WAIT),
        seconds_between("requested_at", "answered_at").alias(LATENCY),
    )


def sampled(every: int, offset: str) -> Column:
    """True for one record in so many, and for the same ones in every frame: by the request's offset."""
    return F.lit(True) if every <= 1 else F.pmod(F.xxhash64(offset), F.lit(every)) == 0  # noqa: FBT003 - a value


def histograms(durations: DataFrame) -> DataFrame:
    """How many values of each of ``with_waits``' columns fell into which bucket, by worker. Histograms are merged by
    adding their counts.
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
    """Answers by outcome in each step of time, ``begin`` in epoch seconds. Times without answers have no row."""
    return stretches.groupBy("begin", "outcome").agg(F.sum("answers").alias("answers"))


def failures(claims: DataFrame) -> DataFrame:
    """The answers that report a failure, of whatever kind."""
    return claims.where(failing())


def failing() -> Column:
    """Whether an answer reports a failure."""
    return ~F.col("isprocessed")


def by_error(failed: DataFrame) -> DataFrame:
    """``failures`` by outcome and type, with one message as an example."""
    return (
        failed.groupBy("outcome", F.coalesce("error_type", F.lit("")).alias("error_type"))
        .agg(F.count(F.lit(1)).alias("answers"), F.min(F.left("error_message", F.lit(300))).alias("example"))
        .select("outcome", "error_type", "answers", "example")
    )
