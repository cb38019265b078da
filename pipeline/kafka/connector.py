"""Reading and writing topics with Spark's Kafka connector."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.kafka.java_options import java_properties
from pipeline.lake.schemas import RECORD

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from pipeline.settings import KafkaSettings

_READING = {
    "includeHeaders": "true",
    # Records of aborted transactions do not count. An open transaction hides the records behind it until it is decided.
    "kafka.isolation.level": "read_committed",
}
_WRITING = {
    # Measured: half as many records again per second as with the defaults.
    "kafka.linger.ms": "50",
    "kafka.batch.size": "262144",
    "kafka.compression.type": "lz4",
    "includeHeaders": "true",
    # The limit of the topic decides, not the client's 1 MB.
    "kafka.max.request.size": str(64 * 1024 * 1024),
    "kafka.buffer.memory": str(128 * 1024 * 1024),
}


def connection(kafka: KafkaSettings) -> dict[str, str]:
    """Return the options with which Spark's connector reaches the brokers, secrets included."""
    security = {f"kafka.{name}": value for name, value in java_properties(kafka.java_given(), kafka.java).items()}
    return {"kafka.bootstrap.servers": kafka.bootstrap, **security}


def read_batch(
    spark: SparkSession, kafka: KafkaSettings, topics: Iterable[str], options: Mapping[str, str] | None = None
) -> DataFrame:
    """Return the committed records of the topics. Columns as ``RECORD``."""
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
    """Return the committed records of the topics as a stream from their beginning, ``max_offsets`` per batch at most.

    Records that were deleted before they were read are an error, unless ``allow_data_loss``.
    """
    options = {
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(max_offsets),
        "failOnDataLoss": str(not allow_data_loss).lower(),
    }
    reader = spark.readStream.format("kafka").options(**_reading(kafka, topics), **options)
    return reader.load().select(*RECORD.fieldNames())


def write_records(records: DataFrame, kafka: KafkaSettings, topic: str) -> None:
    """Append records (``OUTGOING``) to a topic, at least once: a retried task sends its records again."""
    records.write.format("kafka").options(**connection(kafka), **_WRITING, topic=topic).save()


def _reading(kafka: KafkaSettings, topics: Iterable[str]) -> dict[str, str]:
    return {**connection(kafka), **_READING, "subscribe": ",".join(topics)}
