"""The place of one worker process in the replica: the process that is in it now, and what is left of earlier ones."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from worker.core.gate import Sibling
from worker.core.lifecycle import State
from worker.core.restart import Ending, History
from worker.core.watch import Limits, Watch
from worker.process.cell import NO_STAMP, SIZE, Cell, Stamp
from worker.supervisor.child import Child, shared_buffer
from worker.supervisor.totals import NOTHING, Totals, add

if TYPE_CHECKING:
    from worker.process.config import ProcessConfig


class Usage(NamedTuple):
    """What a process has used of the machine: CPU seconds of all its threads, resident bytes."""

    cpu_seconds: float
    resident_bytes: int


def usage_of(pid: int) -> Usage:
    """What a process uses; zeros when it is gone."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        times = process.cpu_times()
        return Usage(times.user + times.system, process.memory_info().rss)
    return Usage(0.0, 0)


class Life:
    """One process, from its start to its end."""

    def __init__(self, config: ProcessConfig, target: str, limits: Limits) -> None:
        buffer = shared_buffer(SIZE)
        self.cell = Cell(buffer)
        self.child = Child(config.name, target, config, buffer, os.getpid())
        self.watch = Watch(limits)
        self.stuck = False
        self.joined_at: float | None = None
        self.kill_at: float | None = None  # when it is killed if it has not ended by then
        self._snapshot: dict[str, Any] = {}

    def snapshot(self) -> dict[str, Any]:
        """The last that could be read of every part of the snapshot; empty before the first. Any thread."""
        # Parts may be missing in the last one, which says why the process failed, or all of it: a process killed
        # while it wrote leaves a half-written one behind.
        snapshot = self._snapshot = {**self._snapshot, **(self.cell.read() or {})}
        return snapshot

    def observe(self, now: float) -> None:
        """Keep what would be gone with the process: its numbers, and when it was first seen in the group."""
        self.snapshot()
        if self.joined_at is None and State.JOINING <= self.cell.read_stamp().state < State.CLOSED:
            self.joined_at = now

    @property
    def useful(self) -> bool:
        """Whether the process has answered any request."""
        return self.cell.read_stamp().answered > 0

    def failure(self) -> str:
        """Why the process could not go on, in its own words; empty if it said nothing."""
        return str(self._snapshot.get("failure", {}).get("message", ""))

    def joined_for(self, now: float) -> float | None:
        """Seconds since the process was first seen in the group; None if it never was."""
        return None if self.joined_at is None else now - self.joined_at


class Reading(NamedTuple):
    """What a slot shows: the present process (``pid`` None if there is none now), and totals over all it has had."""

    slot: int
    pid: int | None
    stamp: Stamp
    usage: Usage
    snapshot: dict[str, Any]
    totals: Totals
    restarts: dict[str, int]


class Slot:
    """Belongs to the supervisor's main thread; ``read`` alone may be called from any."""

    def __init__(self, config: ProcessConfig, target: str, limits: Limits) -> None:
        self.number = config.slot
        self.max_attempts = config.max_attempts
        self.history = History()
        self.restarts: Counter[str] = Counter()  # by how the last process ended
        self.start_at = 0.0  # when the next process is due, monotonic
        self._config = config
        self._target = target
        self._limits = limits
        # One value, replaced as a whole, so that a reader never counts an ended process twice or not at all.
        self._view: tuple[Totals, Life | None] = (NOTHING, None)

    @property
    def life(self) -> Life | None:
        """The process in the slot, until its end has been seen to."""
        return self._view[1]

    def sibling(self) -> Sibling:
        """What the start gate looks at."""
        life = self.life
        if life is None or life.joined_at is None:
            return Sibling(joined=False, assigned=0)
        return Sibling(joined=True, assigned=life.cell.read_stamp().assigned)

    def start(self) -> Life:
        """Put a new process into the empty slot."""
        life = Life(self._config, self._target, self._limits)
        self._view = (self._view[0], life)
        return life

    def clear(self) -> None:
        """Take the ended process out of the slot and keep what it has counted."""
        totals, life = self._view
        if life is not None:
            self._view = (add(totals, life.snapshot()), None)

    def respawn(self, at: float, ending: Ending, history: History) -> None:
        """Let another process start in the empty slot at a time (monotonic)."""
        self.start_at = at
        self.history = history
        self.restarts[ending.name] += 1

    def read(self) -> Reading:
        """What the slot shows now. Any thread."""
        totals, life = self._view
        restarts = dict(self.restarts)
        if life is None:
            return Reading(self.number, None, NO_STAMP, Usage(0.0, 0), {}, totals, restarts)
        pid, snapshot = life.child.pid, life.snapshot()
        return Reading(
            self.number, pid, life.cell.read_stamp(), usage_of(pid), snapshot, add(totals, snapshot), restarts
        )
