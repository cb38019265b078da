"""Asking a replica what it works on, at endpoints that a test serves."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest

from worker.cli.replicas import running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BUSY = {
    "slot": 0,
    "pid": 17,
    "state": "running",
    "queued": 4,
    "task": {"topic": "requests", "partition": 3, "offset": 9, "attempt": 2, "started": 1.0, "seconds": 5.5},
    "restarts": 0,
}
IDLE = {"slot": 1, "pid": 18, "state": "running", "queued": 0, "task": None}


@pytest.fixture
def replica() -> Iterator[Callable[[object], int]]:
    """Serves a body under /tasks; returns the port."""
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
    """Who works on what, for how long, and who is idle; the address may be written with its path."""
    url = f"http://127.0.0.1:{replica({'processes': [BUSY, IDLE]})}{suffix}"

    busy, idle = running([url], 0)

    assert busy == {
        "replica": url,
        "slot": 0,
        "pid": 17,
        "state": "running",
        "queued": 4,
        "task": "requests[3]@9",
        "attempt": 2,
        "seconds": 5.5,
    }
    assert (idle["task"], idle["seconds"]) == (None, None)


def test_the_replica_of_this_machine_is_asked_by_its_port(replica: Callable[[object], int]) -> None:
    """Without an address, WORKER_HTTP_PORT says where to look."""
    assert len(running([], replica({"processes": [BUSY]}))) == 1


def test_port_0_means_that_there_is_nothing_to_ask() -> None:
    """With the endpoints off, nobody is asked."""
    assert running([], 0) == []


@pytest.mark.parametrize("body", [{}, [], {"processes": None}, {"processes": [5]}, {"processes": [{}]}])
def test_whatever_else_answers_there_does_no_harm(
    replica: Callable[[object], int], body: object, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another program on that port is no replica."""
    port = replica(body)
    running([], port)

    assert capsys.readouterr().err == ""


def test_a_named_replica_that_does_not_answer_is_reported(
    replica: Callable[[object], int], capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are shown."""
    good = f"http://127.0.0.1:{replica({'processes': [BUSY]})}"

    assert len(running(["http://127.0.0.1:1", good], 0)) == 1
    assert "http://127.0.0.1:1/tasks does not answer" in capsys.readouterr().err


def test_an_address_that_is_none_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """A forgotten http:// is no traceback."""
    assert running(["replica-0:8080"], 0) == []
    assert "replica-0:8080/tasks does not answer" in capsys.readouterr().err
