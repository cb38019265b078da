"""The audit of stages whose requests come from the handlers of the previous stage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pipeline import Job
from pipeline.audit.chain import compare, successes, with_parent
from pipeline.audit.result import Verdict
from pipeline.errors import JobError
from tests.kafka.support.messages import request
from tests.spark.support.exchange import OK, Place, Record, Site

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.kafka_broker import Broker

ROWS = 20
STAGES = ("fetch", "count")


class Stage(Site):
    """A stage: its topics, and a job in the lake that all stages share."""

    def follow(self, places: dict[int, Place]) -> dict[int, Place]:
        """Send follow-up requests of these requests, with the keys of their parents. Return their places."""
        numbers = list(places)
        records = [Record(f"fetch/{n:010d}".encode(), request(n, f"next {n}"), parent(places[n])) for n in numbers]
        return dict(zip(numbers, self.send(self.requests, records), strict=True))

    def answer_all(self, places: dict[int, Place], **fields: Any) -> None:
        answers = [self.answer(n, place, **fields) for n, place in places.items()]
        self.send(
            self.acks, [one._replace(key=f"fetch/{n:010d}".encode()) for n, one in zip(places, answers, strict=True)]
        )


def parent(place: Place) -> tuple[tuple[str, bytes], ...]:
    return (("x-parent", f"{place.topic}/{place.partition}/{place.offset}".encode()),)


def job_of(spark: SparkSession, stage: Site) -> Job:
    return Job(spark, stage.job, stage.lake, kafka=stage.environment)


def audited(spark: SparkSession, stage: Site, **options: Any) -> Any:
    """Run collect, answers and audit for a stage. Return the result of the audit."""
    job = job_of(spark, stage)
    job.collect()
    job.answers()
    return job.audit(**options)


@pytest.fixture
def stages(broker: Broker, tmp_path: Path) -> list[Stage]:
    return [Stage(broker, tmp_path, job) for job in STAGES]


def sent_first(spark: SparkSession, first: Site) -> dict[int, Place]:
    """Plan and submit the requests of the first stage. Return their places."""
    job = job_of(spark, first)
    job.plan(spark.range(ROWS).selectExpr("id", "concat('a ', id) as payload"), id="id", payload="payload")
    job.submit()
    return {int(s.key[-10:]): Place(first.requests, s.partition, s.offset) for s in first.records(first.requests)}


@pytest.mark.timeout(600)  # four audits
def test_a_stage_is_proved_by_the_answers_of_the_previous_stage(spark: SparkSession, stages: list[Stage]) -> None:
    first, second = stages
    places = sent_first(spark, first)
    failed = {3: places.pop(3)}
    first.answer_all(failed, isprocessed=False, outcome=OK + 1)  # a failed request sends no follow-up request
    first.answer_all(places)
    second.answer_all(second.follow(places))
    job = job_of(spark, second)
    with pytest.raises(JobError, match="leave out --after"):
        job_of(spark, first).audit(after="count")
    undecided = audited(spark, second, after="fetch")
    assert undecided.verdict is Verdict.UNDECIDED
    assert "job fetch has no audit" in "".join(undecided.reasons)
    assert audited(spark, first).verdict is Verdict.PROVED
    proved = job.audit(after="fetch")
    assert (proved.verdict, proved.counts.planned, proved.counts.answered) == (Verdict.PROVED, ROWS - 1, ROWS - 1)

    (stray,) = second.send(second.requests, [Record(b"fetch/0000000007", request(7, "of nobody"))])
    second.answer_all({7: stray})
    second.answer_all(second.follow({5: places[5]}))
    job.collect()
    found = job.audit(after="fetch")
    counts = found.counts
    assert (found.verdict, counts.missing, counts.duplicate) == (Verdict.DISPROVED, 0, 0)
    assert (counts.without_parent, counts.follow_ups_missing, counts.follow_ups_extra) == (1, 0, 1)
    assert [(row["partition"], row["offset"]) for row in found.lists["without_parent"]] == [stray[1:]]
    assert found.lists["follow_ups"] == [{"parent": "/".join(map(str, places[5])), "follow_ups": 2}]


def test_follow_up_requests_are_counted_by_their_parents(spark: SparkSession) -> None:
    answers = spark.createDataFrame(
        [("t", 0, 1, "OK"), ("t", 0, 2, "OK"), ("t", 0, 3, "FAILED"), ("t", 0, 4, "OK")],
        "origin_topic string, origin_partition int, origin_offset long, outcome string",
    )
    named = {"t/0/1": 1, "t/0/3": 1, "t/0/4": 3, None: 1}
    rows = [
        ("next", 0, offset, [] if name is None else [("x-parent", name.encode())])
        for offset, name in enumerate(name for name, count in named.items() for _ in range(count))
    ]
    rows.append(("next", 0, 99, [("x-parent", b"t/0/1"), ("replay", b"1")]))
    schema = "topic string, partition int, offset long, headers array<struct<key: string, value: binary>>"
    sent = with_parent(spark.createDataFrame(rows, schema))
    found = compare(sent, successes(answers), 1).collect()
    assert {(row.parent, row.without_parent, row.follow_ups) for row in found} == {
        ("t/0/1", 0, 1),
        ("t/0/2", 0, 0),
        ("t/0/3", 1, 1),
        ("t/0/4", 0, 3),
        (None, 1, 1),
    }
