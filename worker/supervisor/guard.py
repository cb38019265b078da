"""Ends processes by force: those whose poll loop is stuck, and those that outlast a time limit."""

from __future__ import annotations

import math
import signal

import structlog

from worker.core.watch import Slow, Stuck
from worker.supervisor.slots import Life, usage_of

ABORT_GRACE = 3.0  # seconds between SIGABRT, at which a process writes the stacks of its threads, and SIGKILL

log = structlog.get_logger("supervisor")


def guard(slot: int, life: Life, now: float) -> None:
    """Look after one process; called on every turn. Main thread."""
    if life.kill_at is not None:
        if now >= life.kill_at:
            log.warning("process.killed", slot=slot, pid=life.child.pid)
            life.child.signal(signal.SIGKILL)
            life.kill_at = math.inf  # once is enough
        return
    verdict = life.watch.look(life.cell.read_stamp().turns, usage_of(life.child.pid).cpu_seconds, now)
    if isinstance(verdict, Slow):
        log.warning("process.slow", slot=slot, seconds=round(verdict.seconds))
    elif isinstance(verdict, Stuck):
        log.error("process.stuck", slot=slot, seconds=round(verdict.seconds))
        life.stuck, life.kill_at = True, now + ABORT_GRACE
        life.child.signal(signal.SIGABRT)
