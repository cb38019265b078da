"""Reading and writing topics by Spark's own connector."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.java_client import java_properties
from pipeline.schemas import RECORD

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from pipeline.settings import KafkaSettings

_READING = {
    "includeHeaders": "true",
    # Records of aborted transactions were never written. An open one hides what is behind it until it is decided.
    "kafka.isolation.level": "read_committed",
}
_WRITING = {
    # Measured: half as many records again a second as with the defaults.
    "kafka.linger.ms": "50",
    "kafka.batch.size": "262144",
    "kafka.compression.type": "lz4",
    "includeHeaders": "true",
    # The topic's limit decides, not the client's of 1 MB.
    "kafka.max.request.size": str(64 * 1024 * 1024),
    "kafka.buffer.memory": str(128 * 1024 * 1024),
}


def connection(kafka: KafkaSettings) -> dict[str, str]:
    """How Spark's connector reaches the brokers, secrets included."""
    security = {f"kafka.{name}": value for name, value in java_properties(kafka.link().given).items()}
    return {"kafka.bootstrap.servers": kafka.bootstrap, **security}


def read_batch(
    spark: SparkSession, kafka: KafkaSettings, topics: Iterable[str], options: Mapping[str, str] | None = None
) -> DataFrame:
    """What stands in the topics, committed records only. Columns as ``RECORD``."""
    reader = spark.read.format("kafka").options(**_reading(kafka, topics), **dict(options or {}))
    return reader.load().select(*RECORD.fieldNames())


def read_stream(
    spark: SparkSession,
    kafka: KafkaSettings,
    topics: Iterable[str],
    *,
    max_offsets: int,
    allow_data_loss: bool = False,
) -> DataFrame:
    """The topics as a stream from their beginning, committed records only, in batches of at most ``max_offsets``.

    Records that were deleted before they were read are an error, unless their loss is allowed.
    """
    options = {
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(max_offsets),
        "failOnDataLoss": str(not allow_data_loss).lower(),
    }
    reader = spark.readStream.format("kafka").options(**_reading(kafka, topics), **options)
    return reader.load().select(*RECORD.fieldNames())


def write_records(records: DataFrame, kafka: KafkaSettings, topic: str) -> None:
    """Append records (``OUTGOING``) to a topic. At least once: a task that is retried sends its records again."""
    records.write.format("kafka").options(**connection(kafka), **_WRITING, topic=topic).save()


def _reading(kafka: KafkaSettings, topics: Iterable[str]) -> dict[str, str]:
    return {**connection(kafka), **_READING, "subscribe": ",".join(topics)}
