"""``worker tasks``: what it shows of the state topic."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.unit.fake_topics import STATES, FakeReader, FakeTopics
from tests.unit.task_states import NOW, run, state, write
from worker.cli import tasks, top
from worker.cli.long_tasks import SILENT_AFTER, as_json, lasting, percent, state_of
from worker.cli.state_topic import StateTopic
from worker.core.task_state import DETACHED, RUNNING, WAITING
from worker.errors import BrokerError, SettingsError
from worker.state.records import state_key

if TYPE_CHECKING:
    from types import ModuleType

    from worker.core.model import Record


def test_json_has_the_fields_of_the_contract() -> None:
    """It has exactly these fields, so that scripts can rely on them."""
    shown = as_json(state(key=b"img-0269", sequence=269, attempt=2, progress=0.5, message="half"), NOW)

    assert shown == {
        "origin": {"topic": "requests", "partition": 3, "offset": 1042},
        "key": "img-0269",
        "sequence": 269,
        "worker": "replica-0-1",
        "attempt": 2,
        "started_at": "2027-01-15T07:58:20.000Z",
        "seconds": 100.0,
        "progress": 0.5,
        "message": "half",
        "state": "running",
    }


def test_json_has_null_for_a_missing_key_and_missing_progress() -> None:
    shown = as_json(state(), NOW)
    assert (shown["key"], shown["progress"]) == (None, None)


@pytest.mark.parametrize(
    ("written", "seen", "shown"),
    [
        (RUNNING, SILENT_AFTER, "running"),
        (RUNNING, SILENT_AFTER + 1, "silent"),
        (DETACHED, SILENT_AFTER + 1, "silent"),
        (WAITING, SILENT_AFTER + 1, "waiting"),  # it does not run, so it has no heartbeat
    ],
)
def test_a_task_without_heartbeats_is_silent(written: str, seen: float, shown: str) -> None:
    assert state_of(state(seen=seen, state=written), NOW) == shown


def test_only_tasks_that_run_now_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that wait, are settled or belong to another group are not printed. The oldest task comes first."""
    topics = FakeTopics()
    gone = state("requests/1/5")
    write(topics, state("requests/0/7", age=5), state("requests/0/1"), gone, state("requests/0/2", state=WAITING))
    write(topics, state("others/0/1"))
    topics.add(STATES, 1, state_key(gone.origin), None)

    shown = json.loads(run(tasks, topics, monkeypatch, "--json"))

    assert [one["origin"]["offset"] for one in shown] == [1, 7]


def test_without_a_long_task_the_command_prints_an_empty_array_or_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = FakeTopics()
    assert json.loads(run(tasks, topics, monkeypatch, "--json")) == []
    assert run(tasks, topics, monkeypatch) == "no long task runs\n"


def test_the_table_keeps_whole_origins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users copy the origins into other commands."""
    topics = FakeTopics()
    topics.settings.request_topics = ("t" * 120,)
    write(topics, state(f"{'t' * 120}/0/1", message="epoch 3"))

    out = run(tasks, topics, monkeypatch)

    assert f"{'t' * 120}/0/1" in out
    assert "epoch 3" in out
    assert out.endswith("1 long task\n")


@pytest.mark.parametrize("module", [tasks, top])
def test_without_a_state_topic_one_line_says_what_to_set(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match=r"KAFKA_STATE_TOPIC is not set.*worker run"):
        run(module, FakeTopics(state_topic=""), monkeypatch)


def test_the_error_names_a_missing_state_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BrokerError, match="'misspelt'"):
        run(tasks, FakeTopics(state_topic="misspelt"), monkeypatch)


def test_the_error_names_a_missing_read_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = FakeTopics()

    def refuse(_starts: object) -> FakeReader:
        reader = FakeReader(topics.logs, dict.fromkeys(topics.logs, 0))
        reader.poll = denied  # type: ignore[method-assign]
        return reader

    def denied(_timeout: float) -> list[Record]:
        raise BrokerError("reading states[0] failed: TOPIC_AUTHORIZATION_FAILED: Broker: not authorized")

    monkeypatch.setattr(topics, "reader", refuse)
    with pytest.raises(BrokerError, match=r"^no permission to READ topic 'states' \(KAFKA_STATE_TOPIC\): grant it"):
        run(tasks, topics, monkeypatch)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.9, "59 s"), (60, "1:00"), (3599, "59:59"), (3600, "1:00:00"), (86400 * 99.99, "99d 23h")],
)
def test_durations_fit_seven_columns(seconds: float, text: str) -> None:
    assert lasting(seconds) == text
    assert len(text) <= 7


def test_100_percent_is_shown_only_for_a_complete_task() -> None:
    assert [percent(value) for value in (None, 0.0, 0.999, 1.0)] == ["", "0%", "99%", "100%"]


def test_a_topic_that_never_stands_still_is_read_to_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long task may write records faster than the command can read them."""
    topics = FakeTopics()
    write(topics, state())
    poll = FakeReader.poll

    def busy(reader: FakeReader, timeout: float) -> list[Record]:
        write(topics, state())
        return poll(reader, timeout)

    monkeypatch.setattr(FakeReader, "poll", busy)
    topic = StateTopic(cast("Any", topics))
    topic.read(cast("Any", False))
    assert [str(one.origin) for one in topic.states()] == ["requests/3/1042"]
