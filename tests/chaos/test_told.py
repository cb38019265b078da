"""What replicas say of themselves is read out of their logs."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from chaos import told
from chaos.fleet import Replica

if TYPE_CHECKING:
    from pathlib import Path


def line(second: int, event: str, process: str = "r0-1", **more: Any) -> str:
    return json.dumps({"timestamp": f"2026-01-01T10:00:{second:02}.5Z", "event": event, "process": process, **more})


def fleet_of(folder: Path, *lines: str) -> Any:
    replica = Replica.__new__(Replica)
    replica.log = folder / "r0-0.log"
    replica.log.write_text("\n".join(lines))
    return SimpleNamespace(all=[replica])


def test_requests_that_were_called_lost(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path, "Traceback", line(1, "tasks.lost", partition="requests[3]", offsets=["4-5", "9-9"]))
    assert told.lost(fleet) == {(3, 4), (3, 5), (3, 9)}


def test_clients_left_behind_are_counted_by_process(tmp_path: Path) -> None:
    hung = [line(1, "transaction.hung"), line(2, "transaction.hung"), line(3, "transaction.hung", "r0-0")]
    assert told.hung(fleet_of(tmp_path, *hung)) == 2
    assert told.hung(fleet_of(tmp_path, line(1, "process.started"))) == 0


def test_how_long_partitions_were_held_and_a_line_that_is_cut_off(tmp_path: Path) -> None:
    lines = [
        line(1, "partitions.holding", partitions=["t[1]", "t[2]"]),
        line(2, "partitions.assigned", "r0-0", partitions=["t[3]"]),
        line(8, "partitions.lost", partitions=["t[1]"]),
        line(9, "partitions.revoked", partitions=["t[4]"]),
        line(10, "partitions.holding", partitions=["t[5]"])[:-9],
    ]
    assert told.holds(fleet_of(tmp_path, *lines)) == [("r0-1", 7.0)]


def test_a_partition_that_another_has_is_not_held(tmp_path: Path) -> None:
    """Whoever gives one back in peace may have nothing more to say for long."""
    lines = [
        line(3, "partitions.assigned", "r1-0", partitions=["t[2]"]),
        line(1, "partitions.holding", partitions=["t[1]", "t[2]"]),
        line(50, "partitions.revoked", partitions=["t[4]"]),
    ]
    assert told.holds(fleet_of(tmp_path, *lines)) == [("r0-1", 2.0)]
