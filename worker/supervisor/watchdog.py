"""The watchdog kills processes that are stuck, or that do not end when they were told to."""

from __future__ import annotations

import math
import signal
from typing import TYPE_CHECKING

import structlog

from worker.core.liveness import Slow, Stuck
from worker.supervisor.replica_status import identity
from worker.supervisor.usage import cpu_of_tree

if TYPE_CHECKING:
    from worker.supervisor.slots import ProcessHandle

ABORT_GRACE = 3.0  # seconds from SIGABRT (the process writes the stacks of its threads) to SIGKILL

log = structlog.get_logger("supervisor")


def watch(slot: int, process: ProcessHandle, now: float) -> None:
    """Check one process, on every turn. Main thread."""
    if process.kill_at is not None:
        if now >= process.kill_at:
            log.warning("process.killed", slot=slot, pid=process.pid)
            process.child.signal(signal.SIGKILL)
            process.kill_at = math.inf  # only once
        return
    turns = process.status_block.read_stamp().turns
    try:
        cpu_seconds = cpu_of_tree(process.pid)  # a handler may wait for a converter or a renderer that does the work
    except OSError:  # too many open files: an unknown time must not count as none
        return
    verdict = process.liveness.check(turns, cpu_seconds, now)
    if isinstance(verdict, Slow):
        log.warning("process.slow", slot=slot, seconds=round(verdict.seconds), **identity(process.task))
    elif isinstance(verdict, Stuck):
        log.error("process.stuck", slot=slot, seconds=round(verdict.seconds), **identity(process.task))
        process.stuck, process.kill_at = True, now + ABORT_GRACE
        process.child.signal(signal.SIGABRT)
