"""States of long tasks, and the commands that show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

from tests.unit.fake_topics import STATES, FakeTopics
from worker.cli import tasks
from worker.cli.app import cli
from worker.core.task_state import Origin, TaskState
from worker.state.records import encode_state, state_key

if TYPE_CHECKING:
    from types import ModuleType

    import pytest


NOW = 1_800_000_000.0


def state(
    origin: str = "requests/3/1042", *, age: float = 100.0, seen: float = 1.0, epoch: int = 1, **fields: Any
) -> TaskState:
    """Return the state of a task that started ``age`` seconds ago, with a heartbeat ``seen`` seconds ago."""
    topic, number, offset = origin.split("/")
    place = Origin(topic, int(number), int(offset))
    times = int((NOW - age) * 1e9), int((NOW - seen) * 1e9)
    return TaskState(place, fields.pop("worker", "replica-0-1"), epoch, *times, **fields)


def write(topics: FakeTopics, *states: TaskState) -> None:
    for one in states:
        topics.add(STATES, one.origin.partition % 2, state_key(one.origin), encode_state(one))


def run(module: ModuleType, topics: FakeTopics, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    monkeypatch.setattr(module, "Access", lambda: topics)
    name = "tasks" if module is tasks else "top"
    result = CliRunner().invoke(cli, [name, *arguments], standalone_mode=False, catch_exceptions=False)
    assert result.return_value == 0
    return result.stdout
