"""The audit of a job on a real Kafka: its verdict and its findings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from pipeline.audit.facts import gather
from pipeline.audit.result import Verdict
from pipeline.errors import JobError
from pipeline.jobs.audit import audit
from pipeline.jobs.collect import collect
from tests.kafka.support.messages import request
from tests.spark.support import tables
from tests.spark.support.exchange import Record, Site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.audit.evidence import Evidence
    from tests.kafka_broker import Broker

ROWS = 200


@pytest.fixture
def site(broker: Broker, tmp_path: Path) -> Site:
    return Site(broker, tmp_path)


def planned(spark: SparkSession, site: Site, rows: int = ROWS) -> None:
    tables.plan(spark, site.auditing().manifest, rows)


def result(site: Site) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(site.auditing().audit) / "audit.json").read_text())
    return found


def listed(site: Site, name: str, *columns: str) -> set[tuple[Any, ...]]:
    rows = pq.read_table(Path(site.auditing().audit) / name, columns=list(columns)).to_pylist()
    return {tuple(row[column] for column in columns) for row in rows}


def test_all_answered_once_is_proved(spark: SparkSession, site: Site) -> None:
    planned(spark, site)
    requested = site.send_requests(range(ROWS))
    site.send(site.acks, [site.answer(n, requested[n]) for n in range(ROWS)])
    collect(spark, site.collecting())
    findings = audit(spark, site.auditing(html=True))
    assert findings.verdict is Verdict.PROVED
    written = result(site)
    assert (written["verdict"], written["planned"], written["answered"]) == ("proved", ROWS, ROWS)
    zero = ["missing", "duplicate", "unexpected", "undecodable", "open", "failed", "out_of_order", "uncollected"]
    assert [written[name] for name in zero] == [0] * len(zero)
    assert written["durations"]["work"]["count"] == written["durations"]["latency"]["count"] == ROWS
    assert {entry["state"] for entry in written["evidence"]} <= {"ok", "not checked"}
    assert 0.001 <= written["durations"]["work"]["p50"] <= 0.05
    assert written["workers"][0]["answers"] == ROWS
    assert (Path(site.auditing().audit) / "report.html").exists()


@pytest.mark.timeout(900)  # four audits
def test_each_fault_is_named_and_an_open_transaction_leaves_the_job_undecided(spark: SparkSession, site: Site) -> None:
    planned(spark, site)
    requested = site.send_requests(range(ROWS))
    removed, doubled, late = set(range(3, 10)), set(range(50, 60)), 199
    site.send(site.acks, [site.answer(n, requested[n]) for n in range(ROWS - 1) if n not in removed])
    site.send(site.acks, [site.answer(n, requested[n]) for n in doubled])
    garbage = [Record(site.key(70), b"\xff\xff\xff"), Record(None, b"\x08"), Record(b"?", b"not protobuf")]
    broken = site.send(site.acks, garbage)
    foreign = site.answer(1, requested[1])._replace(key=b"foreign/0000000001")
    (unexpected,) = site.send(site.acks, [foreign])
    hanging = site.transaction([site.answer(late, requested[late])], "open")
    collect(spark, site.collecting())

    findings = audit(spark, site.auditing())
    assert findings.verdict is Verdict.UNDECIDED
    written = result(site)
    assert {name: written[name] for name in ("verdict", "open", "blocked_partitions", "missing", "duplicate")} == {
        "verdict": "undecided",
        "open": 1,
        "blocked_partitions": 1,
        "missing": 8,  # including the one whose answer is in the open transaction
        "duplicate": 10,
    }
    assert [entry["key"] for entry in written["lists"]["open"]] == [site.key(late).decode()]

    hanging.commit_transaction(30)
    findings = audit(spark, site.auditing())
    assert findings.verdict is Verdict.UNDECIDED, "committed, but not collected yet"
    # The broker may take a moment to write the markers of the commit.
    assert findings.counts.open + findings.counts.uncollected >= 1

    collect(spark, site.collecting())
    findings = audit(spark, site.auditing())
    assert findings.verdict is Verdict.DISPROVED
    written = result(site)
    counts = ("planned", "answered", "missing", "duplicate", "unexpected", "undecodable", "open", "failed")
    assert [written[name] for name in counts] == [ROWS, ROWS - 17, 7, 10, 1, 3, 0, 0]
    assert written["out_of_order"] == 0
    assert listed(site, "missing", "sequence", "source_id") == {(n, f"id-{n}") for n in removed}
    assert listed(site, "duplicate", "request_sequence") == {(n,) for n in doubled}
    assert sorted(row[0] for row in listed(site, "duplicate", "place")) == ["first", "surplus"]
    assert listed(site, "unexpected", "topic", "partition", "offset") == {tuple(unexpected)}
    assert listed(site, "undecodable", "topic", "partition", "offset") == {tuple(place) for place in broken}
    assert {entry["sequence"] for entry in written["lists"]["missing"]} == removed


def test_failures_and_dead_letters_count_as_answers(spark: SparkSession, site: Site) -> None:
    planned(spark, site, 10)
    requested = site.send_requests(range(10))
    site.send(site.dead_letters, [site.dead_letter(n, requested[n]) for n in (7, 8)])
    answers = [site.answer(n, requested[n]) for n in range(7)]
    site.send(site.acks, [*answers, *(site.dead(n, requested[n]) for n in (7, 9))])
    collect(spark, site.collecting())
    findings = audit(spark, site.auditing())
    counts = findings.counts
    assert (counts.answered, counts.missing, counts.failed) == (9, 1, 2)
    assert (counts.dead_letters, counts.dead_letters_unanswered, counts.dead_letters_lost) == (2, 1, 1)
    assert listed(site, "dead_letters_unanswered", "origin_offset", "origin_partition") == {
        (requested[8].offset, requested[8].partition)
    }
    assert listed(site, "dead_letters_lost", "request_sequence") == {(9,)}
    assert findings.errors == [
        {"outcome": "DEAD_LETTERED", "error_type": "ValueError", "answers": 2, "example": "no good"}
    ]


def test_a_replayed_dead_letter_counts_as_answered_once(spark: SparkSession, site: Site) -> None:
    planned(spark, site, 3)
    requested = site.send_requests(range(3))
    site.send(site.dead_letters, [site.dead_letter(1, requested[1])])
    site.send(site.acks, [site.answer(0, requested[0]), site.dead(1, requested[1]), site.answer(2, requested[2])])
    record = site.dead_letter(1, requested[1])._replace(headers=(("job", b"job"), ("replay", b"1")))
    (again,) = site.send(site.requests, [record])
    site.send(site.acks, [site.answer(1, again)])
    collect(spark, site.collecting())
    findings = audit(spark, site.auditing())
    assert findings.verdict is Verdict.PROVED
    assert (findings.counts.answered, findings.counts.replayed, findings.counts.failed) == (3, 1, 0)


def test_a_request_sent_twice_and_answered_twice_is_a_duplicate(spark: SparkSession, site: Site) -> None:
    """Even if the first answer is DEAD_LETTERED, because the request was not replayed."""
    planned(spark, site, 2)
    requested, again = site.send_requests(range(2)), site.send_requests([1])
    site.send(site.acks, [site.answer(0, requested[0]), site.dead(1, requested[1]), site.answer(1, again[1])])
    collect(spark, site.collecting())
    findings = audit(spark, site.auditing())
    assert (findings.verdict, findings.counts.duplicate) == (Verdict.DISPROVED, 1)


def test_without_a_manifest_the_request_topic_defines_the_planned_requests(spark: SparkSession, site: Site) -> None:
    records = [Record(f"any key {n}".encode(), site.dead_letter(n, site.send_requests([n])[n]).value) for n in range(2)]
    places = [*site.send_requests(range(2, 12)).values(), *site.send(site.requests, records)]
    first = site.committed(site.requests)
    everywhere = {(partition, offset) for partition, offset, _ in first}
    del places
    from tests.spark.support.exchange import Place  # noqa: PLC0415

    answers = [site.answer(0, Place(site.requests, *place))._replace(key=b"k") for place in sorted(everywhere)]
    site.send(site.acks, answers[1:])
    site.send(site.acks, [answers[3], site.answer(0, Place(site.requests, 0, 4711))])
    collect(spark, site.collecting())
    findings = audit(spark, site.auditing())
    counts = findings.counts
    assert findings.requests_from == "topic"
    assert (counts.planned, counts.missing, counts.duplicate, counts.unexpected) == (len(everywhere), 1, 1, 1)
    assert listed(site, "missing", "partition", "offset") == {min(everywhere)}


def test_an_unplanned_job_is_refused_if_all_requests_belong_to_other_jobs(spark: SparkSession, site: Site) -> None:
    """The name is a typing error. A follow-up request with its parent's key is no request of the planned job."""
    planned(spark, site, 2)
    sent = site.send_requests(range(2))
    site.send(site.acks, [site.answer(n, sent[n]) for n in range(2)])
    collect(spark, site.collecting())
    with pytest.raises(JobError, match="all requests belong to other jobs of this lake"):
        audit(spark, site.auditing(job="typo"))
    parent = "/".join(map(str, sent[0])).encode()
    site.send(site.requests, [Record(site.key(0), request(0, "next"), (("x-parent", parent),))])
    counts = audit(spark, site.auditing(job="typo")).counts
    assert (counts.planned, counts.missing) == (3, 1)


def test_answers_in_another_order_than_their_requests_are_counted(spark: SparkSession, site: Site) -> None:
    planned(spark, site, 30)
    requested = site.send_requests(range(30))
    mine = [n for n in range(30) if requested[n].partition == requested[0].partition]
    others = [n for n in range(30) if n not in mine]
    swapped = [mine[1], mine[0], *mine[2:]]
    site.send(site.acks, [site.answer(n, requested[n]) for n in [*swapped, *others]])
    collect(spark, site.collecting())
    findings = audit(spark, site.auditing())
    assert (findings.verdict, findings.counts.out_of_order) == (Verdict.PROVED, 1)
    assert listed(site, "out_of_order", "origin_offset") == {(requested[mine[0]].offset,)}


def test_answers_of_other_jobs_of_the_lake_are_not_unexpected(spark: SparkSession, site: Site) -> None:
    planned(spark, site, 2)
    tables.plan(spark, f"{site.lake}/manifest/job=other", 5)
    requested = site.send_requests(range(2))
    answers = [site.answer(n, requested[n]) for n in range(2)]
    site.send(site.acks, [*answers, answers[0]._replace(key=b"other/0000000000")])
    collect(spark, site.collecting())
    findings = audit(spark, site.auditing())
    assert (findings.verdict, findings.counts.of_other_jobs, findings.counts.unexpected) == (Verdict.PROVED, 1, 0)


def test_answers_collected_during_an_audit_are_left_to_the_next_audit(
    spark: SparkSession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit reads requests before answers. Without a manifest, new answers would seem to belong to no request."""
    sent = site.send_requests(range(3))
    site.send(site.acks, [site.answer(n, sent[n]) for n in range(3)])
    collect(spark, site.collecting())

    def gather_late(*given: Any) -> list[Evidence]:
        new = site.send_requests([3])
        site.send(site.acks, [site.answer(3, new[3]), site.answer(0, sent[0])])
        collect(spark, replace(site.collecting(), job="other"))
        return gather(*given)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr("pipeline.jobs.audit.gather", gather_late)
        counts = audit(spark, site.auditing()).counts
    assert (counts.answered, counts.duplicate, counts.unexpected, counts.uncollected) == (3, 0, 0, 0)
    counts = audit(spark, site.auditing()).counts
    assert (counts.answered, counts.duplicate, counts.unexpected) == (3, 1, 0)


def test_an_audit_that_waits_is_decided_once_the_open_transaction_has_ended(spark: SparkSession, site: Site) -> None:
    planned(spark, site, 2)
    requested = site.send_requests(range(2))
    site.send(site.acks, [site.answer(0, requested[0])])
    hanging = site.transaction([site.answer(1, requested[1])], "open")
    collect(spark, site.collecting())
    assert audit(spark, site.auditing(wait=1.5)).verdict is Verdict.UNDECIDED
    hanging.abort_transaction(30)
    findings = audit(spark, site.auditing(wait=60.0))
    assert (findings.verdict, findings.counts.missing, findings.counts.open) == (Verdict.DISPROVED, 1, 0)
