"""What was asked for: the rows of the manifest, or else what stands in the request topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.errors import JobError
from pipeline.kafka_io import read_batch
from pipeline.schemas import MANIFEST
from pipeline.table_io import read_table, table_exists
from pipeline.topics import Topics
from pipeline.transforms import claims

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.files import Files
    from pipeline.settings import Common, KafkaSettings

_PLACE = ["topic", "partition", "offset"]


class Asked(NamedTuple):
    """The requests: their ``numbers`` by ``space``, and how to find the answers that claim them.

    ``deleted`` are the offsets below which a partition of the request topic no longer has records, by space.
    """

    source: str
    numbers: DataFrame
    topics: list[str]
    rows: int
    deleted: dict[str, int]

    @property
    def by_manifest(self) -> bool:
        """Whether there is a manifest to prove against."""
        return self.source == "manifest"

    def claims(self, decoded: DataFrame, job: str) -> DataFrame:
        """What the answers claim to answer."""
        if self.by_manifest:
            return claims.by_sequence(decoded, job, self.rows)
        return claims.by_origin(decoded, self.topics)


def asked(spark: SparkSession, settings: Common, kafka: KafkaSettings | None) -> Asked:
    """The requests of the job. JobError if there is neither a manifest nor a request topic."""
    if table_exists(spark, settings.manifest, settings.table_format):
        return _planned(spark, settings)
    if kafka is None:
        raise JobError(f"job {settings.job!r} has no manifest at {settings.manifest}: plan it first")
    return _sent(spark, settings, kafka)


def _planned(spark: SparkSession, settings: Common) -> Asked:
    manifest = read_table(spark, settings.manifest, settings.table_format, MANIFEST)
    numbers = manifest.select(
        F.lit(claims.ONE_SPACE).alias("space"), F.col("sequence").cast("long").alias("number"), "source_id"
    )
    return Asked("manifest", numbers, [], manifest.count(), {})


def _sent(spark: SparkSession, settings: Common, kafka: KafkaSettings) -> Asked:
    records = sent_records(spark, kafka)
    if records is None:
        raise JobError(
            f"job {settings.job!r} has no manifest at {settings.manifest}, and there is no request topic "
            f"{', '.join(kafka.request_topics)} to take its place"
        )
    # Read once: Kafka hands out whole records each time.
    numbers = records.select(
        claims.space_of("topic", "partition").alias("space"), F.col("offset").alias("number"), *_PLACE, "timestamp"
    ).persist()
    topics = [topic for name in kafka.request_topics if (topic := Topics(kafka).find(name))]
    deleted = {f"{topic.name}/{p}": span.low for topic in topics for p, span in topic.spans.items() if span.low}
    return Asked("topic", numbers, [topic.name for topic in topics], numbers.count(), deleted)


def sent_records(spark: SparkSession, kafka: KafkaSettings) -> DataFrame | None:
    """The records of those request topics that are there; None if there are none."""
    names = [name for name in kafka.request_topics if Topics(kafka).find(name) is not None]
    return read_batch(spark, kafka, names) if names else None


def other_jobs(files: Files, settings: Common) -> list[str]:
    """The other jobs that have a manifest in this lake."""
    folders = files.entries(f"{settings.lake}/manifest")
    jobs = [entry.name.removeprefix("job=") for entry in folders if entry.name.startswith("job=")]
    return [job for job in jobs if job != settings.job]
