"""The Ray peer: a driver with its own local cluster. It submits tasks and collects their reports.

Runs in a separate environment: ``python -m benchmarks.foreign.ray_peer FOLDER``. It reads ``given`` in the folder, JSON
of ``handler``, ``payloads`` (``[[payload, count], …]``), ``processes``, ``batch`` (tasks in one call) and ``gaps``. It
keeps the number of finished tasks in ``done`` (eight bytes), writes the reports to ``reports`` before it counts the
last task, and waits for SIGTERM. With ``gaps`` it makes round trips instead, and writes their seconds.
"""
# mypy: disable-error-code="import-not-found,untyped-decorator"

from __future__ import annotations

import json
import signal
import struct
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray

from benchmarks.foreign.work import TaskReport, do

if TYPE_CHECKING:
    from collections.abc import Iterator

PENDING = 100  # calls under way, as in the example of Ray's documentation, which limits them with ray.wait
WARM_UP_SECONDS = "0.5"  # of one call for each process, so that all have started
PENDING_CHARACTERS = 64 * 1024 * 1024  # of their payloads


@ray.remote(num_cpus=1)
def run(handler: str, payloads: list[str]) -> list[TaskReport]:
    """Run some tasks one after another."""
    return [do(handler, payload) for payload in payloads]


def main(folder: Path) -> None:
    """Start the cluster and do what ``given`` says."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # so that Ray stops its processes
    given = json.loads((folder / "given").read_text(encoding="utf-8"))
    ray.init(
        num_cpus=given["processes"],
        include_dashboard=False,
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
        _temp_dir=str(folder / "ray"),
    )
    found = list(_round_trips(given)) if given["gaps"] else _reports(given, folder / "done")
    (folder / "reports").write_text(json.dumps(found), encoding="utf-8")
    _count(folder / "done", len(found))
    signal.pause()


def _round_trips(given: dict[str, Any]) -> Iterator[float]:
    for gap in given["gaps"]:
        time.sleep(gap)
        begin = time.perf_counter()
        ray.get(run.remote("nothing", [""]))
        yield time.perf_counter() - begin


def _reports(given: dict[str, Any], done: Path) -> list[TaskReport]:
    """Return the reports of all tasks. While tasks are left, count the finished ones except for the last."""
    _warm_up(given["processes"])
    payloads = [payload for payload, count in given["payloads"] for _ in range(count)]
    calls = [payloads[at : at + given["batch"]] for at in range(0, len(payloads), given["batch"])]
    longest = max(sum(map(len, call)) for call in calls)
    limit = min(PENDING, max(2 * given["processes"], PENDING_CHARACTERS // max(1, longest)))
    pending: list[Any] = []
    reports: list[TaskReport] = []
    for call in calls:
        if len(pending) >= limit:
            pending = _collect(pending, reports)
            _count(done, len(reports))
        pending.append(run.remote(given["handler"], call))
    while pending:
        pending = _collect(pending, reports)
        _count(done, min(len(reports), len(payloads) - 1))
    return reports


def _warm_up(processes: int) -> None:
    ray.get([run.remote("spin", [WARM_UP_SECONDS]) for _ in range(processes)])


def _collect(pending: list[Any], reports: list[TaskReport]) -> list[Any]:
    """Wait for at least one call, and return those that are still pending."""
    finished, rest = ray.wait(pending, num_returns=len(pending), timeout=0)
    if not finished:
        finished, rest = ray.wait(pending, num_returns=1)
    for found in ray.get(finished):
        reports.extend(found)
    return list(rest)


def _count(done: Path, number: int) -> None:
    with done.open("r+b", buffering=0) as file:  # in one write, because the suite reads it meanwhile
        file.write(struct.pack("q", number))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
