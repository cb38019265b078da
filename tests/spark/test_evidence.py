"""The evidence of an audit, on a real broker: no known way leads to a false *proved*.

The numbers P1 to P11 are those of the review that listed the ways to a false *proved*.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition, admin

from pipeline.audit.backlog import awaited
from pipeline.audit.evidence import State
from pipeline.audit.expected import expected_requests
from pipeline.audit.facts import gather
from pipeline.audit.result import Verdict
from pipeline.jobs.audit import audit
from pipeline.jobs.collect import collect
from pipeline.jobs.submit import submit
from pipeline.lake.bronze import Bronze
from pipeline.settings import KafkaSettings, Source, SubmitSettings
from tests.kafka_broker import configure_topic, create_topics, delete_topic, recreate_topic
from tests.spark.support import responder, tables
from tests.spark.support.exchange import Record, Site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.kafka_broker import Broker

ROWS = 30
_admin: Any = admin  # the types of the library are incomplete


@pytest.fixture
def site(broker: Broker, tmp_path: Path) -> Site:
    return Site(broker, tmp_path)


def failed(spark: SparkSession, site: Site, **more: Any) -> list[str]:
    """Return the failed evidence of an audit, as the audit reports it."""
    settings = site.auditing(**more)
    bronze = Bronze(spark, settings)
    requests = expected_requests(spark, settings, settings.kafka)
    found = gather(spark, settings, bronze, requests, awaited(settings, bronze).ends)
    return [f"{one.name}: {one.detail}" for one in found if one.state is State.FAILED]


def answered(spark: SparkSession, site: Site, rows: int = ROWS) -> None:
    """Plan a job and answer all its requests, so that an audit would prove it."""
    tables.plan(spark, site.auditing().manifest, rows)
    sent = site.send_requests(range(rows))
    site.send(site.acks, [site.answer(n, sent[n]) for n in range(rows)])


def delete_up_to_the_end(site: Site, topic: str) -> None:
    client = _admin.AdminClient({"bootstrap.servers": site.bootstrap})
    ends = [TopicPartition(topic, number, -1) for number in range(site.partitions)]
    for future in client.delete_records(ends).values():
        future.result(30)


def set_policy(site: Site, topic: str, policy: str) -> None:
    configure_topic(site.bootstrap, topic, {"cleanup.policy": policy})
    time.sleep(0.2)  # the broker that replies may get the new policy a moment later


def submitted(spark: SparkSession, site: Site, payload: str, *, lake: str | None = None, **more: Any) -> Any:
    """Submit a table whose payloads all begin with ``payload``."""
    frame = spark.range(ROWS).selectExpr("id", f"concat('{payload}', id) as payload")
    source = Source(frame=frame, id="id", payload="payload")
    common = site.common | ({"lake": lake} if lake else {})
    return submit(spark, SubmitSettings(kafka=site.kafka, source=source, **common, **more))


def test_p1_answers_of_another_run_under_the_same_job_name_prove_nothing(
    spark: SparkSession, site: Site, tmp_path: Path
) -> None:
    """The lake of the first run is deleted, so only the topics show that the run existed."""
    submitted(spark, site, "first")
    responder.main(site.bootstrap, site.requests, site.acks, ROWS, transactional=False)
    shutil.rmtree(site.lake)
    done = submitted(spark, site, "second", new_run=True)
    # Late answers to the first run. Answers from before the submit are not in the job's view.
    site.send(site.acks, [Record(seen.key, seen.value) for seen in site.records(site.acks)])
    collect(spark, site.collecting())
    result = audit(spark, site.auditing())
    assert (result.verdict, result.counts.missing, result.counts.answered) == (Verdict.DISPROVED, ROWS, 0)
    assert (result.counts.of_other_runs, result.run) == (ROWS, done.run)
    # Answers that name no run, as older workers write them, may belong to either run.
    sent = site.send_requests(range(ROWS))
    site.send(site.acks, [site.answer(n, sent[n]) for n in range(ROWS)])
    collect(spark, site.collecting())
    result = audit(spark, site.auditing())
    assert (result.verdict, result.counts.answered) == (Verdict.UNDECIDED, ROWS)
    (reason,) = result.pending
    assert "answers name no run, and the job was also submitted as r" in reason


def test_p2_a_job_whose_manifest_has_lost_rows_is_undecided(spark: SparkSession, site: Site) -> None:
    answered(spark, site)
    collect(spark, site.collecting())
    assert failed(spark, site) == []
    files = sorted(Path(site.auditing().manifest).glob("part-*.parquet"))
    rows = [len(spark.read.parquet(str(file)).collect()) for file in files]
    files[rows.index(max(rows))].unlink()
    (line,) = failed(spark, site)
    assert line == f"the manifest is complete: the manifest has {ROWS - max(rows)} rows, and {ROWS} were planned"
    result = audit(spark, site.auditing())
    assert result.verdict is Verdict.UNDECIDED
    written = json.loads((Path(site.auditing().audit) / "audit.json").read_text())
    assert [one["name"] for one in written["evidence"] if one["state"] == "failed"] == ["the manifest is complete"]


def test_p3_and_p6_deleted_records_and_a_recreated_topic_fail_the_evidence(spark: SparkSession, site: Site) -> None:
    answered(spark, site)
    collect(spark, site.collecting())
    site.send(site.acks, [Record(site.key(1), b"garbage", partition=p) for p in range(site.partitions)])
    delete_up_to_the_end(site, site.acks)
    (line,) = failed(spark, site)
    assert "records were deleted before they were collected" in line
    recreate_topic(site.bootstrap, site.acks, site.partitions)
    lines = failed(spark, site)
    assert any("was deleted and recreated: it has another id than when it was collected" in line for line in lines)
    assert any("records were cut off" in line for line in lines)


def test_records_that_expire_after_they_were_collected_are_no_loss(spark: SparkSession, site: Site) -> None:
    """The topic also has transaction markers, for which the table has no rows."""
    tables.plan(spark, site.auditing().manifest, ROWS)
    sent = site.send_requests(range(ROWS))
    site.transaction([site.answer(n, sent[n]) for n in range(ROWS)], "commit")
    collect(spark, site.collecting())
    delete_up_to_the_end(site, site.acks)
    assert failed(spark, site) == []


def test_p4_and_p5_a_compacted_topic_or_a_late_first_collect_fails_the_evidence(
    spark: SparkSession, site: Site
) -> None:
    answered(spark, site)
    delete_up_to_the_end(site, site.acks)
    site.send(site.acks, [Record(site.key(1), b"garbage")])
    collect(spark, site.collecting())
    (line,) = failed(spark, site)
    assert "was collected from where the job's answers begin: records were deleted" in line
    set_policy(site, site.acks, "compact")
    assert any(f"{site.acks} is not compacted: cleanup.policy=compact" in line for line in failed(spark, site))


def test_what_expired_before_the_submit_is_nobodys_loss(spark: SparkSession, site: Site) -> None:
    site.send(site.acks, [Record(b"old", b"of another job", partition=p) for p in range(site.partitions)])
    delete_up_to_the_end(site, site.acks)
    submitted(spark, site, "x")
    responder.main(site.bootstrap, site.requests, site.acks, ROWS, transactional=False)
    collect(spark, site.collecting())
    assert failed(spark, site) == []


def test_p7_p8_p9_without_a_manifest_the_request_topics_must_be_complete(
    spark: SparkSession, site: Site, broker: Broker
) -> None:
    sent = site.send_requests(range(6))
    site.send(site.acks, [site.answer(n, sent[n]) for n in range(6)])
    collect(spark, site.collecting())
    assert failed(spark, site) == []
    hanging = site.producer(**{"transactional.id": f"{site.requests}-open"})
    hanging.init_transactions(30)
    hanging.begin_transaction()
    site.send(site.requests, [Record(None, b"open", partition=0)], hanging)
    (line,) = failed(spark, site)
    assert line.startswith(f"{site.requests} has no undecided requests: a transaction is open")
    hanging.abort_transaction(30)
    delete_up_to_the_end(site, site.requests)
    (line,) = failed(spark, site)
    assert line.startswith(f"{site.requests} has all its requests: requests were deleted")
    (empty,) = broker.topics(1, 1)
    both = KafkaSettings.load({**site.environment, "KAFKA_REQUEST_TOPIC": f"{empty},no-such-topic"})
    (line,) = failed(spark, _With(site, both))
    assert line == "no-such-topic exists: the request topic does not exist"


class _With(Site):
    """A site with other settings for Kafka."""

    def __init__(self, site: Site, kafka: KafkaSettings) -> None:
        vars(self).update(vars(site))
        self.kafka = kafka


def test_p10_a_second_answer_to_a_deleted_request_leaves_the_job_undecided(spark: SparkSession, site: Site) -> None:
    tables.plan(spark, site.auditing().manifest, 2)
    sent, again = site.send_requests(range(2)), site.send_requests([1])
    site.send(site.dead_letters, [site.dead_letter(1, sent[1])])
    site.send(site.acks, [site.answer(0, sent[0]), site.dead(1, sent[1]), site.answer(1, again[1])])
    collect(spark, site.collecting())
    delete_up_to_the_end(site, site.requests)
    result = audit(spark, site.auditing())
    assert (result.verdict, result.counts.duplicate) == (Verdict.UNDECIDED, 0)
    assert "replays are known to be replays" in result.pending[0]


def test_p11_missing_files_are_an_error_even_if_spark_is_set_to_ignore_them(spark: SparkSession, site: Site) -> None:
    answered(spark, site)
    collect(spark, site.collecting())
    table = Bronze(spark, site.auditing()).read()
    settings = {"spark.sql.files.ignoreMissingFiles": "true", "spark.sql.files.ignoreCorruptFiles": "true"}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        for file in Path(site.lake, "bronze").rglob("*.parquet"):
            file.unlink()
        with pytest.raises(Exception, match=r"FILE_NOT_EXIST|FileNotFound|does not exist"):
            table.count()
    finally:
        for name in settings:
            spark.conf.unset(name)


def test_a_dead_letter_topic_deleted_after_a_collect_fails_the_evidence(spark: SparkSession, site: Site) -> None:
    answered(spark, site, 2)
    delete_topic(site.bootstrap, site.dead_letters)
    assert collect(spark, site.collecting()).complete
    assert failed(spark, site) == []
    create_topics(site.bootstrap, [site.dead_letters], site.partitions)
    sent = site.send_requests([0])
    site.send(site.dead_letters, [site.dead_letter(0, sent[0])])
    collect(spark, site.collecting())
    delete_topic(site.bootstrap, site.dead_letters)
    assert failed(spark, site) == [f"{site.dead_letters} exists: the topic does not exist"]
