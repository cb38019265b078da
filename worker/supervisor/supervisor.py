"""The supervisor's loop over the worker processes of a replica: signals, ended processes, watchdog, commands.

A replica stops in three steps. First every process drains: running tasks finish. After a time limit or a second signal,
running tasks are cancelled. A process that still has not ended a while later is killed.
"""

from __future__ import annotations

import math
import random
import signal
import time
from typing import TYPE_CHECKING, NamedTuple

import structlog

from worker.core.liveness import Limits
from worker.core.restart import Ending, Halt, classify, decide
from worker.core.startup_barrier import StartupBarrier
from worker.core.stopping import Phase, Stopping
from worker.errors import ExitCode
from worker.logs import echo, print_error
from worker.process.status_block import Command
from worker.supervisor.cgroup import OomKills
from worker.supervisor.child import reap_orphans
from worker.supervisor.crashes import Crashes
from worker.supervisor.drain_notice import DrainNotice
from worker.supervisor.group_leaver import GroupLeaver
from worker.supervisor.replica_status import identity, place
from worker.supervisor.slots import ProcessHandle, Slot
from worker.supervisor.state_reader import StateReader
from worker.supervisor.watchdog import watch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from worker.process.config import ProcessConfig
    from worker.state.config import ReaderConfig
    from worker.supervisor.replica_status import ReplicaStatus
    from worker.supervisor.signals import Signals

BUSY_TICK = 0.2  # seconds between turns while processes start or stop
IDLE_TICK = 1.0

log = structlog.get_logger("supervisor")


class Plan(NamedTuple):
    """The configuration of a replica. Durations are in seconds."""

    configs: Sequence[ProcessConfig]  # one per process
    partitions: int  # of all request topics
    drain_timeout: float  # 0: no limit
    leave_grace: float = 10.0  # how long a process without a running task may take to leave the group and end
    limits: Limits = Limits()
    state_reader: ReaderConfig | None = None  # of the replica's reader of the state topic
    interactive: bool = False  # a person is watching stderr on a terminal
    target: str = "worker.process.main:run"  # called with a config and the buffer of its status block


class Supervisor:
    """Runs a replica to its end. Everything here happens on the main thread."""

    def __init__(self, plan: Plan, signals: Signals, status: ReplicaStatus) -> None:
        self._plan = plan
        self._signals = signals
        self._status = status
        self._slots = tuple(Slot(config, plan.target, plan.limits) for config in plan.configs)
        self._barrier = StartupBarrier(plan.partitions)
        self._stopping = Stopping(plan.drain_timeout)
        self._signalled = False  # by SIGTERM or SIGINT; the replica may drain by itself before
        self._notice = DrainNotice()
        self._leaver = GroupLeaver()
        self._crashes = Crashes()
        self._state_reader = StateReader(plan.state_reader)
        self._oom_kills = OomKills()
        status.slots = self._slots

    def run(self) -> ExitCode:
        """Run until a signal stops the replica or it cannot continue. Return the exit code."""
        config = self._plan.configs[0]
        log.info("supervisor.started", processes=len(self._slots), group=config.group, topics=config.request_topics)
        try:
            self._turn(time.monotonic())
            while self._status.phase is Phase.RUN or any(self._processes()) or self._leaver.is_busy(time.monotonic()):
                self._signals.wait(self._tick())
                self._turn(time.monotonic())
        except Exception:
            log.exception("supervisor.failed")
            raise
        finally:
            # Only after an exception: the interpreter would wait for the processes when it exits.
            for _, process in self._processes():
                process.child.kill()
            self._leaver.close()
            self._state_reader.close()
        log.info("supervisor.stopped", exit_code=int(self._stopping.exit_code))
        return self._stopping.exit_code

    def _turn(self, now: float) -> None:
        self._status.turned = now
        self._take_signals(now)
        self._reap(now)
        for slot, process in self._processes():
            watch(slot.number, process, now)
        self._steer(now)

    def _tick(self) -> float:
        """Return the seconds until the next turn. A signal, including that of an ended process, ends the wait early."""
        if self._status.phase is not Phase.RUN:
            return BUSY_TICK
        due = min((slot.start_at for slot in self._slots if slot.process is None), default=math.inf)
        killing = any(process.kill_at is not None for _, process in self._processes())
        idle = self._barrier.open and due == math.inf and not killing
        return IDLE_TICK if idle else max(0.0, min(BUSY_TICK, due - time.monotonic()))

    def _processes(self) -> Iterator[tuple[Slot, ProcessHandle]]:
        return ((slot, slot.process) for slot in self._slots if slot.process is not None)

    def _take_signals(self, now: float) -> None:
        for number in self._signals.take():
            log.info("supervisor.signal", signal=number.name)
            if self._signalled and number is not signal.SIGHUP:
                self._stopping.cancel()
            else:
                self._stopping.drain(now)
            # A terminal that closes sends several SIGHUPs, and systemd sends one beside SIGTERM. They cancel nothing.
            self._signalled = self._signalled or number is not signal.SIGHUP

    # -- ended processes

    def _reap(self, now: float) -> None:
        self._oom_kills.look(now)
        for _, process in self._processes():
            process.observe(now)
        for slot, process in self._processes():
            status = process.child.ended()
            if status is not None:
                self._ended(slot, process, status, now)
        self._state_reader.look(now)
        known = [*self._leaver.pids, *self._state_reader.pids, *(process.pid for _, process in self._processes())]
        for pid, status in reap_orphans(known):
            log.info("orphan.reaped", pid=pid, status=status)

    def _ended(self, slot: Slot, process: ProcessHandle, status: int, now: float) -> None:
        """Take an ended process out of its slot and decide what to do next."""
        status = process.ended(status)
        self._oom_kills.look(now)
        ending = classify(status, out_of_memory=self._oom_kills.take(now), stuck=process.stuck)
        phase = self._stopping.phase
        report = log.info if status == 0 and phase is not Phase.RUN else log.warning
        report("process.ended", slot=slot.number, pid=process.pid, ending=ending.name, **identity(process.task))
        self._crashes.process_ended(slot.config, process)
        self._crashes.tell(other for _, other in self._processes())
        try:
            self._leaver.process_ended(slot.config, process, now)
        except OSError as error:  # out of memory or process numbers: the session time-out removes the member
            log.warning("membership.leave_failed", member="", reason=str(error))
        slot.clear()
        if phase is Phase.RUN:
            self._replace(slot, ending, now, process)
            return
        killed = ending.code is None and process.joined_at is not None and (phase is Phase.CANCEL or process.stuck)
        if killed or ending.code == ExitCode.DRAIN_TIMED_OUT:
            self._stopping.lost_tasks()
        elif ending.code != ExitCode.DRAINED and process.task:
            self._stopping.lost_tasks()
            print_error(
                f"a process ended during the drain ({ending.name}) and did not finish {place(process.task)}: "
                "look for process.ended in the log"
            )

    def _replace(self, slot: Slot, ending: Ending, now: float, process: ProcessHandle | None = None) -> None:
        """Schedule another process for the empty slot, or stop the replica. ``process`` None: it did not start."""
        failure = process.failure() if process else ""
        decision = decide(
            ending,
            process.joined_for(now) if process else None,
            slot.history,
            explained=bool(failure),
            useful=process is not None and process.useful,
            jitter=random.random(),  # noqa: S311 - not for secrets
            max_attempts=slot.max_attempts,
        )
        if isinstance(decision, Halt):
            self._halt(decision, failure, now)
            return
        slot.respawn(now + decision.after, ending, decision.history)
        log.info("process.restarting", slot=slot.number, after=round(decision.after, 3))

    def _halt(self, halt: Halt, failure: str, now: float) -> None:
        """Begin to stop and print the reason. Later processes that end for the same reason print nothing."""
        self._stopping.halt(halt.exit_code, now)
        if halt.exit_code is ExitCode.CRASH_LOOP:
            log.error("process.crash_loop", reason=halt.reason)
            why = f": {failure}" if failure else "; look for process.ended in the log"
            print_error(f"processes keep crashing: {halt.reason}{why}")
        else:
            print_error(failure or halt.reason)

    # -- commands

    def _steer(self, now: float) -> None:
        phase = self._stopping.update(now)
        if phase is not self._status.phase:
            self._enter(phase, now)
        if phase is Phase.RUN:
            self._fill(now)
            self._barrier.update([slot.peer() for slot in self._slots], now)
        elif self._plan.interactive:
            self._notify(phase, now)
        command = self._command(phase)
        for _, process in self._processes():
            process.status_block.order(command)

    def _notify(self, phase: Phase, now: float) -> None:
        """Tell the person at the terminal which tasks the replica waits for."""
        tasks = [process.task for _, process in self._processes() if process.task]
        line = self._notice.update(tasks, time.time(), now, cancelling=phase is Phase.CANCEL)
        if line:
            echo(line)

    def _fill(self, now: float) -> None:
        """Start the processes that are due."""
        for slot in self._slots:
            if slot.process is None and now >= slot.start_at and self._stopping.phase is Phase.RUN:
                try:
                    process = slot.start()
                except OSError as error:  # the kernel is out of memory or process numbers
                    log.warning("process.unstartable", slot=slot.number, reason=str(error))
                    self._replace(slot, classify(ExitCode.UNSTARTABLE), now)
                else:
                    self._crashes.tell([process])
                    log.info("process.started", slot=slot.number, pid=process.pid)

    def _command(self, phase: Phase) -> Command:
        if phase is Phase.RUN:
            return Command.START_TASKS if self._barrier.open else Command.NONE
        return Command.DRAIN if phase is Phase.DRAIN else Command.DRAIN | Command.CANCEL

    def _enter(self, phase: Phase, now: float) -> None:
        """Enter a new phase, and limit the time of processes that have no task to wait for."""
        self._status.phase = phase
        running = [place(process.task) for _, process in self._processes() if process.task]
        log.info("supervisor.draining" if phase is Phase.DRAIN else "supervisor.cancelling", running=running)
        for _, process in self._processes():
            if phase is Phase.CANCEL or process.joined_at is None:
                process.kill_at = now + self._plan.leave_grace
