"""What the supervisor shows to the outside: the one thing its main thread and the HTTP thread share."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from worker.core.lifecycle import State
from worker.core.stopping import Phase

if TYPE_CHECKING:
    from worker.supervisor.slots import Reading, Slot

LIVE_SECONDS = 15.0  # the loop turns every second, but starting many processes takes a while


class Board:
    """Written by the main thread, a field at a time; read by any."""

    def __init__(self) -> None:
        self.turned = time.monotonic()  # the last turn of the main thread's loop
        self.phase = Phase.RUN
        self.slots: tuple[Slot, ...] = ()  # empty until the settings have been checked against the broker

    def live(self, now: float) -> bool:
        """Whether the main thread's loop turns."""
        return now - self.turned < LIVE_SECONDS

    def readings(self) -> list[Reading]:
        """What every slot shows."""
        return [slot.read() for slot in self.slots]


def why_not_ready(phase: Phase, readings: list[Reading]) -> str | None:
    """None if the replica takes tasks: at least one of its processes may start some. Else the reason it does not."""
    states = [reading.stamp.state for reading in readings if reading.pid is not None]
    if phase is not Phase.RUN:
        return "draining"
    if State.RUNNING in states:
        return None
    if State.JOINING in states:
        return "joining: tasks start when all processes have joined the group"
    return "starting: no process has joined the group yet"


def describe(reading: Reading, now: float) -> dict[str, Any]:
    """One process as ``/tasks`` shows it, JSON-ready; ``now`` in seconds since the epoch."""
    partitions = reading.snapshot.get("partitions", {})
    task = reading.snapshot.get("task")
    return {
        "slot": reading.slot,
        "pid": reading.pid,
        "state": State(reading.stamp.state).name.lower() if reading.pid else None,
        "protocol": reading.snapshot.get("protocol"),
        "partitions": partitions,
        "queued": sum(partition.get("queued", 0) for partition in partitions.values()),
        "task": task and _timed(task, now),
        "cpu_seconds": round(reading.usage.cpu_seconds, 2),
        "resident_bytes": reading.usage.resident_bytes,
        "restarts": sum(reading.restarts.values()),
    }


def _timed(task: dict[str, Any], now: float) -> dict[str, Any]:
    since = datetime.fromtimestamp(task["started"], UTC).isoformat()
    return {**task, "since": since, "seconds": round(max(0.0, now - task["started"]), 3)}
