"""The submitted runs of a job, from the records in its progress log. Without Kafka."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.errors import JobError
from pipeline.exactly_once import runs
from pipeline.exactly_once.runs import Announced, announce, announced, submit_name

FIRST = Announced("r1", 10, "monday", {"acks": "id"}, {"acks": {0: 7, 1: 0}})
SECOND = Announced("r2", 12, "tuesday")


class Message:
    def __init__(self, offset: int, key: bytes, value: bytes | None) -> None:
        self._parts = offset, key, value

    def offset(self) -> int:
        return self._parts[0]

    def key(self) -> bytes:
        return self._parts[1]

    def value(self) -> bytes | None:
        return self._parts[2]


class Log:
    """A progress log in memory."""

    def __init__(self) -> None:
        self.records: list[Message] = []

    def messages(self, settled: int | None = None) -> list[Message]:
        return list(self.records)

    def add(self, key: str, value: bytes | None) -> None:
        self.records.append(Message(len(self.records), key.encode(), value))


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Any:
    found = Log()
    monkeypatch.setattr(runs, "write_record", lambda _log, key, value: found.add(key.decode(), value))
    return found


def test_announced_runs_are_read_back_in_order(log: Any) -> None:
    announce(log, "j", "topic", FIRST, frozenset())
    announce(log, "j", "topic", SECOND, frozenset({"r1"}))
    assert announced(log, "j", "topic") == [FIRST, SECOND]


def test_records_of_other_jobs_other_topics_and_progress_are_not_runs(log: Any) -> None:
    for key in (
        "submit/j/other/run/r9",
        "submit/jj/topic/run/r9",
        "submit/j/topic/r9/3/",
        "submit/j/topic/r9/turn",
        "replay/j/topic/3/5",
        "x",
    ):
        log.add(key, b'{"rows": 1, "created": "", "topic_ids": {}, "ends": {}}')
    assert announced(log, "j", "topic") == []


def test_progress_of_an_earlier_version_is_a_run_without_a_name(log: Any) -> None:
    log.add(f"{submit_name('j', 'topic', '')}/3/", b"0-99")
    announce(log, "j", "topic", FIRST, frozenset({""}))
    assert [run.id for run in announced(log, "j", "topic")] == ["", "r1"]
    assert "earlier version" in str(announced(log, "j", "topic")[0])


def test_the_later_of_two_submits_that_begin_at_the_same_time_fails(log: Any) -> None:
    announce(log, "j", "topic", FIRST, frozenset())
    with pytest.raises(JobError, match=r"as run r1 .* at the same time"):
        announce(log, "j", "topic", SECOND, frozenset())
    assert [run.id for run in announced(log, "j", "topic")] == ["r1"]
