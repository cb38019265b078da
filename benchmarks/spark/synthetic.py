"""A synthetic job: its manifest, its answers, some of them missing or duplicate, and the topics they came from."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import confluent_kafka as ck
from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.kafka.topics import Topics
from pipeline.lake.bronze import Bronze
from pipeline.lake.manifest import METADATA, Manifest, digests_of, run_of
from pipeline.lake.schemas import ANSWER, BRONZE, MANIFEST
from pipeline.lake.submission import Submission
from pipeline.lake.tables import publish_table
from pipeline.settings import AuditSettings, KafkaSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.broker import Broker

JOB, ACKS, REQUESTS = "synthetic", "acks", "requests"
PARTITIONS = 8
MISSING, DOUBLED = 7, 10
_ROWS_A_FILE = 2_500_000
_BEGIN = 1_767_225_600  # 2026-01-01
_QUERY = "query"  # the name of the checkpoint's query that would have collected the answers
_SHUFFLING = 7_368_787  # a prime: its multiples modulo any smaller number of rows come in no visible order


def settings_of(lake: str, address: str) -> AuditSettings:
    """Return the settings of an audit of the job."""
    kafka = {"KAFKA_BOOTSTRAP_SERVER": address, "KAFKA_REQUEST_TOPIC": REQUESTS, "KAFKA_ACK_TOPIC": ACKS}
    return AuditSettings(job=JOB, lake=lake, kafka=KafkaSettings.load(kafka), progress="off")


def make(spark: SparkSession, settings: AuditSettings, rows: int, *, shuffled: bool) -> None:
    """Write the tables. ``shuffled`` answers come in another order than their requests."""
    files = math.ceil(rows / _ROWS_A_FILE)
    numbers = spark.range(0, rows, 1, files)
    planned = _manifest(numbers.withColumn("sequence", F.col("id").cast("int")))
    digest, key_digest = digests_of(planned)
    run = run_of(digest)
    facts = Manifest(settings.job, rows, digest, 1, {}, "2026-01-01", run, key_digest=key_digest)
    publish_table(planned, settings.table("manifest"), {METADATA: facts._asdict()})
    answered = (F.col("id") * (_SHUFFLING if shuffled else 1)) % rows
    numbers = numbers.withColumn("sequence", answered.cast("int"))
    step = rows // (MISSING + DOUBLED + 1)
    special = [step * (number + 1) for number in range(MISSING + DOUBLED)]
    # Ids have no gaps, because they become offsets: those of the missing answers are taken by the duplicate ones.
    answers = numbers.where(~F.col("sequence").isin(special[:MISSING]))
    gaps = [row.id for row in numbers.where(F.col("sequence").isin(special[:MISSING])).collect()]
    ids = [*gaps, *range(rows, rows + DOUBLED - MISSING)]
    again = spark.createDataFrame(zip(ids, special[MISSING:], strict=True), "id long, sequence int")
    Bronze(spark, settings).write(_bronze(answers.unionAll(again.coalesce(1)), run), _QUERY, 0)


def fill(broker: Broker, rows: int) -> None:
    """Write as many records to the ack topic as there are answers, so that its offsets are those of the table."""
    for topic in (REQUESTS, ACKS):
        broker.create(topic, PARTITIONS)
    producer = ck.Producer({"bootstrap.servers": broker.address, "linger.ms": 50, "compression.type": "lz4"})
    for number in range(rows - MISSING + DOUBLED):
        while True:
            try:
                producer.produce(ACKS, b"", partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def record(spark: SparkSession, settings: AuditSettings) -> None:
    """Record beside the tables what ``submit`` and ``collect`` would have recorded of these topics."""
    topics, bronze = Topics(settings.kafka), Bronze(spark, settings)
    acks, requests = topics.get(ACKS), topics.get(REQUESTS)
    begins = {ACKS: dict.fromkeys(acks.spans, 0)}
    ends = {ACKS: {partition: span.high for partition, span in acks.spans.items()}}
    run = run_of(digests_of(spark.read.parquet(settings.manifest))[0])
    bronze.record_begins(begins)
    facts = {"checkpoint": settings.checkpoint, "topics": {ACKS: acks.id}, "allow_data_loss": False, "lost": []}
    bronze.record_query(_QUERY, {**facts, "ends": ends})
    sent_to = {"topic": REQUESTS, "id": requests.id}
    Submission(run, "exactly-once", sent_to, {ACKS: acks.id}, begins, ACKS).write(spark, settings)


def _manifest(numbers: DataFrame) -> DataFrame:
    columns = {
        "source_id": F.format_string("id-%09d", "sequence"),
        "payload": F.lit("{}"),
        "digest": F.lit("0" * 64),
        "part": F.lit(0),
        "deadline": F.lit(None).cast("string"),
    }
    return numbers.withColumns(columns).select(*MANIFEST.fieldNames())


def _bronze(numbers: DataFrame, run: str) -> DataFrame:
    """Return answers of 16 workers at 10,000 per second, each after a wait and some work. One in 200 is a failure."""
    sent = F.lit(_BEGIN) + F.col("id") / 10_000
    work = F.exp(F.randn(1) - 2)
    started = sent + 30
    fails = F.col("sequence") % 200 == 0
    known = {
        "topic": F.lit(ACKS),
        "partition": (F.col("id") % PARTITIONS).cast("int"),
        "offset": (F.col("id") / PARTITIONS).cast("long"),
        "timestamp": F.timestamp_seconds(started + work + 0.01),
        "kind": F.lit(ANSWER),
        "key_text": F.format_string(f"{JOB}/%010d", "sequence"),
        "job": F.lit(JOB),
        "request_sequence": F.col("sequence"),
        "isprocessed": ~fails,
        "sequence": F.col("sequence"),
        "outcome": F.when(fails, "FAILED").otherwise("OK"),
        "error_type": F.when(fails, "ValueError"),
        "origin_topic": F.lit(REQUESTS),
        "origin_partition": (F.col("sequence") % PARTITIONS).cast("int"),
        "origin_offset": (F.col("sequence") / PARTITIONS).cast("long"),
        "attempt": F.lit(1).cast("long"),
        "worker": F.format_string("worker-%02d", F.hash("sequence") % 8 + 8),
        "started_at": F.timestamp_seconds(started),
        "finished_at": F.timestamp_seconds(started + work),
        "cpu_seconds": work * 0.9,
        "requested_at": F.timestamp_seconds(sent),
        "run": F.lit(run),
        "date": F.to_date(F.timestamp_seconds(sent)),
    }
    table = numbers.withColumns(known)
    missing = [field for field in BRONZE.fields if field.name not in table.columns]
    return table.withColumns({f.name: F.lit(None).cast(f.dataType) for f in missing}).select(*BRONZE.fieldNames())
