"""The facts behind the evidence of an audit, from the brokers, the manifest and the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.audit import evidence
from pipeline.audit.evidence import Evidence, ManifestFacts, TopicFacts
from pipeline.kafka.topics import Topics
from pipeline.lake.manifest import key_digest_of, recorded_manifest
from pipeline.lake.schemas import MANIFEST
from pipeline.lake.submission import Submission
from pipeline.lake.tables import read_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.audit.expected import ExpectedRequests
    from pipeline.kafka.topics import Topic
    from pipeline.lake.bronze import Bronze
    from pipeline.settings import AuditSettings


def gather(
    spark: SparkSession, settings: AuditSettings, bronze: Bronze, requests: ExpectedRequests, ends: dict[str, Any]
) -> list[Evidence]:
    """Return all evidence that does not depend on the answers. ``ends`` is where the table ends."""
    topics = Topics(settings.kafka)
    found: list[Evidence] = []
    lost = bronze.lost_batches()
    if bronze.parquet is not None and (bronze.exists() or lost):
        found.append(evidence.of_bronze(bronze.lost_rows(), lost))
    if requests.by_manifest:
        found.append(evidence.of_manifest(_manifest(spark, settings)))
    else:
        for name in settings.kafka.request_topics:
            topic = topics.find(name)
            found += evidence.of_requests(TopicFacts(name=name, topic=topic, policy=_policy(topics, topic)))
    submission = Submission.read(spark, settings) if requests.by_manifest else None
    if submission is not None and submission.run != requests.run:
        submission = None
    for name in (settings.kafka.ack_topic, settings.kafka.dead_letter_topic):
        topic = topics.find(name)
        # A dead-letter topic that does not exist yet has no records.
        if topic is not None or name == settings.kafka.ack_topic or name in ends:
            found += evidence.of_answers(_answers(topics, topic, name, bronze, submission, ends.get(name, {})))
    return found


def _manifest(spark: SparkSession, settings: AuditSettings) -> ManifestFacts:
    table = read_table(spark, settings.table("manifest"), MANIFEST)
    rows, digest = key_digest_of(table)
    noted = recorded_manifest(spark, settings)
    if noted is None:
        return ManifestFacts(rows, digest, None, None)
    return ManifestFacts(rows, digest, noted.rows, noted.key_digest or None)


def _answers(
    topics: Topics, topic: Topic | None, name: str, bronze: Bronze, submission: Submission | None, ends: dict[int, int]
) -> TopicFacts:
    ids: dict[str, str] = {}
    begins = bronze.begins()
    if submission is not None and name in submission.topic_ids:
        ids["it was submitted to"] = submission.topic_ids[name]
    for query in bronze.queries().values():
        if name in query["topics"]:
            ids["it was collected"] = query["topics"][name]
    expected = submission.ends.get(name, {}) if submission is not None else {}
    return TopicFacts(
        name=name,
        topic=topic,
        policy=_policy(topics, topic),
        ids=ids,
        ends=ends,
        begins=begins.get(name, {}) if begins else None,
        expected_begins=expected,
    )


def _policy(topics: Topics, topic: Topic | None) -> str | None:
    return None if topic is None else topics.cleanup_policy(topic.name)
