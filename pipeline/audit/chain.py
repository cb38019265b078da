"""The check of a stage: its requests must be exactly those that the answers of the previous stage sent.

A follow-up request names its parent, the request whose handler sent it, in the header ``x-parent``. Only successful
answers have follow-up requests.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql import types as T  # noqa: N812 - its customary name

from pipeline.audit.evidence import Evidence, State
from pipeline.audit.exceptions import Listed
from pipeline.audit.expected import sent_records
from pipeline.audit.result import Verdict
from pipeline.audit.writer import VERDICT
from pipeline.errors import JobError
from pipeline.lake.files import Files
from pipeline.lake.schemas import BRONZE
from pipeline.lake.tables import load_table, table_exists
from pipeline.messages.dead_letters import REPLAY_HEADER
from worker.headers import PARENT, REPLAYED_FROM

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.audit.expected import ExpectedRequests
    from pipeline.audit.result import Counts
    from pipeline.settings import AuditSettings

_SUCCESS = "OK"
_NAME = "the previous stage is proved, and its answers are complete"
_PLACE = ["topic", "partition", "offset"]
_PARENT = T.StructField("parent", T.StringType())
_WITHOUT_PARENT = T.StructType([*(BRONZE[name] for name in _PLACE), _PARENT])
_FOLLOW_UPS = T.StructType([_PARENT, T.StructField("follow_ups", T.LongType())])


class Chain(NamedTuple):
    """The evidence of the previous stage, and the exceptions by name."""

    evidence: Evidence
    exceptions: dict[str, Listed]


def examine(spark: SparkSession, settings: AuditSettings, requests: ExpectedRequests, counts: Counts) -> Chain:
    """Compare the requests with the answers of the job ``settings.after``, and count the differences.

    Raise JobError if the requests were planned, because then no handler sent them.
    """
    if requests.by_manifest:
        raise JobError(f"job {settings.job!r} is planned, and its requests follow no other job: leave out --after")
    before = replace(settings, job=str(settings.after), after=None)
    evidence = _of_stage(spark, before)
    records = sent_records(spark, settings.kafka)
    if evidence.state is not State.OK or records is None:
        return Chain(evidence, {})
    sent = with_parent(records)
    parents = successes(load_table(spark, before.table("answers")))
    compared = compare(sent, parents, settings.follow_ups).persist()
    try:
        found = compared.agg(
            F.sum("without_parent").alias("without_parent"),
            F.sum(F.greatest(F.lit(0), settings.follow_ups - F.col("follow_ups"))).alias("too_few"),
            F.sum(F.greatest(F.lit(0), F.col("follow_ups") - settings.follow_ups)).alias("too_many"),
        ).collect()[0]
    finally:
        compared.unpersist()
    counts.without_parent, counts.follow_ups_missing = found.without_parent or 0, found.too_few or 0
    counts.follow_ups_extra = found.too_many or 0
    return Chain(evidence, _exceptions(sent, parents, compared, settings.follow_ups, counts))


def with_parent(records: DataFrame) -> DataFrame:
    """Return the records of the request topic with their ``parent``: topic/partition/offset, or null.

    Replays of dead letters are left out: they are the same requests again.
    """
    headers = F.coalesce("headers", F.array())
    named = F.filter(headers, lambda header: header["key"] == PARENT)
    parent = F.try_element_at(F.transform(named, lambda header: header["value"].cast("string")), F.lit(-1))
    replayed = F.exists(headers, lambda header: header["key"].isin(REPLAY_HEADER, REPLAYED_FROM))
    return records.where(~replayed).select(*_PLACE, parent.alias("parent"))


def successes(answers: DataFrame) -> DataFrame:
    """Return the requests with a successful answer, as ``parent``."""
    numbers = [F.col(name).cast("string") for name in ("origin_partition", "origin_offset")]
    origin = F.concat_ws("/", "origin_topic", *numbers)
    return answers.where(F.col("outcome") == _SUCCESS).select(origin.alias("parent"))


def compare(sent: DataFrame, parents: DataFrame, follow_ups: int) -> DataFrame:
    """Return a row for each parent: its number of ``follow_ups``, or of ``without_parent`` requests if it is unknown.

    For an unknown parent, ``follow_ups`` is the expected number, so that it counts only once.
    """
    counted = sent.groupBy("parent").agg(F.count(F.lit(1)).alias("requests"))
    known = parents.withColumn("known", F.lit(True))  # noqa: FBT003 - a column's value
    requests, is_parent = F.coalesce("requests", F.lit(0).cast("long")), F.col("known").isNotNull()
    return counted.join(known, on="parent", how="full").select(
        "parent",
        F.when(is_parent, 0).otherwise(requests).alias("without_parent"),
        F.when(is_parent, requests).otherwise(follow_ups).alias("follow_ups"),
    )


def _exceptions(
    sent: DataFrame, parents: DataFrame, compared: DataFrame, follow_ups: int, counts: Counts
) -> dict[str, Listed]:
    strays = sent.join(parents, on="parent", how="left_anti").select(*_WITHOUT_PARENT.fieldNames())
    differing = compared.where(F.col("follow_ups") != follow_ups).select(*_FOLLOW_UPS.fieldNames())
    differs = counts.follow_ups_missing or counts.follow_ups_extra
    return {
        "without_parent": Listed(_WITHOUT_PARENT, strays if counts.without_parent else None),
        "follow_ups": Listed(_FOLLOW_UPS, differing if differs else None),
    }


def _of_stage(spark: SparkSession, before: AuditSettings) -> Evidence:
    """Check that the previous stage is proved, and that its table of answers is the audited one."""
    files, path = Files(spark), f"{before.audit}/{VERDICT}"
    again = f"run pipeline collect, answers and audit of job {before.job}, in this order"
    if not files.exists(path):
        return Evidence(_NAME, State.FAILED, f"job {before.job} has no audit at {before.audit}", again)
    audit = files.read_json(path)
    if audit["verdict"] != Verdict.PROVED:
        return Evidence(_NAME, State.FAILED, f"the last audit of job {before.job} says {audit['verdict']}", again)
    rows = load_table(spark, before.table("answers")).count() if table_exists(spark, before.table("answers")) else 0
    if rows != audit["answered"]:
        detail = f"the answers of job {before.job} have {rows:,} rows, and {audit['answered']:,} were audited"
        return Evidence(_NAME, State.FAILED, detail, again)
    return Evidence(_NAME, State.OK, f"job {before.job}: {rows:,} answers")
