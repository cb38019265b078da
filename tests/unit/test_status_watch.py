"""The updates of ``worker status --watch``, with a group and a dead-letter topic in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from worker.cli import status_watch
from worker.cli.console import Stop
from worker.cli.status_watch import Errors
from worker.core.model import Partition, Record
from worker.kafka.descriptions import Span

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

DEAD = Partition("requests.dlq", 0)
TASK = {"topic": "requests", "partition": 0, "offset": 3, "key": "k", "sequence": 7, "attempt": 1, "seconds": 2.5}


def dead_letter(offset: int, error: bytes) -> Record:
    return Record(DEAD, offset, b"k", b"v", (("x-error-type", error),), 1)


class Topic:
    """The dead-letter topic. It does not exist yet if ``records`` is None."""

    def __init__(self, records: list[Record] | None) -> None:
        self.settings = SimpleNamespace(dead_letter_topic=DEAD.topic)
        self.cluster = self
        self.records = records

    def find(self, _topic: str) -> list[Partition] | None:
        return None if self.records is None else [DEAD]

    def spans(self, partitions: list[Partition]) -> dict[Partition, Span]:
        return dict.fromkeys(partitions, Span(0, len(self.records or ())))

    def reader(self, starts: Mapping[Partition, int]) -> Any:
        left = (self.records or [])[: starts[DEAD]]

        def poll(_timeout: float) -> list[Record]:
            new = (self.records or [])[len(left) :]
            left.extend(new)
            return new

        return SimpleNamespace(poll=poll, at_end=True, close=lambda: None)


def group(lag: int) -> dict[str, Any]:
    processes = [{"replica": "r", "slot": 0, "task": TASK}, {"replica": "r", "slot": 1, "task": None}]
    return {"group": "g", "members": [{}], "lag": lag, "partitions": [{"end": 10, "lag": lag}], "processes": processes}


def test_an_update_has_lag_rate_errors_and_running_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_watch, "INTERVAL", 0.0)
    lags, stop = iter([8, 4]), Stop()
    errors: Any = SimpleNamespace(count=lambda: {"KeyError": 1})
    looks = status_watch._looks(lambda: group(next(lags)), errors, stop)
    first, second = next(looks), next(looks)
    stop.requested = True

    assert (first["lag"], first["rate"]) == (8, None)
    assert second["lag"] == 4
    assert second["rate"] > 0
    assert second["remaining_seconds"] >= 0
    assert second["errors"] == {"KeyError": 1}
    assert [(row["task"], row["key"], row["sequence"]) for row in second["running"]] == [("requests/0/3", "k", 7)]
    assert list(looks) == []


def test_only_dead_letters_since_the_start_are_counted() -> None:
    topic: Any = Topic([dead_letter(0, b"Old")])
    errors = Errors(topic)
    topic.records += [dead_letter(1, b"KeyError"), dead_letter(2, b"KeyError")]
    assert errors.count() == {"KeyError": 2}


def test_all_dead_letters_of_a_topic_that_is_created_later_are_counted() -> None:
    """The first dead letter creates the topic."""
    topic: Any = Topic(None)
    errors = Errors(topic)
    assert errors.count() == {}
    topic.records = [dead_letter(0, b"KeyError"), dead_letter(1, b"ValueError")]
    assert errors.count() == {"KeyError": 1, "ValueError": 1}
    errors.close()
