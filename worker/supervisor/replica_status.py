"""The replica status, which the supervisor's main thread shares with its HTTP thread."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from worker.core.lifecycle import State
from worker.core.stopping import Phase

if TYPE_CHECKING:
    from worker.supervisor.slots import Reading, Slot

Task = dict[str, Any]  # the running task, as in the snapshot of a process

LIVE_SECONDS = 15.0  # the loop runs every second, but starting many processes takes a while


class ReplicaStatus:
    """The main thread writes one field at a time. Any thread may read."""

    def __init__(self) -> None:
        self.turned = time.monotonic()  # the last turn of the main thread's loop
        self.phase = Phase.RUN
        self.slots: tuple[Slot, ...] = ()  # empty until preflight has checked the settings against the broker

    def live(self, now: float) -> bool:
        """Return whether the main thread's loop is running."""
        return now - self.turned < LIVE_SECONDS

    def readings(self) -> list[Reading]:
        """Return the current reading of every slot."""
        return [slot.read() for slot in self.slots]


def why_not_ready(phase: Phase, readings: list[Reading]) -> str | None:
    """Return None if at least one process of the replica may start tasks, otherwise the reason why none may."""
    states = [reading.stamp.state for reading in readings if reading.pid is not None]
    if phase is not Phase.RUN:
        return "draining"
    if State.RUNNING in states:
        return None
    if State.JOINING in states:
        return "joining: tasks start when all processes have joined the group"
    return "starting: no process has joined the group yet"


def describe(reading: Reading, now: float) -> dict[str, Any]:
    """Return one process as ``/tasks`` shows it, JSON-ready. ``now`` is in seconds since the epoch."""
    partitions = reading.snapshot.get("partitions", {})
    task = reading.snapshot.get("task")
    return {
        "slot": reading.slot,
        "pid": reading.pid,
        "state": State(reading.stamp.state).name.lower() if reading.pid else None,
        "protocol": reading.snapshot.get("protocol"),
        "partitions": partitions,
        "queued": sum(partition.get("queued", 0) for partition in partitions.values()),
        "task": task and _with_duration(task, now),
        "beside": [_with_duration(one, now) for one in reading.snapshot.get("beside", [])],
        "cpu_seconds": round(reading.usage.cpu_seconds, 2),
        "resident_bytes": reading.usage.resident_bytes,
        "restarts": sum(reading.restarts.values()),
    }


def _with_duration(task: Task, now: float) -> dict[str, Any]:
    since = datetime.fromtimestamp(task["started"], UTC).isoformat()
    return {**task, "since": since, "seconds": round(max(0.0, now - task["started"]), 3)}


def place(task: Task) -> str:
    """Return the origin of the task, ``topic/partition/offset``."""
    return f"{task['topic']}/{task['partition']}/{task['offset']}"


def identity(task: Task | None) -> dict[str, Any]:
    """Return the fields of a log line that identify the request of a task, as far as the snapshot has them."""
    names = ("topic", "partition", "offset", "key", "sequence", "attempt")
    return {name: task[name] for name in names if name in task} if task else {}
