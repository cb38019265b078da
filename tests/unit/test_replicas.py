"""The running tasks of replicas, from HTTP endpoints that the test serves."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from worker.cli import replicas
from worker.cli.replicas import flat, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TASK = {"topic": "requests", "partition": 3, "offset": 9, "attempt": 2, "started": 1.0, "seconds": 5.5}
BUSY: dict[str, Any] = {
    "slot": 0,
    "pid": 17,
    "state": "running",
    "queued": 4,
    "task": TASK,
    "restarts": 0,
}
IDLE: dict[str, Any] = {"slot": 1, "pid": 18, "state": "running", "queued": 0, "task": None}


@pytest.fixture
def replica(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[object], int]]:
    """Yield a function that serves a body under /tasks and returns the port."""
    monkeypatch.setattr(replicas, "TIMEOUT", 30.0)  # the machine may be slow
    servers = []

    def serve(body: object) -> int:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200 if self.path == "/tasks" else 404)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_: object) -> None:
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return server.server_port

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("suffix", ["", "/", "/tasks"])
def test_the_processes_of_named_replicas_are_shown(replica: Callable[[object], int], suffix: str) -> None:
    """The task has the same shape as in /tasks. The address may include the path."""
    url = f"http://127.0.0.1:{replica({'processes': [BUSY, IDLE]})}{suffix}"

    busy, idle = running([url], 0)

    assert busy == {
        "replica": url,
        "slot": 0,
        "pid": 17,
        "state": "running",
        "queued": 4,
        "task": BUSY["task"],
        "beside": None,
    }
    assert idle["task"] is None


def test_the_table_names_the_task_by_origin_key_sequence_and_attempt() -> None:
    """`worker status` prints this in a row. A replica that does not report key and sequence yet gives none."""
    known = {**BUSY, "task": {**TASK, "key": "img-0269", "sequence": 269}}

    rows = [row for process in (known, BUSY, IDLE) for row in flat(process)]

    assert [(row["task"], row["key"], row["sequence"], row["attempt"], row["seconds"]) for row in rows] == [
        ("requests/3/9", "img-0269", 269, 2, 5.5),
        ("requests/3/9", None, None, 2, 5.5),
        (None, None, None, None, None),
    ]


def test_each_task_of_a_process_has_a_row() -> None:
    """The tasks run beside each other."""
    rows = flat({**BUSY, "beside": [{**TASK, "offset": 4}]})

    assert [(row["pid"], row["task"]) for row in rows] == [(17, "requests/3/9"), (17, "requests/3/4")]
    assert all("beside" not in row for row in rows)


def test_the_replica_of_this_machine_is_found_by_its_port(replica: Callable[[object], int]) -> None:
    """Without an address, WORKER_HTTP_PORT says where it is."""
    assert len(running([], replica({"processes": [BUSY]}))) == 1


def test_no_replica_is_queried_if_the_port_is_0() -> None:
    """With port 0 the endpoints are off."""
    assert running([], 0) == []


@pytest.mark.parametrize("body", [{}, [], {"processes": None}, {"processes": [5]}, {"processes": [{}]}])
def test_a_response_that_is_not_from_a_replica_causes_no_error(
    replica: Callable[[object], int], body: object, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another program may use the port."""
    port = replica(body)
    running([], port)

    assert capsys.readouterr().err == ""


def test_a_named_replica_that_does_not_answer_is_reported(
    replica: Callable[[object], int], capsys: pytest.CaptureFixture[str]
) -> None:
    """The other replicas are shown."""
    good = f"http://127.0.0.1:{replica({'processes': [BUSY]})}"

    assert len(running(["http://127.0.0.1:1", good], 0)) == 1
    assert "http://127.0.0.1:1/tasks does not respond" in capsys.readouterr().err


def test_an_invalid_address_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """A missing http:// causes no traceback."""
    assert running(["replica-0:8080"], 0) == []
    assert "replica-0:8080/tasks does not respond" in capsys.readouterr().err
