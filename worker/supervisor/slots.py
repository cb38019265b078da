"""Slots: each holds one worker process of the replica and the totals of the earlier ones."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from worker.core.lifecycle import State
from worker.core.liveness import Limits, LivenessCheck
from worker.core.restart import Ending, History
from worker.core.startup_barrier import PeerProcess
from worker.errors import ended_by_handler
from worker.process.crash_reports import task_of
from worker.process.status_block import NO_STAMP, SIZE, Activity, Stamp, StatusBlock
from worker.supervisor.child import Child, shared_buffer
from worker.supervisor.totals import NOTHING, Totals, add
from worker.supervisor.usage import Usage, usage_of

if TYPE_CHECKING:
    from worker.process.config import ProcessConfig
    from worker.process.status_block import Start


_SHOWN_SECONDS = 1.0  # after this time a running main loop has shown a task


class ProcessHandle:
    """One worker process, from its start to its end."""

    def __init__(self, config: ProcessConfig, target: str, limits: Limits) -> None:
        buffer = shared_buffer(SIZE)
        self.status_block = StatusBlock(buffer)
        self.child = Child(config.name, target, config, buffer)
        self.liveness = LivenessCheck(limits)
        self.stuck = False
        self.joined_at: float | None = None
        self.kill_at: float | None = None  # when the watchdog kills the process (monotonic)
        self._handler = config.handler
        self._topics = config.request_topics
        self._start_delay = _SHOWN_SECONDS
        self._snapshot: dict[str, Any] = {}

    @property
    def pid(self) -> int:
        return self.child.pid

    def snapshot(self) -> dict[str, Any]:
        """Return the last readable value of every part of the snapshot; empty before the first. Any thread."""
        # The last snapshot may be incomplete: that of a failed process has only the reason, and a process that was
        # killed while it wrote leaves nothing readable. A part that did not fit into it is null.
        parts = {**self._snapshot, **(self.status_block.read() or {})}
        return self._with_start({name: part for name, part in parts.items() if part is not None})

    @property
    def last_start(self) -> Start:
        """Return the last start of the executor. Its activity is unknown if C code may have overwritten it."""
        start = self.status_block.read_start()
        return start if start.topic < len(self._topics) else start._replace(activity=Activity.UNKNOWN)

    def _with_start(self, snapshot: dict[str, Any]) -> dict[str, Any]:
        """Return the snapshot with the task that the executor has recorded, if the main loop has not shown it.

        The main loop cannot show it while the handler holds the interpreter lock, or after it has crashed the process.
        """
        start = self.last_start
        if start.activity is Activity.IDLE and not self._start_delay:
            return {**snapshot, "task": None}
        if start.activity is not Activity.RUNNING or abs(time.time() - start.at_ns / 1e9) < self._start_delay:
            return snapshot  # a start in the future shows that the clock was set back
        task = task_of(start, self._topics, self.child.pid)
        shown = snapshot.get("task")
        if shown and all(shown.get(name) == task[name] for name in ("topic", "partition", "offset", "attempt")):
            return snapshot
        return {**snapshot, "task": task, "gauges": {**snapshot.get("gauges", {}), "busy": 1}}

    def ended(self, status: int) -> int:
        """Record that the process is dead, so its last task is certain, however short it was.

        Return its status. If the handler has ended it while it was loaded, return the exit code for that.
        """
        self._start_delay = 0.0
        snapshot = self._snapshot = self.snapshot()
        # The main loop turns only after the handler is loaded. Snapshots cannot show when that was: the supervisor
        # misses those that are soon replaced, and keeps the parts of earlier ones.
        loaded = self.status_block.read_stamp().turns > 0
        if status < 0 or loaded or not snapshot.get("loading") or "failure" in snapshot:
            return status
        error = ended_by_handler(self._handler, status)
        self._snapshot = {**snapshot, "failure": {"code": int(error.exit_code), "message": str(error)}}
        return error.exit_code

    def observe(self, now: float) -> None:
        """Keep what would be lost with the process: its snapshot, and when it was first seen in the group."""
        self._snapshot = self.snapshot()
        if self.joined_at is None and self.status_block.read_stamp().state >= State.JOINING:
            self.joined_at = now

    @property
    def useful(self) -> bool:
        """Return whether the process has answered any request."""
        return self.status_block.read_stamp().answered > 0

    def failure(self) -> str:
        """Return the process's own reason why it could not continue; empty if it gave none."""
        return str(self._snapshot.get("failure", {}).get("message", ""))

    @property
    def task(self) -> dict[str, Any] | None:
        """Return the running task of the last snapshot, as ``/tasks`` shows it; None if there was none."""
        return self._snapshot.get("task")

    def joined_for(self, now: float) -> float | None:
        """Return the seconds since the process was first seen in the group; None if it never was."""
        return None if self.joined_at is None else now - self.joined_at


class Reading(NamedTuple):
    """A slot at one moment: its process (``pid`` None if there is none) and the totals over all of its processes."""

    slot: int
    pid: int | None
    stamp: Stamp
    usage: Usage
    snapshot: dict[str, Any]
    totals: Totals
    restarts: dict[str, int]


class Slot:
    """The place of one worker process. Only the supervisor's main thread uses it; any thread may call ``read``."""

    def __init__(self, config: ProcessConfig, target: str, limits: Limits) -> None:
        self.number = config.slot
        self.max_attempts = config.max_attempts
        self.history = History()
        self.restarts: Counter[str] = Counter()  # by how the last process ended
        self.start_at = 0.0  # when the next process is due, monotonic
        self.config = config
        self._target = target
        self._limits = limits
        # One value, replaced as a whole, so that a reader counts an ended process exactly once.
        self._view: tuple[Totals, ProcessHandle | None] = (NOTHING, None)

    @property
    def process(self) -> ProcessHandle | None:
        """Return the process in the slot, until the supervisor has handled its end."""
        return self._view[1]

    def peer(self) -> PeerProcess:
        """Return the state of the slot for the startup barrier."""
        process = self.process
        if process is None or process.joined_at is None:
            return PeerProcess(joined=False, assigned=0)
        return PeerProcess(joined=True, assigned=process.status_block.read_stamp().assigned)

    def start(self) -> ProcessHandle:
        """Start a process in the empty slot. Raise OSError if the kernel refuses another process."""
        process = ProcessHandle(self.config, self._target, self._limits)
        self._view = (self._view[0], process)
        return process

    def clear(self) -> None:
        """Take the ended process out of the slot and keep its totals."""
        totals, process = self._view
        if process is not None:
            self._view = (add(totals, process.snapshot()), None)

    def respawn(self, at: float, ending: Ending, history: History) -> None:
        """Let another process start in the empty slot at ``at`` (monotonic)."""
        self.start_at = at
        self.history = history
        self.restarts[ending.name] += 1

    def read(self) -> Reading:
        """Return the current reading. Any thread."""
        totals, process = self._view
        restarts = dict(self.restarts)
        if process is None:
            return Reading(self.number, None, NO_STAMP, Usage(0.0, 0), {}, totals, restarts)
        stamp, usage, snapshot = process.status_block.read_stamp(), usage_of(process.pid), process.snapshot()
        return Reading(self.number, process.pid, stamp, usage, snapshot, add(totals, snapshot), restarts)
