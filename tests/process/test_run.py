"""``worker run`` from the command line to the exit code, as far as it gets without Kafka."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.ports import free_port
from tests.process.observe import ROOT, WAIT_LIMIT, alive, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def port() -> int:
    """Return a port on which no program listens."""
    return free_port()


@pytest.fixture
def start(port: int) -> Iterator[Start]:
    """Yield a function that starts ``worker run`` without a broker. Its arguments change the environment."""
    started = []

    def run(**variables: str) -> subprocess.Popen[str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_", "WORKER_"))}
        environment = {
            "KAFKA_BOOTSTRAP_SERVER": f"127.0.0.1:{port}",
            "KAFKA_REQUEST_TOPIC": "requests",
            "KAFKA_ACK_TOPIC": "answers",
            "KAFKA_CONSUMER_GROUP_ID": "group",
            "WORKER_HANDLER": "examples.hello:greet",
            "WORKER_HTTP_PORT": "0",
            "PYTHONPATH": str(ROOT),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "worker", "run"],
            env=clean | environment | variables,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def complaint(process: subprocess.Popen[str]) -> str:
    """Return the one line that is written for the user. All lines of the log are JSON."""
    _, stderr = process.communicate(timeout=WAIT_LIMIT)
    (line,) = [line for line in stderr.splitlines() if not line.startswith("{")]
    return line


def status_of(port: int, path: str) -> int | None:
    """Return the HTTP status, or None if there is no reply."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return None
    finally:
        connection.close()


def test_a_broker_that_cannot_be_reached_ends_the_replica_with_4(start: Start, port: int) -> None:
    """The output is one line for the user and the log."""
    process = start(KAFKA_CONNECT_TIMEOUT="1s")
    assert f"127.0.0.1:{port}" in complaint(process)
    assert process.returncode == 4


def test_a_port_that_is_in_use_ends_the_replica_with_2(start: Start) -> None:
    with socket.create_server(("", 0)) as taken:
        number = str(taken.getsockname()[1])
        process = start(WORKER_HTTP_PORT=number)
        assert complaint(process).startswith(f"worker: WORKER_HTTP_PORT={number} cannot be used")
    assert process.returncode == 2


def test_wrong_settings_end_the_replica_with_2(start: Start) -> None:
    process = start(WORKER_PROCESSES="many")
    assert "WORKER_PROCESSES" in complaint(process)
    assert process.returncode == 2


EXITING = "import os\n\nos._exit(9)\n"
FAILING = "1 / 0\n"
ALIEN = "import ctypes\n\nctypes.CDLL(None).exit(0)\n"


@pytest.mark.parametrize("limit", ["0.5s", "60s"])
@pytest.mark.parametrize(
    ("module", "handler", "named"),
    [
        ("", "mine:handle", "mine has no 'handle'"),
        ("", "nowhere:handle", "ModuleNotFoundError"),
        (FAILING, "mine:handle", "mine.py, line 1"),
        (EXITING, "mine:handle", "WORKER_HANDLER=mine:handle: loading it ended the process with exit code 9"),
        (ALIEN, "mine:handle", "ended the process with exit code 0"),
    ],
)
def test_a_handler_that_cannot_be_loaded_is_reported_without_a_broker(
    start: Start, tmp_path: Path, module: str, handler: str, named: str, limit: str
) -> None:
    """The report comes soon, although the broker might still become reachable."""
    (tmp_path / "mine.py").write_text(module)
    begin = time.monotonic()
    process = start(WORKER_HANDLER=handler, KAFKA_CONNECT_TIMEOUT=limit, PYTHONPATH=f"{ROOT}:{tmp_path}")
    assert named in complaint(process)
    assert process.returncode == 3
    assert time.monotonic() - begin < 20


def test_wrong_settings_are_reported_before_a_handler_that_cannot_be_loaded(start: Start) -> None:
    """Also if only the client library refuses the property."""
    process = start(WORKER_HANDLER="nowhere:handle", KAFKA_CONFIG_SECURITY_PROTOCOL="nonsense")
    assert "nonsense" in complaint(process)
    assert process.returncode == 2


def test_a_signal_during_the_import_of_the_handler_stops_the_replica(start: Start, tmp_path: Path) -> None:
    """The process that imports the handler ends too."""
    seen = tmp_path / "seen"
    (tmp_path / "mine.py").write_text(
        f"import os, pathlib, time\n\npathlib.Path({str(seen)!r}).write_text(f'{{os.getpid()}}\\n')\ntime.sleep(600)\n"
    )
    process = start(WORKER_HANDLER="mine:handle", PYTHONPATH=f"{ROOT}:{tmp_path}")
    until(lambda: seen.exists() and seen.read_text().endswith("\n"))
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_LIMIT) == 0
    assert not alive(int(seen.read_text()))


def test_a_replica_that_waits_for_the_broker_is_live_not_ready_and_stoppable(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        http_port = free.getsockname()[1]
    process = start(WORKER_HTTP_PORT=str(http_port))
    until(lambda: status_of(http_port, "/livez") == 200)
    assert status_of(http_port, "/readyz") == 503
    since = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_LIMIT) == 0
    assert time.monotonic() - since < 2
