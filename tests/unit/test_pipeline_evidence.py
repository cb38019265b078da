"""The evidence of an audit, without Spark and Kafka: the results of the checks for given facts."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.audit import evidence
from pipeline.audit.evidence import Evidence, ManifestFacts, State, TopicFacts
from pipeline.audit.result import AuditResult, Counts, Verdict
from pipeline.kafka.topics import Span, Topic

ID = "id-1"


def facts(**changes: Any) -> TopicFacts:
    """Return the facts of an ack topic that was collected as a whole, up to offset 10."""
    known: dict[str, Any] = {
        "name": "acks",
        "topic": Topic("acks", ID, {0: Span(0, 10, 10)}),
        "policy": "delete",
        "ids": {"it was collected": ID},
        "ends": {0: 10},
        "begins": {0: 0},
    }
    return TopicFacts(**{**known, **changes})


def failed(found: list[Evidence]) -> list[str]:
    return [one.name for one in found if one.state is State.FAILED]


def topic(low: int, high: int, identity: str = ID) -> Topic:
    return Topic("acks", identity, {0: Span(low, high, high)})


def test_a_topic_that_was_collected_as_a_whole_passes_all_checks() -> None:
    found = evidence.of_answers(facts())
    assert {one.state for one in found} == {State.OK}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"topic": None}, "acks exists"),
        ({"topic": topic(0, 10, "other")}, "acks is the topic that was collected"),
        ({"policy": "compact,delete"}, "acks is not compacted"),
        ({"policy": None}, "acks is not compacted"),
        ({"begins": {0: 3}}, "acks was collected from where the job's answers begin"),
        ({"begins": None}, "acks was collected from where the job's answers begin"),
        ({"topic": topic(11, 12)}, "acks has everything that is not collected yet"),
        ({"topic": topic(0, 9)}, "acks is as long as what was collected"),
        ({"topic": Topic("acks", ID, {})}, "acks is as long as what was collected"),
        ({"ends": {}, "topic": topic(1, 10)}, "acks has everything that is not collected yet"),
    ],
)
def test_a_topic_that_may_lack_records_fails_one_check(changes: dict[str, Any], name: str) -> None:
    assert failed(evidence.of_answers(facts(**changes))) == [name]


@pytest.mark.parametrize(("lost", "state"), [(None, State.NOT_CHECKED), (0, State.OK), (2, State.FAILED)])
def test_a_bronze_table_that_has_lost_rows_fails_its_check(lost: int | None, state: State) -> None:
    assert evidence.of_bronze(lost).state is state
    assert evidence.of_bronze(lost, 1).state is State.FAILED


def test_what_expired_before_the_submit_is_nobodys_loss() -> None:
    assert failed(evidence.of_answers(facts(begins={0: 3}, expected_begins={0: 3}))) == []
    assert failed(evidence.of_answers(facts(begins={0: 4}, expected_begins={0: 3}))) != []


def test_records_that_expired_after_they_were_collected_are_not_missed() -> None:
    assert failed(evidence.of_answers(facts(topic=topic(10, 10)))) == []


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (ManifestFacts(9, "a", 9, "a"), State.OK),
        (ManifestFacts(9, "a", 9, None), State.OK),
        (ManifestFacts(8, "a", 9, "a"), State.FAILED),
        (ManifestFacts(9, "b", 9, "a"), State.FAILED),
        (ManifestFacts(9, "a", None, None), State.FAILED),
    ],
)
def test_a_manifest_must_have_the_planned_rows(found: ManifestFacts, state: State) -> None:
    assert evidence.of_manifest(found).state is state


@pytest.mark.parametrize(
    ("run", "without_run", "others", "state"),
    [
        ("r1", 0, [], State.OK),
        ("r1", 0, ["r2"], State.OK),
        ("r1", 5, [], State.OK),
        ("r1", 5, ["r2"], State.FAILED),
        ("r1", 5, [""], State.FAILED),
        ("", 5, [], State.NOT_CHECKED),
    ],
)
def test_answers_without_a_run_count_only_if_the_job_has_no_other_run(
    run: str, without_run: int, others: list[str], state: State
) -> None:
    assert evidence.of_runs(run, without_run, others).state is state


@pytest.mark.parametrize(
    ("spans", "name"),
    [
        ({0: Span(0, 5, 9)}, "acks has no undecided requests"),
        ({0: Span(2, 9, 9)}, "acks has all its requests"),
    ],
)
def test_a_request_topic_must_have_all_requests_and_no_undecided_ones(spans: dict[int, Span], name: str) -> None:
    assert failed(evidence.of_requests(facts(topic=Topic("acks", ID, spans)))) == [name]


def result_of(*found: Evidence) -> AuditResult:
    counts = Counts(planned=3, answered=3)
    return AuditResult(job="j", requests_from="manifest", counts=counts, evidence=list(found))


def test_one_failed_check_makes_the_audit_undecided_and_says_what_to_do() -> None:
    known = [Evidence("a", State.OK, "x"), Evidence("b", State.NOT_CHECKED, "y")]
    assert result_of(*known).verdict is Verdict.PROVED
    result = result_of(*known, Evidence("the table is whole", State.FAILED, "it is not", "mend it"))
    assert result.verdict is Verdict.UNDECIDED
    assert result.reasons == ["not shown that the table is whole: it is not (to do: mend it)"]
    assert [one["state"] for one in result.as_json()["evidence"]] == ["ok", "not checked", "failed"]
