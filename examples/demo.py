"""The whole way on this machine: Spark submits a table of models, workers train them, Spark collects, audits, reports.

Started by ``scripts/demo``. Exits 0 only if the audit proves one answer for each request, and each is the right one.
The tables and the report stay in ``.demo/`` until the next run; nothing is left running.
"""

from __future__ import annotations

import contextlib
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

from pyarrow import parquet

from examples import findings, proof
from examples.make_configurations import TABLE
from examples.stage import (
    ANSWERS,
    DEAD_LETTERS,
    GROUP,
    JOB,
    LAKE,
    PROCESSES,
    REQUESTS,
    ROOT,
    STOP_SECONDS,
    broker,
    environment,
    free_ports,
    pipeline,
    worker,
)
from worker.cli.console import show
from worker.core.deadline import Deadline
from worker.errors import WorkerError
from worker.kafka.cluster import Cluster

if TYPE_CHECKING:
    from examples.findings import Row

PARTITIONS = 16  # many more than processes, so that long tasks spread
START_SECONDS = 60.0  # for the worker to be ready
WORK_SECONDS = 600.0  # for all answers; a fraction of it on two idle cores
SETTLE_SECONDS = 10.0  # for the last commit
LOG_LINES = 20


class DemoError(Exception):
    """The demo failed to show its result. The message is the reason."""


def main() -> None:
    """Run the whole demo and exit."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    code = 1
    folder = Path(tempfile.mkdtemp(prefix="worker-demo-"))
    try:
        _run(folder)
        code = 0
    except KeyboardInterrupt:
        _echo("\nInterrupted")
        code = 130
    except (DemoError, WorkerError, subprocess.CalledProcessError) as error:
        _echo(f"\nFailed: {error}")
        _show_log(folder / "worker.log")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(code)


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _show_log(log: Path) -> None:
    if log.exists():
        _echo("The worker's last log lines:")
        _echo("\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:]))


def _run(folder: Path) -> None:
    started = time.monotonic()
    shutil.rmtree(LAKE, ignore_errors=True)
    broker_port, http_port = free_ports(2)
    settings = environment(broker_port, http_port)
    requests = parquet.read_metadata(TABLE).num_rows
    _echo("[1/4] A broker")
    with broker(broker_port, folder / "kafka"):
        cluster = Cluster({"bootstrap.servers": settings["KAFKA_BOOTSTRAP_SERVER"], "group.id": GROUP})
        for topic in (REQUESTS, ANSWERS, DEAD_LETTERS):
            cluster.create(topic, PARTITIONS)
        _echo(f"[2/4] A worker of {PROCESSES} processes, exactly-once: http://127.0.0.1:{http_port}/tasks")
        with worker(settings, folder / "worker.log") as replica:
            _await_ready(replica, http_port)
            _echo(f"[3/4] pipeline run: submit {TABLE.relative_to(ROOT)}, follow the answers, audit, report")
            _run_job(settings, replica)
            _await_commits(cluster)
            _echo("[4/4] SIGTERM to the worker")
            _stop(replica)
    rows = findings.read(LAKE / "answers" / f"job={JOB}")
    if found := proof.problems(rows, requests):
        raise DemoError("\n".join(found))
    _show(rows)
    _echo(f"\nReport: {(LAKE / 'audit' / f'job={JOB}' / 'report.html').relative_to(ROOT)}")
    _echo(f"Proved: {requests} requests, one answer each. {time.monotonic() - started:.0f} s in all.")


def _echo(text: str) -> None:
    print(text, flush=True)  # flushed, because the commands it starts write to the same place


# ---------------------------------------------------------------- the steps


def _await_ready(replica: subprocess.Popen[bytes], http_port: int) -> None:
    deadline = Deadline.after(START_SECONDS, time.monotonic())
    while not deadline.passed(time.monotonic()):
        _check_alive(replica)
        if _page(http_port, "readyz") is not None:
            return
        time.sleep(0.1)
    raise DemoError(f"the worker was not ready within {START_SECONDS:g} s")


def _check_alive(replica: subprocess.Popen[bytes]) -> None:
    if replica.poll() is not None:
        raise DemoError(f"the worker ended with exit code {replica.returncode}")


def _page(http_port: int, name: str) -> str | None:
    with (
        contextlib.suppress(OSError, urllib.error.URLError),
        urllib.request.urlopen(f"http://127.0.0.1:{http_port}/{name}", timeout=5) as page,
    ):
        return str(page.read(), "utf-8")
    return None


def _run_job(settings: dict[str, str], replica: subprocess.Popen[bytes]) -> None:
    source = ("--input", str(TABLE), "--id", "id", "--payload", "configuration")
    with pipeline(settings, "run", *source, "--timeout", f"{WORK_SECONDS:g}s") as job:
        while job.poll() is None:
            _check_alive(replica)
            time.sleep(0.2)
    if job.returncode:
        raise DemoError(f"pipeline run ended with exit code {job.returncode}")


def _await_commits(cluster: Cluster) -> None:
    deadline = Deadline.after(SETTLE_SECONDS, time.monotonic())
    while lag := proof.lag(cluster, GROUP, cluster.partitions(REQUESTS)):
        if deadline.passed(time.monotonic()):
            raise DemoError(f"the group has not committed {lag} requests that were answered")
        time.sleep(0.1)


def _stop(replica: subprocess.Popen[bytes]) -> None:
    replica.terminate()
    try:
        code = replica.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise DemoError(f"the worker did not end within {STOP_SECONDS:g} s of SIGTERM") from error
    if code:
        raise DemoError(f"the worker ended with exit code {code} after SIGTERM")


def _show(rows: list[Row]) -> None:
    wall, busy = findings.efficiency(rows, PROCESSES)
    _echo("\nBest models")
    show(findings.best_models(rows))
    _echo("\nWork")
    show(findings.work(rows))
    _echo(f"{wall:.1f} s from the first start to the last finish; {PROCESSES} processes were busy {busy:.1%} of it")


if __name__ == "__main__":
    main()
