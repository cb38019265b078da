"""``pipeline answers``: make a table from bronze with one row for each answered request."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.audit import attribution, workload
from pipeline.audit.expected import expected_requests, other_jobs, sent_records
from pipeline.audit.reconciliation import Reconciled
from pipeline.lake.bronze import Bronze, retry_if_files_replaced
from pipeline.lake.schemas import ANSWERS, BRONZE
from pipeline.lake.spark_versions import is_utf8
from pipeline.lake.tables import read_table, replace_table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from pipeline.audit.expected import ExpectedRequests
    from pipeline.settings import AnswersSettings

_TEXT = "OK"  # the only outcome whose result may be a text


class AnswerTables(NamedTuple):
    """The output of ``answers``: the path of the table, and numbers of rows."""

    path: str
    rows: int
    failed: int
    duplicate: int


def answers(spark: SparkSession, settings: AnswersSettings) -> AnswerTables:
    """Write the tables ``answers``, ``failures``, ``duplicates`` and ``dead_letters`` of a job."""
    return retry_if_files_replaced(functools.partial(_answers, spark, settings))


def _answers(spark: SparkSession, settings: AnswersSettings) -> AnswerTables:
    requests = expected_requests(spark, settings, settings.kafka)
    bronze = Bronze(spark, settings)
    records = attribution.without_other_jobs(bronze.read(), other_jobs(bronze.files, settings), requests.topics)
    records = attribution.without_other_runs(records, settings.job, requests.other_runs)
    claimed = requests.claims(attribution.answers(records), settings.job)
    sent = functools.partial(sent_records, spark, settings.kafka) if settings.kafka is not None else lambda: None
    found = Reconciled(requests, claimed.where(F.col("reason").isNull()), sent)
    try:
        silver = answered(found.accepted, requests)
        replace_table(silver, settings.table("answers"))
        written = read_table(spark, settings.table("answers"), ANSWERS)
        dead_letters = attribution.dead_letters(records).where(F.col("job") == settings.job)
        if not requests.by_manifest:
            dead_letters = attribution.dead_letters(records).where(F.col("origin_topic").isin(*requests.topics))
        beside = {
            "failures": workload.failures(written),
            "duplicates": found.doubles.select(*BRONZE.fieldNames(), "place"),
            "dead_letters": dead_letters.select(*BRONZE.fieldNames()),
        }
        for name, frame in beside.items():
            replace_table(frame, settings.table(name))
        totals: Any = written.agg(
            F.count(F.lit(1)).alias("rows"), F.count_if(workload.failing()).alias("failed")
        ).first()
        return AnswerTables(settings.answers, totals["rows"], totals["failed"], found.duplicate)
    finally:
        found.close()


def answered(accepted: DataFrame, requests: ExpectedRequests) -> DataFrame:
    """Return one row for each answer that counts, with the id of its request."""
    named = accepted
    if requests.by_manifest:
        named = accepted.join(requests.numbers, on=["space", "number"], how="left")
        named = named.withColumn("sequence", F.col("request_sequence"))
    else:
        named = named.withColumn("source_id", F.lit(None).cast("string"))
    return named.withColumns(
        {
            "result_text": F.when(F.col("outcome") == _TEXT, _text("result")),
            "answered_at": F.col("timestamp"),
            "ack_partition": F.col("partition"),
            "ack_offset": F.col("offset"),
        }
    ).select(*ANSWERS.fieldNames())


def _text(column: str) -> Column:
    """Return bytes as text, with null where they are not UTF-8."""
    text = F.col(column).cast("string")
    return F.when(is_utf8(column), text)
