"""The conclusions from the findings of an audit. No Spark, no Kafka."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest

from pipeline.audit.durations import Bucket, merged, middle, step_of, summary
from pipeline.audit.result import LISTED, AuditResult, Counts, Verdict
from pipeline.audit.workload import GROWTH, LEAST
from tests.spark.support.findings import buckets, proved


def findings(*, loss_allowed: Any = False, **counts: Any) -> AuditResult:
    known = Counts(**{"planned": 10, "answered": 10, **counts})
    return AuditResult(job="j", requests_from="manifest", counts=known, loss_allowed=loss_allowed)


FAULTS = ["missing", "duplicate", "unexpected", "undecodable"]
OPEN = ["open", "open_dead_letters", "uncollected"]
REMARKS = ["failed", "out_of_order", "replayed", "dead_letters_unanswered", "dead_letters_lost", "of_other_jobs"]


def test_all_answered_once_is_proved() -> None:
    assert findings().verdict is Verdict.PROVED


@pytest.mark.parametrize("fault", FAULTS)
def test_any_fault_disproves_the_job(fault: str) -> None:
    found = findings(**{fault: 1})
    assert found.verdict is Verdict.DISPROVED
    assert len(found.violations) == 1


@pytest.mark.parametrize("question", OPEN)
@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_an_open_question_leaves_the_job_undecided_despite_any_fault(question: str, fault: str | None) -> None:
    assert findings(**{question: 2}, **({fault: 1} if fault else {})).verdict is Verdict.UNDECIDED


@pytest.mark.parametrize("remark", REMARKS)
def test_remarks_do_not_change_the_verdict(remark: str) -> None:
    found = findings(**{remark: 3})
    assert found.verdict is Verdict.PROVED
    assert found.warnings[0].startswith("3 ")


def test_a_job_without_requests_is_undecided() -> None:
    assert findings(planned=0, answered=0).verdict is Verdict.UNDECIDED


@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        (None, Verdict.UNDECIDED),
        ("missing", Verdict.UNDECIDED),  # the answer may be among the lost records
        ("duplicate", Verdict.DISPROVED),
        ("unexpected", Verdict.DISPROVED),
        ("undecodable", Verdict.DISPROVED),
    ],
)
def test_lost_records_can_hide_faults_but_not_undo_them(fault: str | None, verdict: Verdict) -> None:
    assert findings(loss_allowed=True, **({fault: 1} if fault else {})).verdict is verdict


def test_the_json_has_the_contracts_counts_and_short_lists() -> None:
    found = proved(missing=LISTED + 5)
    found.lists["missing"] = [{"sequence": number} for number in range(LISTED + 5)]
    written: dict[str, Any] = json.loads(json.dumps(found.as_json()))
    counts = {"planned", "answered", "missing", "duplicate", "unexpected", "undecodable", "open", "failed"}
    assert {*counts, "out_of_order", "verdict"} <= written.keys()
    assert len(written["lists"]["missing"]) == LISTED


def test_percentiles_are_within_one_percent() -> None:
    source = random.Random(1)
    values = sorted(math.exp(source.gauss(0, 2)) for _ in range(10_000))
    found = summary(buckets(values))
    for name, share in {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}.items():
        assert found[name] == pytest.approx(values[round(share * len(values)) - 1], rel=0.011)
    assert found["longest"] == values[-1]
    assert found["mean"] == pytest.approx(sum(values) / len(values))
    assert found["count"] == len(values)


def test_the_merged_histograms_of_two_halves_equal_that_of_the_whole() -> None:
    values = [1.5**number for number in range(20)]
    halves = merged([*buckets(values[:10]), *buckets(values[10:])])
    whole = buckets(values)
    assert [bucket[:2] for bucket in halves] == [bucket[:2] for bucket in whole]
    assert summary(halves)["longest"] == summary(whole)["longest"]


def test_no_values_have_no_percentiles_and_the_least_duration_counts_as_zero() -> None:
    assert summary([]) == {}
    least = math.floor(math.log(LEAST) / math.log(GROWTH))
    assert summary([Bucket(least, 4, 0.0, 0.0)])["p50"] == middle(least) == 0.0


@pytest.mark.parametrize(("seconds", "step"), [(0, 1), (120, 1), (121, 2), (3600, 30), (86_400, 900), (10**9, 86_400)])
def test_a_plot_has_a_bounded_number_of_points(seconds: int, step: int) -> None:
    assert step_of(seconds) == step
