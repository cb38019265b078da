"""Replayed requests in an audit, on a real Kafka: the answer to a replay is no duplicate, and a second one is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from pipeline.audit.result import Verdict
from pipeline.jobs import replay
from pipeline.jobs.audit import audit
from pipeline.jobs.collect import collect
from pipeline.settings import ReplaySettings
from tests.kafka.support.commands import Commands
from tests.spark.support import tables
from tests.spark.support.exchange import Place, Site

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.kafka_broker import Broker

ROWS = 8
DEAD = (1, 2, 3, 4)


def answered_with_dead_letters(spark: SparkSession, site: Site) -> dict[int, Place]:
    """Answer every request, those of ``DEAD`` with a dead letter. Return the places of the requests."""
    tables.plan(spark, site.auditing().manifest, ROWS)
    requested = site.send_requests(range(ROWS))
    site.send(site.acks, [site.answer(n, requested[n]) for n in range(ROWS) if n not in DEAD])
    site.send(site.dead_letters, [site.dead_letter(n, requested[n]) for n in DEAD])
    site.send(site.acks, [site.dead(n, requested[n]) for n in DEAD])
    return requested


def requests_after(site: Site, requested: dict[int, Place]) -> dict[int, Place]:
    """Return the places of the requests that came after these."""
    found = {}
    for record in site.records(site.requests):
        place = Place(site.requests, record.partition, record.offset)
        if place not in requested.values():
            found[int(record.key[-10:])] = place
    return found


def test_the_answer_to_a_replay_is_no_duplicate_and_a_second_one_is(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    site = Site(broker, tmp_path)
    requested = answered_with_dead_letters(spark, site)
    replay.replay(spark, ReplaySettings(kafka=site.kafka, **site.common))
    again = requests_after(site, requested)
    assert set(again) == set(DEAD)
    site.send(site.acks, [site.answer(n, again[n]) for n in DEAD])
    # The replay of request 2 is answered twice. Request 3 has two DEAD_LETTERED answers, one after its replay's answer.
    site.send(site.acks, [site.answer(2, again[2]), site.dead(3, requested[3])])

    collect(spark, site.collecting())
    findings = audit(spark, site.auditing())
    counts = findings.counts
    assert findings.verdict is Verdict.DISPROVED
    assert (counts.answered, counts.replayed, counts.duplicate, counts.duplicate_answers) == (ROWS - 2, 4, 2, 2)
    assert counts.failed == 0
    listed = pq.read_table(f"{site.auditing().audit}/duplicate", columns=["request_sequence", "place"]).to_pylist()
    named = sorted((row["request_sequence"], row["place"]) for row in listed)
    assert named == [(n, place) for n in (2, 3) for place in ("first", "superseded", "surplus")]


def test_the_answer_to_a_replay_by_the_workers_command_is_no_duplicate(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    site = Site(broker, tmp_path)
    requested = answered_with_dead_letters(spark, site)
    worker = Commands({**site.environment, "KAFKA_CONSUMER_GROUP_ID": "workers"})
    assert worker("dlq", "replay", "--yes").code == 0
    again = requests_after(site, requested)
    assert set(again) == set(DEAD)
    site.send(site.acks, [site.answer(n, again[n]) for n in DEAD])

    collect(spark, site.collecting())
    findings = audit(spark, site.auditing())
    assert findings.reasons == []
    assert (findings.counts.answered, findings.counts.replayed) == (ROWS, len(DEAD))
    assert findings.verdict is Verdict.PROVED
