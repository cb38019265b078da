"""The requests that must be answered: the rows of the manifest or, without one, the records of the request topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.audit import attribution
from pipeline.errors import JobError
from pipeline.exactly_once.runs import announced, submit_name
from pipeline.kafka.connector import read_batch
from pipeline.kafka.sending import progress_log_of
from pipeline.kafka.topics import Topics
from pipeline.lake.files import Files
from pipeline.lake.manifest import recorded_manifest
from pipeline.lake.schemas import MANIFEST
from pipeline.lake.tables import read_table, table_exists
from worker.headers import PARENT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.settings import Common, KafkaSettings

_PLACE = ["topic", "partition", "offset"]


class ExpectedRequests(NamedTuple):
    """The requests: their ``numbers`` by ``space``, and how to find the answers that claim them.

    ``deleted`` is, by space, the offset below which a partition of the request topic has lost its records. ``run`` is
    the manifest's, and ``other_runs`` are the known other runs of the job.
    """

    source: str
    numbers: DataFrame
    topics: list[str]
    rows: int
    deleted: dict[str, int]
    run: str = ""
    other_runs: tuple[str, ...] = ()

    @property
    def by_manifest(self) -> bool:
        """Return whether there is a manifest."""
        return self.source == "manifest"

    def claims(self, decoded: DataFrame, job: str) -> DataFrame:
        """Return the answers with the requests that they claim to answer."""
        if self.by_manifest:
            return attribution.by_sequence(decoded, job, self.rows, self.run)
        return attribution.by_origin(decoded, self.topics)


def expected_requests(spark: SparkSession, settings: Common, kafka: KafkaSettings | None) -> ExpectedRequests:
    """Return the requests of the job. Raise JobError if there is neither a manifest nor a request topic."""
    if table_exists(spark, settings.table("manifest")):
        return _planned(spark, settings, kafka)
    if kafka is None:
        raise JobError(f"job {settings.job!r} has no manifest at {settings.manifest}: plan it first")
    return _sent(spark, settings, kafka)


def _planned(spark: SparkSession, settings: Common, kafka: KafkaSettings | None) -> ExpectedRequests:
    manifest = read_table(spark, settings.table("manifest"), MANIFEST)
    numbers = manifest.select(
        F.lit(attribution.ONE_SPACE).alias("space"), F.col("sequence").cast("long").alias("number"), "source_id"
    )
    noted = recorded_manifest(spark, settings)
    if noted is None:
        return ExpectedRequests("manifest", numbers, [], manifest.count(), {})
    submitted = known_runs(kafka, settings.job, noted.run) if kafka is not None else []
    others = tuple(sorted({*noted.replaces, *submitted} - {noted.run}))
    return ExpectedRequests("manifest", numbers, [], noted.rows, {}, noted.run, others)


def known_runs(kafka: KafkaSettings, job: str, run: str) -> list[str]:
    """Return the other runs of the job that were submitted to the request topic."""
    topics = Topics(kafka)
    topic = topics.find(kafka.request_topic)
    if topic is None or topics.find(kafka.progress_topic) is None:
        return []
    log = progress_log_of(kafka, submit_name(job, topic.id, run))
    return [found.id for found in announced(log, job, topic.id) if found.id != run]


def _sent(spark: SparkSession, settings: Common, kafka: KafkaSettings) -> ExpectedRequests:
    records = sent_records(spark, kafka)
    if records is None:
        raise JobError(
            f"job {settings.job!r} has no manifest at {settings.manifest}, and there is no request topic "
            f"{', '.join(kafka.request_topics)} to take its place"
        )
    # Read once: Kafka sends whole records each time.
    numbers = records.select(
        attribution.space_of("topic", "partition").alias("space"), F.col("offset").alias("number"), *_PLACE, "timestamp"
    ).persist()
    rows = numbers.count()
    if rows:
        _refuse_other_jobs(records, other_jobs(Files(spark), settings), settings)
    topics = [topic for name in kafka.request_topics if (topic := Topics(kafka).find(name))]
    deleted = {f"{topic.name}/{p}": span.low for topic in topics for p, span in topic.spans.items() if span.low}
    return ExpectedRequests("topic", numbers, [topic.name for topic in topics], rows, deleted)


def _refuse_other_jobs(records: DataFrame, others: list[str], settings: Common) -> None:
    """Raise JobError if all requests belong to jobs that have a manifest in this lake: the name must be a mistake.

    A follow-up request may have its parent's key, but belongs to the next stage, which has no manifest.
    """
    key = F.coalesce(F.col("key").cast("string"), F.lit(""))
    follow_up = F.exists(F.coalesce("headers", F.array()), lambda header: header["key"] == PARENT)
    mine = follow_up | ~(key.contains("/") & F.substring_index(key, "/", 1).isin(others))
    if others and not records.where(mine).head(1):
        raise JobError(
            f"job {settings.job!r} has no manifest at {settings.manifest}, and all requests belong to other jobs of "
            f"this lake ({', '.join(sorted(others))}): is --job right?"
        )


def sent_records(spark: SparkSession, kafka: KafkaSettings) -> DataFrame | None:
    """Return the records of the request topics that exist, or None if none exists."""
    names = [name for name in kafka.request_topics if Topics(kafka).find(name) is not None]
    return read_batch(spark, kafka, names) if names else None


def other_jobs(files: Files, settings: Common) -> list[str]:
    """Return the other jobs that have a manifest in this lake."""
    folders = files.entries(f"{settings.root}/manifest")
    jobs = [entry.name.removeprefix("job=") for entry in folders if entry.name.startswith("job=")]
    return [job for job in jobs if job != settings.job]
