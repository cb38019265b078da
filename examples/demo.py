"""The whole way on this machine: a broker, a worker of two processes, a table of models to train, and the proof.

Started by ``scripts/demo``. Exits 0 only if each request got exactly one answer and it was the right one. Whatever
happens, nothing is left running or lying about.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from examples import findings, proof
from examples.make_configurations import TABLE, configurations
from examples.stage import (
    ANSWERS,
    GROUP,
    LETTERS,
    PROCESSES,
    REQUESTS,
    ROOT,
    STOP_SECONDS,
    broker,
    environment,
    free_ports,
    worker,
)
from worker.cli.console import show
from worker.core.deadline import Deadline
from worker.errors import WorkerError
from worker.kafka.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterable

    from worker.codec import Response

PARTITIONS = 16  # many more than processes, so that long tasks spread
START_SECONDS = 60.0  # for the worker to be ready
WORK_SECONDS = 600  # for all answers; a fraction of it on two idle cores
SETTLE_SECONDS = 10.0  # for the last commit, which follows the last answer
LOG_LINES = 20


class DemoError(Exception):
    """The demo did not show what it is to show; the message says why."""


def main() -> None:
    """Run it all and exit."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    code = 1
    folder = Path(tempfile.mkdtemp(prefix="worker-demo-"))
    try:
        _run(folder)
        code = 0
    except KeyboardInterrupt:
        _say("\nInterrupted")
        code = 130
    except (DemoError, WorkerError, subprocess.CalledProcessError) as error:
        _say(f"\nFailed: {error}")
        _show_log(folder / "worker.log")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(code)


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _show_log(log: Path) -> None:
    if log.exists():
        _say("The worker's last log lines:")
        _say("\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:]))


def _run(folder: Path) -> None:
    started = time.monotonic()
    broker_port, http_port = free_ports(2)
    settings = environment(broker_port, http_port)
    _say("[1/5] A broker")
    with broker(broker_port, folder / "kafka"):
        properties = {"bootstrap.servers": settings["KAFKA_BOOTSTRAP_SERVER"], "group.id": GROUP}
        cluster = Cluster(properties)
        for topic in (REQUESTS, ANSWERS, LETTERS):
            cluster.create(topic, PARTITIONS)
        _say(f"[2/5] A worker of {PROCESSES} processes: http://127.0.0.1:{http_port}/tasks")
        with worker(settings, folder / "worker.log") as replica:
            _await_ready(replica, http_port)
            _say(f"[3/5] Submitting {TABLE.relative_to(ROOT)}, and waiting for the answers")
            _submit(settings, replica)
            _say("[4/5] The proof, from the topics themselves")
            evidence = proof.gather(cluster, properties, REQUESTS, ANSWERS, LETTERS)
            _prove(evidence, cluster)
            _say("[5/5] SIGTERM")
            _stop(replica)
    _show([answer for given in evidence.answers.values() for answer in given])
    _say(f"\nProved: {len(evidence.requests)} requests, one answer each. {time.monotonic() - started:.0f} s in all.")


def _say(text: str) -> None:
    print(text, flush=True)  # at once, because the commands it starts write to the same place


# ---------------------------------------------------------------- the steps


def _await_ready(replica: subprocess.Popen[bytes], http_port: int) -> None:
    deadline = Deadline.after(START_SECONDS, time.monotonic())
    while not deadline.passed(time.monotonic()):
        _check_alive(replica)
        with (
            contextlib.suppress(OSError, urllib.error.URLError),
            urllib.request.urlopen(f"http://127.0.0.1:{http_port}/readyz", timeout=5),
        ):
            return
        time.sleep(0.1)
    raise DemoError(f"the worker was not ready within {START_SECONDS:g} s")


def _check_alive(replica: subprocess.Popen[bytes]) -> None:
    if replica.poll() is not None:
        raise DemoError(f"the worker ended with exit code {replica.returncode}")


def _submit(settings: dict[str, str], replica: subprocess.Popen[bytes]) -> None:
    arguments = ["submit", "--file", str(TABLE), "--wait", "--timeout", f"{WORK_SECONDS}s"]
    submit = subprocess.Popen([sys.executable, "-m", "worker", *arguments], env=settings)
    try:
        while submit.poll() is None:
            _check_alive(replica)
            with contextlib.suppress(subprocess.TimeoutExpired):
                submit.wait(0.5)
    finally:
        if submit.poll() is None:
            submit.kill()
            submit.wait()
    if submit.returncode:
        raise DemoError(f"worker submit ended with exit code {submit.returncode}")


def _prove(evidence: proof.Evidence, cluster: Cluster) -> None:
    if _sorted(evidence.requests.values()) != _sorted(configurations()):
        raise DemoError(f"what stands in {REQUESTS} is not the table")
    if found := proof.complaints(evidence):
        raise DemoError("\n".join(found))
    deadline = Deadline.after(SETTLE_SECONDS, time.monotonic())
    while lag := proof.lag(cluster, GROUP, cluster.partitions(REQUESTS)):
        if deadline.passed(time.monotonic()):
            raise DemoError(f"the group has not committed {lag} requests that were answered")
        time.sleep(0.1)


def _sorted(payloads: Iterable[object]) -> list[str]:
    return sorted(json.dumps(payload, sort_keys=True) for payload in payloads)


def _stop(replica: subprocess.Popen[bytes]) -> None:
    replica.terminate()
    try:
        code = replica.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise DemoError(f"the worker did not end within {STOP_SECONDS:g} s of SIGTERM") from error
    if code:
        raise DemoError(f"the worker ended with exit code {code} after SIGTERM")


def _show(answers: list[Response]) -> None:
    wall, busy = findings.efficiency(answers, PROCESSES)
    _say("\nBest models")
    show(findings.best_models(answers))
    _say("\nWork")
    show(findings.work(answers))
    _say(f"{wall:.1f} s from the first start to the last finish; {PROCESSES} processes were busy {busy:.1%} of it")


if __name__ == "__main__":
    main()
