"""Events in the logs of replicas."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from chaos import log_events

if TYPE_CHECKING:
    from pathlib import Path


NOW = datetime(2026, 1, 1, 10, 20, tzinfo=UTC).timestamp()


def line(second: int, event: str, process: str = "r0-1", **more: Any) -> str:
    return json.dumps({"timestamp": f"2026-01-01T10:00:{second:02}.5Z", "event": event, "process": process, **more})


def logs_of(folder: Path, *lines: str) -> list[Path]:
    log = folder / "r0-0.log"
    log.write_text("\n".join(lines))
    return [log]


def test_requests_that_were_reported_as_lost_are_read_from_the_log(tmp_path: Path) -> None:
    lost = line(1, log_events.TASKS_LOST, partition="requests[3]", offsets=["4-5", "9-9"])
    assert log_events.lost(logs_of(tmp_path, "Traceback", lost)) == {(3, 4), (3, 5), (3, 9)}


def test_abandoned_clients_are_counted_by_process(tmp_path: Path) -> None:
    name = log_events.TRANSACTION_HUNG
    hung = [line(1, name), line(2, name), line(3, name, "r0-0")]
    assert log_events.hung_clients(logs_of(tmp_path, *hung)) == 2
    assert log_events.hung_clients(logs_of(tmp_path, line(1, log_events.PROCESS_STARTED))) == 0


def test_a_hold_ends_with_the_next_rebalance_and_cut_off_lines_are_ignored(tmp_path: Path) -> None:
    lines = [
        line(1, log_events.HOLDING, partitions=["t[1]", "t[2]"]),
        line(2, log_events.ASSIGNED, "r0-0", partitions=["t[3]"]),
        line(8, "partitions.lost", partitions=["t[1]"]),
        line(9, "partitions.revoked", partitions=["t[4]"]),
        line(10, log_events.HOLDING, partitions=["t[5]"])[:-9],
    ]
    assert log_events.holds(logs_of(tmp_path, *lines), NOW) == [("r0-1", 7.0)]


def test_a_partition_that_another_process_has_is_not_held(tmp_path: Path) -> None:
    """A process that gives a partition back in order may log nothing more for long."""
    lines = [
        line(3, log_events.ASSIGNED, "r1-0", partitions=["t[2]"]),
        line(1, log_events.HOLDING, partitions=["t[1]", "t[2]"]),
        line(50, "partitions.revoked", partitions=["t[4]"]),
    ]
    assert log_events.holds(logs_of(tmp_path, *lines), NOW) == [("r0-1", 2.0)]


def test_a_hold_is_measured_although_the_clock_jumps(tmp_path: Path) -> None:
    begin = line(1, log_events.HOLDING, partitions=["t[1]"])
    for hour in ("07", "10", "13"):  # a clock that is three hours behind, right, or three hours ahead
        end = line(8, "partitions.lost", partitions=["t[1]"]).replace("T10", f"T{hour}")
        assert log_events.holds(logs_of(tmp_path, begin, end), NOW) == [("r0-1", 7.0)]


def test_processes_and_their_assignments_are_read_from_the_log(tmp_path: Path) -> None:
    started = line(1, log_events.PROCESS_STARTED, pid=77)
    (log,) = logs_of(tmp_path, line(0, log_events.SUPERVISOR_STARTED), started, line(2, log_events.ASSIGNED, "r0-0"))
    assert log_events.supervising(log)
    assert log_events.worker_pids(log) == {77}
    assert log_events.assigned_processes(log) == {"r0-0"}


def test_the_suite_reads_only_events_that_the_worker_logs() -> None:
    """If an event were renamed, the suite would wait for it in vain, or see no losses."""
    from worker.vocabulary import EVENTS  # noqa: PLC0415 - the only test that imports the worker

    names = {
        *log_events.REBALANCES,
        *(log_events.SUPERVISOR_STARTED, log_events.PROCESS_STARTED),
        *(log_events.TASKS_LOST, log_events.TRANSACTION_HUNG),
    }
    assert names <= EVENTS.keys()
