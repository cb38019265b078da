"""``pipeline replay``: send dead letters of the job back to their request topic, each exactly once.

A dead letter is identified by its partition and offset in its topic. A request that fails again becomes a new dead
letter, whose ``replay`` header counts the replays so far.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.errors import BrokerError, JobError
from pipeline.kafka.connector import read_batch
from pipeline.kafka.records import decode_records
from pipeline.kafka.sending import Transfer, check_speculation
from pipeline.kafka.topics import Topics
from pipeline.lake.schemas import DEAD_LETTER
from pipeline.lake.spark_versions import try_int
from pipeline.lake.tables import local_dataframe
from pipeline.messages.dead_letters import REPLAY_HEADER, VALUE_DROPPED, replayed_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame, SparkSession

    from pipeline.exactly_once.ranges import Ranges
    from pipeline.settings import ReplaySettings

_MARKS = ("replayed", "exhausted", "value_dropped", "foreign")
_KINDS = 1_000  # error types that are counted separately


class Replayed(NamedTuple):
    """Counts of dead letters. ``selected`` were sent again, or would be without ``dry_run``.

    Of the others, ``replayed`` were sent earlier, ``exhausted`` had too many replays, ``value_dropped`` were too large
    to keep, and ``foreign`` come from none of the request topics. ``errors`` counts the selected ones by type.
    """

    topic: str
    selected: int
    replayed: int
    exhausted: int
    value_dropped: int
    foreign: int
    errors: dict[str, int]


def replay(spark: SparkSession, settings: ReplaySettings) -> Replayed:
    """Replay the dead letters that ``where`` selects. Raise JobError for an invalid condition."""
    check_speculation(spark)
    kafka = settings.kafka
    topics = Topics(kafka)
    dead_topic = topics.find(kafka.dead_letter_topic)
    if dead_topic is None:
        raise BrokerError(
            f"there is no topic {kafka.dead_letter_topic!r} at Kafka {kafka.bootstrap}: nothing to replay"
        )
    # The name contains the topic's id, because the offsets of a recreated topic mean other records.
    transfer = Transfer(settings, f"replay/{settings.job}/{dead_topic.id}", cumulative=False)
    parts = sorted(dead_topic.spans)
    sent = transfer.known() if settings.dry_run else transfer.begin(parts)
    dead_letters = decode_records(read_batch(spark, kafka, [dead_topic.name]), dead_topic.name)
    marked = judged(_selected(dead_letters, settings), spark, sent, settings.max_replays, kafka.request_topics).cache()
    result = _count(marked, dead_topic.name)
    if not settings.dry_run and result.selected:
        _send(transfer, marked, parts, result.selected)
    return result


def _selected(dead_letters: DataFrame, settings: ReplaySettings) -> DataFrame:
    """Return the job's dead letters that match the user's condition."""
    of_job = dead_letters.where((F.col("kind") == DEAD_LETTER) & (F.col("job") == settings.job))
    if settings.where is None:
        return of_job
    try:
        return of_job.where(settings.where)
    except PySparkException as error:
        reason = str(error).splitlines()[0]
        raise JobError(f"--where {settings.where!r} cannot be used: {reason}") from error


# ---------------------------------------------------------------- what may be replayed


def judged(
    dead_letters: DataFrame, spark: SparkSession, sent: dict[int, Ranges], max_replays: int, topics: Iterable[str]
) -> DataFrame:
    """Return the dead letters with their ``replays`` so far, and ``mark``: why each is not sent, or null."""
    headers, no = F.col("headers"), F.lit(False)  # noqa: FBT003 - of Spark
    dropped = F.exists(headers, lambda header: header["key"] == VALUE_DROPPED)
    mark = (
        F.when(F.col("sent"), "replayed")
        .when(replays_of(headers) >= max_replays, "exhausted")
        .when(F.coalesce(dropped, no), "value_dropped")
        .when(~F.coalesce(F.col("origin_topic").isin(*topics), no), "foreign")
    )
    spans = [(part, first, last) for part, ranges in sent.items() for first, last in ranges.spans()]
    known = (
        # One row for each dead letter that was sent allows an equi-join. Ranges would be compared one by one.
        local_dataframe(spark, spans, "partition int, first long, last long")
        .select("partition", F.explode(F.sequence("first", "last")).alias("offset"))
        .withColumn("sent", F.lit(True))  # noqa: FBT003
    )
    joined = dead_letters.join(known, on=["partition", "offset"], how="left")
    return joined.select(*dead_letters.columns, mark.alias("mark"), replays_of(headers).alias("replays"))


def replays_of(headers: Column) -> Column:
    """Return how often a request was replayed, from its header; 0 without a valid number."""
    values = F.transform(
        F.filter(headers, lambda header: header["key"] == REPLAY_HEADER),
        lambda header: try_int(header["value"].cast("string")),
    )
    return F.coalesce(F.array_max(values), F.lit(0))


def _count(dead_letters: DataFrame, topic: str) -> Replayed:
    marks = {row.mark: row["count"] for row in dead_letters.groupBy("mark").count().collect()}
    kinds = dead_letters.where(F.col("mark").isNull()).groupBy("error_type").count().limit(_KINDS).collect()
    errors = {row.error_type or "": row["count"] for row in sorted(kinds, key=lambda row: -row["count"])}
    counts = {mark: marks.get(mark, 0) for mark in _MARKS}
    return Replayed(topic=topic, selected=marks.get(None, 0), errors=errors, **counts)


# ---------------------------------------------------------------- sending


def _send(transfer: Transfer, marked: DataFrame, parts: list[int], count: int) -> None:
    table = marked.where(F.col("mark").isNull()).select(
        F.col("partition").alias("part"),
        F.col("offset").alias("number"),
        "origin_topic",
        "key",
        F.col("raw").alias("value"),
        "headers",
        "replays",
    )
    before = sum(map(len, transfer.log.read().values()))
    transfer.send(table, replayed_rows, parts, title="replay", total=count, before=before)
