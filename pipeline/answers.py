"""``pipeline answers``: bronze becomes a table with one row for each request that was answered."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.asked import asked, other_jobs, sent_records
from pipeline.bronze import Bronze, undisturbed
from pipeline.progress import report
from pipeline.reconciled import Reconciled
from pipeline.schemas import ANSWERS, BRONZE
from pipeline.session import build_session
from pipeline.table_io import replace_table
from pipeline.transforms import claims, workload

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from pipeline.asked import Asked
    from pipeline.settings import AnswersSettings

_ORIGIN = ["origin_topic", "origin_partition", "origin_offset"]
_TEXT = "OK"  # the outcome whose result may be a text


def run(settings: AnswersSettings) -> int:
    """Write the tables ``answers``, ``failures``, ``duplicates`` and ``dead_letters`` of a job anew."""
    spark = build_session(f"answers {settings.job}", master=settings.master, table_format=settings.table_format)
    report("answered", job=settings.job, answers=settings.answers, **answers(spark, settings))
    return 0


def answers(spark: SparkSession, settings: AnswersSettings) -> dict[str, int]:
    """The same in a session that is there; returns the rows of each table."""
    return undisturbed(functools.partial(_answers, spark, settings))


def _answers(spark: SparkSession, settings: AnswersSettings) -> dict[str, int]:
    requests = asked(spark, settings, settings.kafka)
    bronze = Bronze(spark, settings)
    records = claims.without_other_jobs(bronze.read(), other_jobs(bronze.files, settings))
    claimed = requests.claims(claims.answers(records), settings.job)
    sent = functools.partial(_sent, spark, settings)
    found = Reconciled(requests, claimed.where(F.col("reason").isNull()), sent)
    try:
        silver = answered(found.standing, requests, sent())
        replace_table(silver, settings.answers, settings.table_format)
        written = spark.read.format(settings.table_format).load(settings.answers)
        letters = claims.dead_letters(records).where(F.col("job") == settings.job)
        if not requests.by_manifest:
            letters = claims.dead_letters(records).where(F.col("origin_topic").isin(*requests.topics))
        beside = {
            "failures": workload.failures(written),
            "duplicates": found.doubles.select(*BRONZE.fieldNames(), "place"),
            "dead_letters": letters.select(*BRONZE.fieldNames()),
        }
        for name, frame in beside.items():
            replace_table(frame, f"{settings.lake}/{name}/job={settings.job}", settings.table_format)
        return {"rows": written.count(), "failed": workload.failures(written).count(), "duplicate": found.duplicate}
    finally:
        found.close()


def _sent(spark: SparkSession, settings: AnswersSettings) -> DataFrame | None:
    return None if settings.kafka is None else sent_records(spark, settings.kafka)


def answered(standing: DataFrame, requests: Asked, sent: DataFrame | None) -> DataFrame:
    """One row for each answer that counts, with its request's id and, where ``sent`` knows it, its time."""
    named = standing
    if requests.by_manifest:
        named = standing.join(requests.numbers, on=["space", "number"], how="left")
        named = named.withColumn("sequence", F.col("request_sequence"))
    else:
        named = named.withColumn("source_id", F.lit(None).cast("string"))
    if sent is None:
        timed = named.withColumn("requested_at", F.lit(None).cast("timestamp"))
    else:
        times = [F.col(old).alias(new) for old, new in zip(("topic", "partition", "offset"), _ORIGIN, strict=True)]
        timed = named.join(sent.select(*times, F.col("timestamp").alias("requested_at")), on=_ORIGIN, how="left")
    return timed.withColumns(
        {
            "result_text": F.when(F.col("outcome") == _TEXT, _text("result")),
            "answered_at": F.col("timestamp"),
            "ack_partition": F.col("partition"),
            "ack_offset": F.col("offset"),
        }
    ).select(*ANSWERS.fieldNames())


def _text(column: str) -> Column:
    """Bytes as text, null where they are no UTF-8."""
    return F.when(F.is_valid_utf8(F.col(column).cast("string")), F.col(column).cast("string"))
