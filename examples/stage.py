"""What the demo sets up and takes down again: ports, settings, a broker and a worker of its own."""

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
REQUESTS, ANSWERS, LETTERS = "trainings", "scores", "trainings.dlq"
GROUP = "trainers"
JOB = "demo"
LAKE = ROOT / ".demo"  # the tables of the last run, and its report
STOP_SECONDS = 60.0  # for the worker to drain


def environment(broker_port: int, http_port: int) -> dict[str, str]:
    """The worker's settings, and nothing of the caller's that could be meant for another worker."""
    inherited = {
        name: text for name, text in os.environ.items() if not name.startswith(("KAFKA_", "WORKER_", "PIPELINE_"))
    }
    return inherited | {
        "KAFKA_BOOTSTRAP_SERVER": f"127.0.0.1:{broker_port}",
        "KAFKA_REQUEST_TOPIC": REQUESTS,
        "KAFKA_ACK_TOPIC": ANSWERS,
        "KAFKA_DEAD_LETTER_TOPIC": LETTERS,
        "KAFKA_CONSUMER_GROUP_ID": GROUP,
        "WORKER_HANDLER": "examples.train:train",
        "WORKER_GUARANTEE": "exactly-once",
        "WORKER_PROCESSES": str(PROCESSES),
        "WORKER_HTTP_PORT": str(http_port),
    }


@contextlib.contextmanager
def broker(port: int, data: Path) -> Iterator[None]:
    """A broker of the demo's own."""
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
    """A replica in a session of its own: Ctrl-C reaches the demo alone, which then stops it in order."""
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
                worker.send_signal(signal.SIGTERM)  # the second cancels what still runs
                with contextlib.suppress(subprocess.TimeoutExpired):
                    worker.wait(STOP_SECONDS)
            with contextlib.suppress(ProcessLookupError):  # whoever is left of its session
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()


def pipeline(environment: dict[str, str], command: str, *options: str) -> None:
    """Run a command of the pipeline; what it says goes where we speak. CalledProcessError if it fails."""
    ours = {name: text for name, text in environment.items() if not name.startswith("WORKER_")}
    everywhere = ("--job", JOB, "--lake", str(LAKE))
    subprocess.run([sys.executable, "-m", "pipeline", command, *everywhere, *options], env=ours, cwd=ROOT, check=True)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Cleaning up goes on to its end, however often Ctrl-C is pressed."""
    before = {
        number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on, below those the kernel gives to outgoing connections."""
    ports: list[int] = []
    for port in random.sample(range(20_000, 32_000), 1_000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports.append(port)
        if len(ports) == count:
            return ports
    raise RuntimeError("found no free ports between 20000 and 32000")
