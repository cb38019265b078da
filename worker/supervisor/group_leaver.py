"""Removes crashed worker processes from their group, so that their partitions move at once."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from worker.core.deadline import Deadline
from worker.core.lifecycle import State
from worker.supervisor.child import Child

if TYPE_CHECKING:
    from worker.process.config import ProcessConfig
    from worker.supervisor.slots import ProcessHandle

LIMIT = 25.0  # seconds that a stopping replica waits for these processes; see LIMIT and MARGIN in worker.kafka.leave
TARGET = "worker.kafka.leave:run"  # in a separate process: the supervisor has no connection to the broker


class GroupLeaver:
    """Starts a short-lived process for every worker process that ended without leaving its group. Main thread."""

    def __init__(self) -> None:
        self._children: list[Child] = []
        self._limit = Deadline()

    def process_ended(self, config: ProcessConfig, process: ProcessHandle, now: float) -> None:
        """Remove a crashed member from the group. Call this only after the process is reaped."""
        snapshot: dict[str, Any] = process.snapshot()
        member, protocol = snapshot.get("member"), snapshot.get("protocol")
        if not member or protocol not in config.consumer_properties:
            return
        if process.status_block.read_stamp().state >= State.CLOSED:
            return
        properties = config.consumer_properties[protocol]
        instance = properties.get("group.instance.id")
        self._children.append(
            Child(
                f"leave-{config.slot}",
                TARGET,
                properties,
                config.group,
                protocol,
                member,
                instance,
                config.log_level,
                config.log_format,
            )
        )

        self._limit = Deadline.after(LIMIT, now)

    def is_busy(self, now: float) -> bool:
        """Return whether a stopping replica has to wait for these processes."""
        return bool(self.pids) and not self._limit.passed(now)

    @property
    def pids(self) -> list[int]:
        """Return the processes that have not ended yet."""
        self._children = [child for child in self._children if child.ended() is None]
        return [child.pid for child in self._children]

    def close(self) -> None:
        """Kill the remaining processes."""
        for child in self._children:
            child.signal(signal.SIGKILL)
