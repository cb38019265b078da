"""Sets up and cleans up the demo: ports, settings, its broker and its worker."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PROCESSES = 2
REQUESTS, ANSWERS, DEAD_LETTERS = "trainings", "scores", "trainings.dlq"
GROUP = "trainers"
JOB = "demo"
LAKE = ROOT / ".demo"  # the tables of the last run, and its report
STOP_SECONDS = 60.0  # for the worker to drain


def environment(broker_port: int, http_port: int) -> dict[str, str]:
    """Return the worker's settings, without variables of the caller that may be meant for another worker."""
    inherited = {
        name: text for name, text in os.environ.items() if not name.startswith(("KAFKA_", "WORKER_", "PIPELINE_"))
    }
    return inherited | {
        "KAFKA_BOOTSTRAP_SERVER": f"127.0.0.1:{broker_port}",
        "KAFKA_REQUEST_TOPIC": REQUESTS,
        "KAFKA_ACK_TOPIC": ANSWERS,
        "KAFKA_DEAD_LETTER_TOPIC": DEAD_LETTERS,
        "KAFKA_CONSUMER_GROUP_ID": GROUP,
        "WORKER_HANDLER": "examples.train:train",
        "WORKER_GUARANTEE": "exactly-once",
        "WORKER_PROCESSES": str(PROCESSES),
        "WORKER_HTTP_PORT": str(http_port),
    }


@contextlib.contextmanager
def broker(port: int, data: Path) -> Iterator[None]:
    """Run a broker for the demo."""
    environment = {**os.environ, "KAFKA_PORT": str(port), "KAFKA_DATA_DIR": str(data)}
    script = [ROOT / "scripts" / "kafka"]
    try:
        subprocess.run([*script, "up"], env=environment, check=True)
        yield
    finally:
        with _undisturbed():
            subprocess.run([*script, "down", "--purge"], env=environment, check=False)


@contextlib.contextmanager
def worker(environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a replica in a separate session: Ctrl-C reaches only the demo, which then stops the replica cleanly."""
    with log.open("wb") as output:
        command = [sys.executable, "-m", "worker", "run"]
        worker = subprocess.Popen(
            command, env=environment, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield worker
    finally:
        with _undisturbed():
            if worker.poll() is None:
                worker.terminate()
                worker.send_signal(signal.SIGTERM)  # the second one cancels running tasks
                with contextlib.suppress(subprocess.TimeoutExpired):
                    worker.wait(STOP_SECONDS)
            with contextlib.suppress(ProcessLookupError):  # the remaining processes of its session
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()


@contextlib.contextmanager
def pipeline(environment: dict[str, str], command: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command of the pipeline on the demo's terminal. It is stopped if it is still running at the end."""
    ours = {name: text for name, text in environment.items() if not name.startswith("WORKER_")}
    arguments = [sys.executable, "-m", "pipeline", command, "--job", JOB, "--lake", str(LAKE), *options]
    running = subprocess.Popen(arguments, env=ours, cwd=ROOT)
    try:
        yield running
    finally:
        with _undisturbed():
            if running.poll() is None:
                running.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(STOP_SECONDS)
            running.kill()
            running.wait()


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignore further Ctrl-C, so that cleaning up finishes."""
    before = {
        number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on, below those that the kernel gives to outgoing connections."""
    ports: list[int] = []
    for port in random.sample(range(20_000, 32_000), 1_000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports.append(port)
        if len(ports) == count:
            return ports
    raise RuntimeError("found no free ports between 20000 and 32000")
