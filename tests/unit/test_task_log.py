"""The log line of a finished task, and which lines are left out when there are too many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import structlog

from tests.unit.support import PARTITION, a_task
from worker.core.model import Failure, Outcome, Verdict
from worker.process.task_log import LINES_PER_SECOND, TaskLog

if TYPE_CHECKING:
    from collections.abc import Iterator

SECOND = 1_000_000_000


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as captured:
        yield captured


def outcomes(count: int, **fields: Any) -> list[Outcome]:
    return [Outcome(a_task(offset=number), Verdict.OK, **fields) for number in range(count)]


def test_an_answered_task_has_one_log_line_with_all_fields(lines: list[Any]) -> None:
    task = a_task(attempt=2, timestamp_ms=1_000)
    outcome = Outcome(task, Verdict.OK, sequence=7, started_ns=3 * SECOND, finished_ns=5 * SECOND)
    outcome.run_seconds, outcome.cpu_seconds = 2.0, 1.25
    outcome.failure = Failure("ValueError", "no")
    TaskLog().finished([outcome], "DEAD_LETTERED", 9 * SECOND)
    assert lines == [
        {
            "event": "task.finished",
            "log_level": "warning",
            "topic": PARTITION.topic,
            "partition": PARTITION.number,
            "offset": 42,
            "key": "k",
            "sequence": 7,
            "attempt": 2,
            "run": 2.0,
            "cpu": 1.25,
            "wait": 2.0,  # from the record's time to the start
            "settle": 4.0,  # from the end to the confirmed answer
            "outcome": "DEAD_LETTERED",
            "error": "ValueError: no",
        }
    ]


@pytest.mark.parametrize(("timestamp_ms", "started_ns"), [(0, SECOND), (-1, SECOND), (1_000, 0)])
def test_an_unknown_wait_is_not_logged(lines: list[Any], timestamp_ms: int, started_ns: int) -> None:
    """The record has no timestamp, or the task never started."""
    TaskLog().finished([Outcome(a_task(timestamp_ms=timestamp_ms), Verdict.OK, started_ns=started_ns)], "OK", SECOND)
    assert "wait" not in lines[0]


def test_a_clock_difference_causes_no_negative_wait(lines: list[Any]) -> None:
    TaskLog().finished([Outcome(a_task(timestamp_ms=9_000), Verdict.OK, started_ns=SECOND)], "OK", SECOND)
    assert lines[0]["wait"] == 0.0


def test_many_successes_are_sampled_and_counted(lines: list[Any]) -> None:
    """The number of omitted lines is logged before the next line."""
    task_log = TaskLog()
    task_log.finished(outcomes(LINES_PER_SECOND + 7), "OK", SECOND)
    assert [line["event"] for line in lines] == ["task.suppressed"] + ["task.finished"] * LINES_PER_SECOND
    assert lines[0]["count"] == 7
    task_log.finished(outcomes(3), "OK", SECOND)
    assert len(lines) == LINES_PER_SECOND + 1
    task_log.finished(outcomes(1), "OK", 2 * SECOND)
    assert [(line["event"], line.get("count")) for line in lines[-2:]] == [
        ("task.suppressed", 3),
        ("task.finished", None),
    ]


def test_a_failure_among_many_successes_is_logged(lines: list[Any]) -> None:
    """Failures have a separate limit, which they share with retried attempts."""
    task_log = TaskLog()
    task_log.finished(outcomes(LINES_PER_SECOND * 2), "OK", SECOND)
    lines.clear()
    task_log.finished(outcomes(LINES_PER_SECOND), "DEAD_LETTERED", SECOND)
    assert len(lines) == LINES_PER_SECOND


def test_retried_attempts_are_sampled_too(lines: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.process.task_log.time.time", lambda: 5.0)
    task_log = TaskLog()
    for outcome in outcomes(LINES_PER_SECOND + 2):
        task_log.retrying(outcome, 1.23456)
    assert [line["event"] for line in lines] == ["task.retrying"] * LINES_PER_SECOND
    assert lines[0]["after"] == 1.235


def test_a_dropped_task_is_logged_with_the_reason(lines: list[Any]) -> None:
    TaskLog.dropped(outcomes(1)[0], "the lease has ended")
    assert (lines[0]["event"], lines[0]["reason"]) == ("task.dropped", "the lease has ended")
