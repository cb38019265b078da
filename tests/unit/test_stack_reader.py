"""The reader of a replica finds the process that runs a task by the connection of that process."""

from __future__ import annotations

import os
import time
import uuid
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from worker.core.model import Partition
from worker.core.task_state import WAITING, Origin, TaskState
from worker.kafka.state_reader import KeyValue, TopicFollower
from worker.state import reader as state_reader
from worker.state.client import KafkaStateTopic
from worker.state.config import ReaderConfig
from worker.state.reader import Reader
from worker.state.records import encode_state, state_key
from worker.state.stack_records import StackRequest, encode, request_key

if TYPE_CHECKING:
    import pytest

    from worker.state.stack_replies import Runner

HERE, ELSEWHERE, WAITS = (Origin("requests", 3, offset) for offset in (41, 42, 43))


class Topic:
    """A topic whose records can be read once."""

    def __init__(self, *records: KeyValue) -> None:
        self._records = list(records)

    def poll(self, _timeout: float) -> list[KeyValue]:
        records, self._records = self._records, []
        return records

    def ends(self) -> None:
        """The broker does not answer, which does not matter here."""


def a_state(origin: Origin, worker: str, state: str = "running") -> KeyValue:
    return KeyValue(state_key(origin), encode_state(TaskState(origin, worker, 1, 5, 5, state=state)))


def a_request(origin: Origin) -> KeyValue:
    return KeyValue(request_key(origin), encode(StackRequest(origin, "1", time.time())))


class Recorder:
    """A replacement for ``StackReplies`` that records which process the reader finds for each task."""

    def __init__(self, _topic: str, _partitions: int, runner_of: Any, _write: Any) -> None:
        self._runner_of = runner_of
        self.found: dict[bytes | None, Runner | None] = {}

    def take(self, key: bytes | None, _value: bytes | None) -> None:
        for origin in (HERE, ELSEWHERE, WAITS):
            if key == request_key(origin):
                self.found[key] = self._runner_of(origin)


def test_only_the_replica_that_runs_the_task_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader finds no process for a task of another replica, or for a task that waits for its next start."""
    recorders: list[Recorder] = []

    def record(*arguments: Any) -> Recorder:
        recorders.append(Recorder(*arguments))
        return recorders[-1]

    monkeypatch.setattr(state_reader, "StackReplies", record)
    states = [a_state(HERE, "a-0"), a_state(ELSEWHERE, "b-0"), a_state(WAITS, "a-0", WAITING)]
    topic = Topic(*states, *map(a_request, (HERE, ELSEWHERE, WAITS)))
    config = ReaderConfig(f"test-{uuid.uuid4().hex}", "states", 1, {}, "INFO", "json")
    reader = Reader(config, cast("TopicFollower", Topic()))
    client = KafkaStateTopic("a-0", config.address, "states", 1, cast("Any", SimpleNamespace(close=lambda: None)))
    client.follow(Partition("requests", 3), 1)
    for _ in range(5):
        client.receive()
        reader.turn(0.0)
    monkeypatch.setattr(reader, "_follower", topic)

    reader.turn(0.0)
    client.close()
    reader.close()

    assert recorders[0].found == {
        request_key(HERE): ("a-0", os.getpid()),
        request_key(ELSEWHERE): None,
        request_key(WAITS): None,
    }
