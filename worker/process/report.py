"""The snapshot of itself that a worker process shows in its cell, for /metrics and /tasks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from worker.core.assignment import Assignment
    from worker.core.lifecycle import State
    from worker.core.model import Task
    from worker.metrics import Metrics
    from worker.process.cell import Cell

PERIOD = 0.5  # seconds between snapshots


class Report:
    """Builds and publishes snapshots. Poll thread."""

    def __init__(self, cell: Cell, metrics: Metrics, assignment: Assignment) -> None:
        self._cell = cell
        self._metrics = metrics
        self._assignment = assignment
        self._due_at = 0.0

    def due(self, now: float) -> bool:
        """Whether the last snapshot is old."""
        return now >= self._due_at

    def publish(
        self, now: float, state: State, *, running: tuple[Task, float] | None, unconfirmed: int, protocol: str
    ) -> None:
        """Show how things stand."""
        self._due_at = now + PERIOD
        lanes = self._assignment.lanes.values()
        self._metrics.set("state", state)
        self._metrics.set("assigned_partitions", len(lanes))
        self._metrics.set("queued_records", self._assignment.queued)
        self._metrics.set("queued_bytes", self._assignment.queued_bytes)
        self._metrics.set("unconfirmed_answers", unconfirmed)
        self._metrics.set("busy", 0 if running is None else 1)
        self._metrics.set("paused", int(any(lane.paused for lane in lanes)))
        self._cell.publish(
            {
                "state": state.name.lower(),
                "protocol": protocol,
                **self._metrics.snapshot(),
                "partitions": {
                    str(lane.partition): {
                        "queued": len(lane.queue),
                        "committed": lane.confirmed[0] if lane.confirmed else None,
                    }
                    for lane in lanes
                },
                "task": None if running is None else _task(*running),
            }
        )


def _task(task: Task, seconds: float) -> dict[str, Any]:
    partition = task.record.partition
    return {
        "topic": partition.topic,
        "partition": partition.number,
        "offset": task.record.offset,
        "attempt": task.attempt,
        "started": round(time.time() - seconds, 3),
    }
