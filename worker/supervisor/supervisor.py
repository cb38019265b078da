"""The loop over a replica's processes: take signals, reap, guard, steer, wait.

It stops in this order: every process is told to drain, and finishes what runs; when a time limit has passed or a
second signal has come, they are told to cancel it; what has not ended a while later is killed.
"""

from __future__ import annotations

import math
import random
import signal
import time
from typing import TYPE_CHECKING, NamedTuple

import structlog

from worker.core.gate import Gate
from worker.core.restart import Ending, Halt, classify, decide
from worker.core.stopping import Phase, Stopping
from worker.core.watch import Limits
from worker.errors import ExitCode
from worker.logs import complain
from worker.process.cell import Command
from worker.supervisor.cgroup import oom_kills
from worker.supervisor.child import reap_strangers
from worker.supervisor.guard import guard
from worker.supervisor.slots import Life, Slot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from worker.process.config import ProcessConfig
    from worker.supervisor.board import Board
    from worker.supervisor.signals import Signals

BUSY_TICK = 0.2  # seconds between turns while processes start or stop
CALM_TICK = 1.0

log = structlog.get_logger("supervisor")


class Plan(NamedTuple):
    """What a replica consists of. Durations are seconds."""

    configs: Sequence[ProcessConfig]  # one per process
    partitions: int  # of all request topics together
    drain_timeout: float  # 0: no limit
    leave_grace: float = 10.0  # for a process that has no task, or has cancelled it, to leave the group and end
    limits: Limits = Limits()
    target: str = "worker.process.main:run"  # called with a config, its cell's buffer and the supervisor's pid


class Supervisor:
    """Runs a replica to its end. Everything here happens on the main thread."""

    def __init__(self, plan: Plan, signals: Signals, board: Board) -> None:
        self._plan = plan
        self._signals = signals
        self._board = board
        self._slots = tuple(Slot(config, plan.target, plan.limits) for config in plan.configs)
        self._gate = Gate(plan.partitions)
        self._stopping = Stopping(plan.drain_timeout)
        self._oom_kills = oom_kills()
        self._started = False  # whether any process ever joined the group
        board.slots = self._slots

    def run(self) -> ExitCode:
        """Work until told to stop, or until there is no sense in going on; returns how it ended."""
        config = self._plan.configs[0]
        log.info("supervisor.started", processes=len(self._slots), group=config.group, topics=config.request_topics)
        try:
            self._turn(time.monotonic())
            while self._board.phase is Phase.RUN or any(self._lives()):
                self._signals.wait(self._tick())
                self._turn(time.monotonic())
        finally:
            # After an exception only: the interpreter would wait for them at its exit.
            for _, life in self._lives():
                life.child.signal(signal.SIGKILL)
        log.info("supervisor.stopped", exit_code=int(self._stopping.exit_code))
        return self._stopping.exit_code

    def _turn(self, now: float) -> None:
        self._board.turned = now
        self._take_signals(now)
        self._reap(now)
        for slot, life in self._lives():
            guard(slot.number, life, now)
        self._steer(now)

    def _tick(self) -> float:
        """Seconds until the next turn, unless a signal comes before; the end of a process is one."""
        if self._board.phase is not Phase.RUN:
            return BUSY_TICK
        due = min((slot.start_at for slot in self._slots if slot.life is None), default=math.inf)
        killing = any(life.kill_at is not None for _, life in self._lives())
        calm = self._gate.open and due == math.inf and not killing
        return CALM_TICK if calm else max(0.0, min(BUSY_TICK, due - time.monotonic()))

    def _lives(self) -> Iterator[tuple[Slot, Life]]:
        return ((slot, slot.life) for slot in self._slots if slot.life is not None)

    def _take_signals(self, now: float) -> None:
        for number in self._signals.take():
            log.info("supervisor.signal", signal=number.name)
            # SIGHUP comes more than once when a terminal closes: never a reason to give tasks up.
            if self._stopping.phase is Phase.RUN or number is signal.SIGHUP:
                self._stopping.drain(now)
            else:
                self._stopping.cancel()

    # -- ends of processes

    def _reap(self, now: float) -> None:
        for _, life in self._lives():
            life.observe(now)
            self._started = self._started or life.joined_at is not None
        for slot, life in self._lives():
            status = life.child.ended()
            if status is not None:
                self._bury(slot, life, status, now)
        for pid, status in reap_strangers([life.child.pid for _, life in self._lives()]):
            log.info("stranger.reaped", pid=pid, status=status)

    def _bury(self, slot: Slot, life: Life, status: int, now: float) -> None:
        """Take an ended process out of its slot and see to what follows."""
        before, self._oom_kills = self._oom_kills, oom_kills()
        ending = classify(status, out_of_memory=self._oom_kills > before, stuck=life.stuck)
        phase = self._stopping.phase
        report = log.info if status == 0 and phase is not Phase.RUN else log.warning
        report("process.ended", slot=slot.number, pid=life.child.pid, ending=ending.name)
        slot.clear()
        if phase is Phase.RUN:
            self._replace(slot, ending, now, life)
            return
        killed = ending.code is None and life.joined_at is not None and (phase is Phase.CANCEL or life.stuck)
        if killed or ending.code == ExitCode.DRAIN_TIMED_OUT:
            self._stopping.lost_tasks()

    def _replace(self, slot: Slot, ending: Ending, now: float, life: Life | None = None) -> None:
        """Plan another process for the empty slot, or begin to stop and say why. No life: it could not be started."""
        decision = decide(
            ending,
            life.joined_for(now) if life else None,
            slot.history,
            started=self._started,
            useful=life is not None and life.useful,
            jitter=random.random(),  # noqa: S311 - not for secrets
            max_attempts=slot.max_attempts,
        )
        if isinstance(decision, Halt):
            self._halt(decision, life.failure() if life else "", now)
            return
        slot.respawn(now + decision.after, ending, decision.history)
        log.info("process.restarting", slot=slot.number, after=round(decision.after, 3))

    def _halt(self, halt: Halt, failure: str, now: float) -> None:
        """Begin to stop, and say why: once, though others will soon have ended for the same reason."""
        self._stopping.halt(halt.exit_code, now)
        if halt.exit_code is ExitCode.CRASH_LOOP:
            log.error("process.crash_loop", reason=halt.reason)
            complain(f"processes keep crashing: {halt.reason}; look for process.ended in the log")
        else:
            complain(failure or halt.reason)

    # -- orders

    def _steer(self, now: float) -> None:
        phase = self._stopping.update(now)
        if phase is not self._board.phase:
            self._enter(phase, now)
        if phase is Phase.RUN:
            self._fill(now)
            self._gate.update([slot.sibling() for slot in self._slots], now)
        order = self._order(phase)
        for _, life in self._lives():
            life.cell.order(order)

    def _fill(self, now: float) -> None:
        """Start the processes that are due."""
        for slot in self._slots:
            if slot.life is None and now >= slot.start_at and self._stopping.phase is Phase.RUN:
                try:
                    log.info("process.started", slot=slot.number, pid=slot.start().child.pid)
                except OSError as error:  # no memory or process number to be had just now
                    log.warning("process.unstartable", slot=slot.number, reason=str(error))
                    self._replace(slot, Ending("unstartable"), now)

    def _order(self, phase: Phase) -> Command:
        if phase is Phase.RUN:
            return Command.START_TASKS if self._gate.open else Command.NONE
        return Command.DRAIN if phase is Phase.DRAIN else Command.DRAIN | Command.CANCEL

    def _enter(self, phase: Phase, now: float) -> None:
        """Note a new phase, and how long processes have from now on that have nothing to wait for."""
        self._board.phase = phase
        log.info("supervisor.draining" if phase is Phase.DRAIN else "supervisor.cancelling")
        for _, life in self._lives():
            if phase is Phase.CANCEL or life.joined_at is None:
                life.kill_at = now + self._plan.leave_grace
