"""``pipeline replay``: dead letters of the job go back to where they came from, each once, by the same way as a submit.

A letter is known by its partition and offset in the dead-letter topic. A request that fails again becomes a new letter,
which carries the header ``replay`` with the number of replays so far.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.codec import decode_records
from pipeline.errors import BrokerError, JobError
from pipeline.kafka_io import read_batch
from pipeline.letters import REPLAY_HEADER, VALUE_DROPPED, replayed_headers
from pipeline.progress import meter, report
from pipeline.schemas import DEAD_LETTER
from pipeline.sending import Sending, create_ledger, followed, ledger_of, producer_properties, send_table, settle
from pipeline.session import build_session
from pipeline.table_io import table_of
from pipeline.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from pipeline.ranges import Ranges
    from pipeline.settings import ReplaySettings
    from pipeline.transact import Row

_MARKS = ("replayed", "exhausted", "lost", "stray")
_KINDS = 1_000  # error types counted one by one


def run(settings: ReplaySettings) -> None:
    """Replay the letters that ``--where`` chooses; with ``--dry-run`` say how many. JobError for a wrong condition."""
    spark = build_session(f"replay {settings.job}", master=settings.master, table_format=settings.table_format)
    kafka = settings.kafka
    topics = Topics(kafka)
    letter_topic = topics.find(kafka.dead_letter_topic)
    if letter_topic is None:
        raise BrokerError(f"there is no topic {kafka.dead_letter_topic!r} at Kafka {kafka.bootstrap}: nothing died yet")
    # With the topic's id: the offsets of a topic made anew mean other letters.
    ledger = ledger_of(kafka, f"replay/{settings.job}/{letter_topic.id}")
    sending = Sending(producer_properties(kafka), ledger, settings.chunk, cumulative=False)
    parts = sorted(letter_topic.spans)
    if settings.dry_run:
        sent = ledger.peek() if topics.find(ledger.topic) else {}
    else:
        create_ledger(kafka)
        sent = settle(sending, parts)
    letters = decode_records(read_batch(spark, kafka, [letter_topic.name]), letter_topic.name)
    chosen = judged(_selected(letters, settings), spark, sent, settings.max_replays, kafka.request_topics).cache()
    counts = _count(chosen)
    if not settings.dry_run and counts["chosen"]:
        _send(settings, chosen, sending, parts, counts["chosen"])
    report("to replay" if settings.dry_run else "replayed", job=settings.job, topic=letter_topic.name, **counts)


def _selected(letters: DataFrame, settings: ReplaySettings) -> DataFrame:
    """The job's letters that the user's condition chooses."""
    own = letters.where((F.col("kind") == DEAD_LETTER) & (F.col("job") == settings.job))
    if settings.where is None:
        return own
    try:
        return own.where(settings.where)
    except PySparkException as error:
        reason = str(error).splitlines()[0]
        raise JobError(f"--where {settings.where!r} cannot be used: {reason}") from error


# ---------------------------------------------------------------- what may be replayed


def judged(
    letters: DataFrame, spark: SparkSession, sent: dict[int, Ranges], max_replays: int, topics: Iterable[str]
) -> DataFrame:
    """Each letter with ``replays`` so far, and ``mark``: why it is not sent again, or null if it is.

    ``replayed`` before, ``exhausted`` by too many replays, ``lost`` if the letter has not the value, ``stray`` if it
    does not come from one of the request topics.
    """
    headers, no = F.col("headers"), F.lit(False)  # noqa: FBT003 - of Spark
    dropped = F.exists(headers, lambda header: header["key"] == VALUE_DROPPED)
    mark = (
        F.when(F.col("first").isNotNull(), "replayed")
        .when(replays_of(headers) >= max_replays, "exhausted")
        .when(F.coalesce(dropped, no), "lost")
        .when(~F.coalesce(F.col("origin_topic").isin(*topics), no), "stray")
    )
    spans = [(part, first, last) for part, ranges in sent.items() for first, last in ranges.spans()]
    known = table_of(spark, spans, "partition int, first long, last long")
    inside = F.col("letter.offset").between(F.col("known.first"), F.col("known.last"))
    same = F.col("letter.partition") == F.col("known.partition")
    return (
        letters.alias("letter")
        .join(F.broadcast(known).alias("known"), on=same & inside, how="left")
        .select("letter.*", mark.alias("mark"), replays_of(headers).alias("replays"))
    )


def replays_of(headers: Column) -> Column:
    """How often a request was replayed, by its own header; 0 where it has none that is a number."""
    values = F.transform(
        F.filter(headers, lambda header: header["key"] == REPLAY_HEADER),
        lambda header: header["value"].try_cast("string").try_cast("int"),
    )
    return F.coalesce(F.array_max(values), F.lit(0))


def _count(letters: DataFrame) -> dict[str, Any]:
    """How many letters there are of each mark, and of the chosen how many of each type of error."""
    marks = {row.mark: row["count"] for row in letters.groupBy("mark").count().collect()}
    kinds = letters.where(F.col("mark").isNull()).groupBy("error_type").count().limit(_KINDS).collect()
    errors = {row.error_type or "": row["count"] for row in sorted(kinds, key=lambda row: -row["count"])}
    return {"chosen": marks.get(None, 0), **{mark: marks.get(mark, 0) for mark in _MARKS}, "errors": errors}


# ---------------------------------------------------------------- sending


def _send(settings: ReplaySettings, chosen: DataFrame, sending: Sending, parts: list[int], count: int) -> None:
    table = chosen.where(F.col("mark").isNull()).select(
        F.col("partition").alias("part"),
        F.col("offset").alias("number"),
        "origin_topic",
        "key",
        F.col("raw").alias("value"),
        "headers",
        "replays",
    )
    before = sum(map(len, sending.ledger.read().values()))
    with (
        meter(settings.progress, f"replay {settings.job}", count) as shown,
        followed(shown, sending.ledger, count, before),
    ):
        send_table(table, letter_rows, sending, parts)


def letter_rows(batch: pa.RecordBatch) -> Iterator[Row]:
    """The requests that letters were, byte for byte, with the number of this replay."""
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
    headers = map(replayed_headers, columns.pop("headers"), columns.pop("replays"))
    names = ("part", "number", "origin_topic", "key", "value")
    return zip(*(columns[name] for name in names), headers, strict=True)
