"""The responses of the operations endpoints for made-up readings, and the server over a real socket."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.ports import free_port
from tests.process.observe import until
from worker.core.lifecycle import State
from worker.core.stopping import Phase
from worker.errors import SettingsError
from worker.process.status_block import Stamp
from worker.supervisor import http
from worker.supervisor.http import Endpoints, serving
from worker.supervisor.replica_status import LIVE_SECONDS, ReplicaStatus, describe, why_not_ready
from worker.supervisor.slots import Reading
from worker.supervisor.totals import NOTHING, add
from worker.supervisor.usage import Usage
from worker.vocabulary import BUCKETS, METRICS

SNAPSHOT: dict[str, Any] = {
    "state": "running",
    "protocol": "consumer",
    "counters": {"polls_total": 7, "tasks_total": {"OK": 5, "FAILED": 1}},
    "gauges": {"queued_records": 3, "busy": 1, "task_progress": {"requests/0/41": 0.5, "requests/1/7": 0.25}},
    "histograms": {"run_seconds": [1.0, 2.0, *[0.0] * (len(BUCKETS) - 2), 4.0, 99.5]},
    "partitions": {"requests[0]": {"queued": 2, "committed": 40}, "requests[4]": {"queued": 1, "committed": None}},
    "task": {"topic": "requests", "partition": 0, "offset": 41, "attempt": 1, "started": 1000.0},
}


def reading(
    slot: int = 0, state: State = State.RUNNING, snapshot: dict[str, Any] | None = None, **changes: Any
) -> Reading:
    """Return the reading of a slot with a process."""
    snapshot = SNAPSHOT if snapshot is None else snapshot
    totals = add(NOTHING, snapshot)
    one = Reading(slot, 100 + slot, Stamp(9, 0, state, 2, 100 + slot), Usage(1.5, 64_000_000), snapshot, totals, {})
    return one._replace(**changes)


def empty(slot: int = 0, **changes: Any) -> Reading:
    """Return the reading of a slot whose process has ended."""
    return reading(slot, State.NEW, {}, pid=None, stamp=Stamp(0, 0, 0, 0, 0), usage=Usage(0.0, 0), **changes)


class FakeSlot:
    """A slot with a fixed reading."""

    def __init__(self, shown: Reading) -> None:
        self.shown = shown

    def read(self) -> Reading:
        return self.shown


@pytest.fixture
def status() -> ReplicaStatus:
    status = ReplicaStatus()
    status.slots = (FakeSlot(reading(0)), FakeSlot(empty(1, restarts={"SIGKILL": 2})))  # type: ignore[assignment]
    return status


def samples(status: ReplicaStatus) -> dict[tuple[str, ...], float]:
    """Return the samples of ``/metrics``, keyed by name, slot and further label."""
    families = text_string_to_metric_families(Endpoints(status).respond("/metrics").body.decode())
    rows = [row for family in families for row in family.samples]
    return {
        (row.name, *(row.labels[name] for name in sorted(row.labels, key="slot".__ne__))): row.value for row in rows
    }


# -- live and ready


def test_a_replica_is_live_while_its_loop_turns(status: ReplicaStatus) -> None:
    endpoints = Endpoints(status)
    assert endpoints.respond("/livez").status == 200
    status.turned -= LIVE_SECONDS
    assert endpoints.respond("/livez").status == 503


def test_a_replica_is_live_but_not_ready_before_it_has_a_process() -> None:
    endpoints = Endpoints(ReplicaStatus())
    assert endpoints.respond("/livez").status == 200
    assert endpoints.respond("/readyz").status == 503


@pytest.mark.parametrize(
    ("phase", "readings", "reason"),
    [
        (Phase.RUN, [reading(0), reading(1, State.NEW)], None),
        (Phase.RUN, [reading(0, State.JOINING), reading(1, State.NEW)], "joining"),
        (Phase.RUN, [reading(0, State.NEW), empty(1)], "starting"),
        (Phase.RUN, [empty(0)], "starting"),
        (Phase.RUN, [], "starting"),
        (Phase.DRAIN, [reading(0)], "draining"),
        (Phase.CANCEL, [reading(0)], "draining"),
    ],
)
def test_a_replica_is_ready_when_a_process_may_start_tasks(
    phase: Phase, readings: list[Reading], reason: str | None
) -> None:
    said = why_not_ready(phase, readings)
    assert said is None if reason is None else said is not None and said.startswith(reason)


def test_readyz_responds_with_a_status_and_a_reason(status: ReplicaStatus) -> None:
    endpoints = Endpoints(status)
    assert endpoints.respond("/readyz").status == 200
    status.phase = Phase.DRAIN
    response = endpoints.respond("/readyz?verbose=1")
    assert response.status == 503
    assert json.loads(response.body) == {"status": "not ready", "reason": "draining"}


@pytest.mark.parametrize("target", ["/favicon.ico", "/", "", "*", "http://[/livez", "/livez/", "\x00"])
def test_other_paths_are_not_found(status: ReplicaStatus, target: str) -> None:
    response = Endpoints(status).respond(target)
    assert response.status == 404
    assert "/tasks" in json.loads(response.body)["paths"]


# -- tasks


def test_a_process_is_described_with_its_task_and_its_queues() -> None:
    assert describe(reading(3, restarts={"SIGKILL": 2, "stuck": 1}), now=1002.5) == {
        "slot": 3,
        "pid": 103,
        "state": "running",
        "protocol": "consumer",
        "partitions": SNAPSHOT["partitions"],
        "queued": 3,
        "task": {**SNAPSHOT["task"], "since": "1970-01-01T00:16:40+00:00", "seconds": 2.5},
        "beside": [],
        "cpu_seconds": 1.5,
        "resident_bytes": 64_000_000,
        "restarts": 3,
    }


def test_a_process_without_a_snapshot_is_new() -> None:
    said = describe(reading(0, State.NEW, {}), now=0.0)
    assert (said["state"], said["task"], said["queued"]) == ("new", None, 0)


def test_an_empty_slot_has_no_process() -> None:
    said = describe(empty(1), now=0.0)
    assert (said["pid"], said["state"], said["task"]) == (None, None, None)


def test_all_processes_are_listed(status: ReplicaStatus) -> None:
    processes = json.loads(Endpoints(status).respond("/tasks").body)["processes"]
    assert [process["slot"] for process in processes] == [0, 1]


# -- metrics


def test_a_snapshot_becomes_samples_by_slot(status: ReplicaStatus) -> None:
    shown = samples(status)
    assert shown["worker_polls_total", "0"] == 7
    assert shown["worker_tasks_total", "0", "OK"] == 5
    assert shown["worker_queued_records", "0"] == 3
    assert [shown["worker_task_progress", "0", task] for task in ("requests/0/41", "requests/1/7")] == [0.5, 0.25]
    assert shown["worker_state", "0"] == State.RUNNING
    assert shown["worker_assigned_partitions", "0"] == 2
    assert shown["worker_process_resident_bytes", "0"] == 64_000_000
    assert shown["worker_process_cpu_seconds", "0"] == 1.5


def test_histograms_are_cumulative(status: ReplicaStatus) -> None:
    shown = samples(status)
    assert shown["worker_run_seconds_bucket", "0", "0.001"] == 1
    assert shown["worker_run_seconds_bucket", "0", "0.005"] == 3
    assert shown["worker_run_seconds_bucket", "0", "43200.0"] == 3
    assert shown["worker_run_seconds_bucket", "0", "+Inf"] == 7
    assert shown["worker_run_seconds_count", "0"] == 7
    assert shown["worker_run_seconds_sum", "0"] == 99.5


def test_the_metrics_of_the_supervisor_are_exported(status: ReplicaStatus) -> None:
    shown = samples(status)
    assert shown["worker_processes",] == 1
    assert (shown["worker_process_up", "0"], shown["worker_process_up", "1"]) == (1, 0)
    assert shown["worker_process_restarts_total", "1", "SIGKILL"] == 2


def test_an_empty_slot_keeps_its_counters_and_has_no_gauges(status: ReplicaStatus) -> None:
    status.slots = (FakeSlot(empty(0, totals=add(NOTHING, SNAPSHOT))),)  # type: ignore[assignment]
    shown = samples(status)
    assert shown["worker_tasks_total", "0", "OK"] == 5
    assert ("worker_queued_records", "0") not in shown
    assert ("worker_process_cpu_seconds", "0") not in shown


def test_every_metric_of_the_vocabulary_is_exported(status: ReplicaStatus) -> None:
    families = text_string_to_metric_families(Endpoints(status).respond("/metrics").body.decode())
    assert {family.name for family in families} == {
        f"worker_{metric.name}".removesuffix("_total") for metric in METRICS
    }


def test_totals_add_numbers_labels_and_histograms() -> None:
    first = add(NOTHING, {"counters": {"a": 1, "b": {"x": 1}}, "histograms": {"h": [1, 0, 0.5]}})
    both = add(first, {"counters": {"a": 2, "b": {"x": 1, "y": 1}, "c": 1}, "histograms": {"h": [1, 1, 0.5]}})
    assert both["counters"] == {"a": 3, "b": {"x": 2, "y": 1}, "c": 1}
    assert both["histograms"] == {"h": [2, 1, 1.0]}
    assert first["counters"] == {"a": 1, "b": {"x": 1}}  # unchanged, because a reader may use it
    assert add(both, {}) == both


# -- the server


def test_the_server_responds_and_survives_malformed_requests(status: ReplicaStatus) -> None:
    with serving(status, free_port()) as port:
        assert b"400" in _send(port, b"\x00\xff nonsense")
        assert _send(port, b"POST /livez HTTP/1.0").startswith(b"HTTP/1.0 501 ")
        assert _send(port, b"GET /%zz[ HTTP/1.1").startswith(b"HTTP/1.0 404 ")
        get, head = _send(port, b"GET /livez HTTP/1.0"), _send(port, b"HEAD /livez HTTP/1.0")
        assert get.startswith(b"HTTP/1.0 200 ")
        assert get.endswith(b'\r\n\r\n{"status": "live"}\n')
        assert head.endswith(b"Content-Length: 19\r\n\r\n")


def test_silent_connections_do_not_use_up_the_descriptors(
    status: ReplicaStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor needs them to start processes. Connections beyond the limit are closed."""
    monkeypatch.setattr(http, "MOST_THREADS", threading.active_count() + 11)  # one of them accepts connections
    with serving(status, free_port()) as port, contextlib.ExitStack() as silent:
        for _ in range(10):
            silent.enter_context(socket.create_connection(("127.0.0.1", port)))
        refused = silent.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
        assert refused.recv(1) == b""
        silent.close()
        until(lambda: b"200" in _send(port, b"GET /livez HTTP/1.0"))


def test_a_port_in_use_is_a_settings_error(status: ReplicaStatus) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=f"WORKER_HTTP_PORT={port} cannot be used"), serving(status, port):
            pass


def test_port_0_turns_the_server_off(status: ReplicaStatus) -> None:
    with serving(status, 0) as port:
        assert port == 0


def _send(port: int, line: bytes) -> bytes:
    """Send a request of one line, and return the whole response."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection, connection.makefile("rb") as answer:
        connection.sendall(line + b"\r\n\r\n")
        return answer.read()
