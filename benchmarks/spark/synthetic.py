"""Synthetic tables of a job: a manifest, requests, and answers, with some missing and duplicate ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.lake.bronze import Bronze
from pipeline.lake.schemas import ANSWER, BRONZE, MANIFEST
from pipeline.settings import AuditSettings, KafkaSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOB = "synthetic"
PARTITIONS = 8
MISSING, DOUBLED = 7, 10
SENT = "topic string, partition int, offset long, timestamp timestamp"
_ROWS_A_FILE = 2_500_000
_BEGIN = 1_767_225_600  # 2026-01-01
_KAFKA = {"KAFKA_BOOTSTRAP_SERVER": "127.0.0.1:1", "KAFKA_REQUEST_TOPIC": "requests", "KAFKA_ACK_TOPIC": "acks"}


def settings_of(lake: str) -> AuditSettings:
    """Return the settings of an audit of the job."""
    return AuditSettings(job=JOB, lake=lake, kafka=KafkaSettings.load(_KAFKA), progress="off")


def make(spark: SparkSession, lake: str, rows: int) -> None:
    """Write the tables."""
    settings = settings_of(lake)
    files = math.ceil(rows / _ROWS_A_FILE)
    numbers = spark.range(0, rows, 1, files).withColumn("sequence", F.col("id").cast("int"))
    _manifest(numbers).write.parquet(settings.manifest)
    _requests(numbers).write.parquet(f"{lake}/requests")
    step = rows // (MISSING + DOUBLED + 1)
    special = [step * (number + 1) for number in range(MISSING + DOUBLED)]
    answers = numbers.where(~F.col("sequence").isin(special[:MISSING]))
    again = numbers.where(F.col("sequence").isin(special[MISSING:])).withColumn("id", F.col("id") + rows)
    Bronze(spark, settings).write(_bronze(answers.unionAll(again.coalesce(1))), "query", 0)


def _manifest(numbers: DataFrame) -> DataFrame:
    columns = {
        "source_id": F.format_string("id-%09d", "sequence"),
        "payload": F.lit("{}"),
        "digest": F.lit("0" * 64),
        "part": F.lit(0),
        "deadline": F.lit(None).cast("string"),
    }
    return numbers.withColumns(columns).select(*MANIFEST.fieldNames())


def _requests(numbers: DataFrame) -> DataFrame:
    return numbers.select(
        F.lit("requests").alias("topic"),
        (F.col("id") % PARTITIONS).cast("int").alias("partition"),
        (F.col("id") / PARTITIONS).cast("long").alias("offset"),
        F.timestamp_seconds(F.lit(_BEGIN) + F.col("id") / 10_000).alias("timestamp"),
    )


def _bronze(numbers: DataFrame) -> DataFrame:
    """Return answers of 16 workers at 10,000 per second, each after a wait and some work. One in 200 is a failure."""
    sent = F.lit(_BEGIN) + F.col("id") / 10_000
    work = F.exp(F.randn(1) - 2)
    started = sent + 30
    fails = F.col("sequence") % 200 == 0
    known = {
        "topic": F.lit("acks"),
        "partition": (F.col("id") % PARTITIONS).cast("int"),
        "offset": (F.col("id") / PARTITIONS).cast("long"),
        "timestamp": F.timestamp_seconds(started + work + 0.01),
        "kind": F.lit(ANSWER),
        "key_text": F.format_string(f"{JOB}/%010d", "sequence"),
        "job": F.lit(JOB),
        "request_sequence": F.col("sequence"),
        "isprocessed": ~fails,
        "outcome": F.when(fails, "FAILED").otherwise("OK"),
        "error_type": F.when(fails, "ValueError"),
        "origin_topic": F.lit("requests"),
        "origin_partition": (F.col("sequence") % PARTITIONS).cast("int"),
        "origin_offset": (F.col("sequence") / PARTITIONS).cast("long"),
        "attempt": F.lit(1).cast("long"),
        "worker": F.format_string("worker-%02d", F.hash("sequence") % 8 + 8),
        "started_at": F.timestamp_seconds(started),
        "finished_at": F.timestamp_seconds(started + work),
        "cpu_seconds": work * 0.9,
        "date": F.to_date(F.timestamp_seconds(sent)),
    }
    table = numbers.withColumns(known)
    missing = [field for field in BRONZE.fields if field.name not in table.columns]
    return table.withColumns({f.name: F.lit(None).cast(f.dataType) for f in missing}).select(*BRONZE.fieldNames())
