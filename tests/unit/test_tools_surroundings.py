"""The command line among other programs: a proxy, foreign records, odd properties and header names."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from tests.unit.environment import NEEDED, load
from tests.unit.fake_topics import STATES, FakeTopics
from tests.unit.foreign_answers import foreign
from tests.unit.task_states import state, write
from worker.cli import top
from worker.cli.replicas import running
from worker.cli.rows import InputError, json_rows
from worker.cli.status import _row
from worker.cli.tally import Tally
from worker.cli.waiting import _take
from worker.core.model import Partition, Record
from worker.errors import SettingsError
from worker.kafka import client_consumer
from worker.kafka.client_producer import RequestProducer
from worker.kafka.descriptions import Span
from worker.kafka.reader import Reader
from worker.kafka.sender import Sender
from worker.settings import ClientSettings
from worker.state.records import state_key


def test_top_omits_a_task_that_reports_and_ends_before_the_next_read() -> None:
    topics = FakeTopics()
    watcher = top.Watcher(topics)  # type: ignore[arg-type]
    one = state(progress=0.5)
    write(topics, one)
    topics.add(STATES, one.origin.partition % 2, state_key(one.origin), None)
    watcher.follow(0.05)
    assert "no long task" in watcher.page(80, 24).plain


@pytest.fixture
def replica_port() -> Any:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/tasks" else 404)
            self.end_headers()
            self.wfile.write(json.dumps({"processes": [{"slot": 0, "pid": 17, "task": None}]}).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def test_requests_to_the_replica_on_this_machine_bypass_the_proxy(
    replica_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    assert [row["pid"] for row in running([], replica_port)] == [17]


@pytest.mark.parametrize(
    ("make", "name", "value"),
    [
        (Sender, "reconnect.backoff.ms", "100000"),
        (lambda p: RequestProducer(p, 60.0), "reconnect.backoff.ms", "100000"),
    ],
)
def test_a_property_that_a_client_of_the_tools_refuses_is_a_settings_error(make: Any, name: str, value: str) -> None:

    variables = NEEDED | {f"KAFKA_CONFIG_{name.upper().replace('.', '_')}": value}
    settings = ClientSettings.load(variables)
    with pytest.raises(SettingsError):
        make(settings.client_properties())


@pytest.mark.parametrize(
    "make",
    [
        lambda p: Reader(p | {"group.id": "g"}, {}).close(),
        lambda p: client_consumer.AnswerReader(p | {"group.id": "g"}, {}).close(),
    ],
)
def test_the_tools_accept_properties_that_the_worker_accepts(make: Any) -> None:
    make(load(KAFKA_CONFIG_RECEIVE_MESSAGE_MAX_BYTES="10000000").client_properties())


def test_submit_ignores_an_answer_with_an_unknown_outcome_to_another_request() -> None:

    tally = Tally()
    tally.expect(Partition("requests", 0), 0)
    _take(Record(Partition("answers", 0), 0, None, foreign(), (), 0), tally, None)
    assert tally.answered == 0


def test_submit_ignores_two_bytes_of_another_program() -> None:

    _take(Record(Partition("answers", 0), 0, None, b"\x18\x63", (), 0), Tally(), None)


def test_lag_is_never_negative() -> None:

    assert _row(Partition("t", 0), Span(0, 5), 100, None)["lag"] >= 0


@pytest.mark.parametrize("name", ["\\ud800", "a\\u0000b"])
def test_header_names_are_checked(name: str) -> None:

    line = '{"payload": "x", "headers": {"' + name + '": "v"}}'
    with pytest.raises(InputError):
        list(json_rows([("file, line 1", line)]))
