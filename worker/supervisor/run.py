"""``worker run`` from the settings to the exit code."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from worker import logs
from worker.core.deadline import Deadline
from worker.core.watch import Limits
from worker.errors import BrokerError, ExitCode, HandlerError, SettingsError, WorkerError
from worker.kafka.facts import Facts
from worker.process.cell import SIZE, Cell
from worker.supervisor import render
from worker.supervisor.board import Board
from worker.supervisor.child import Child, shared_buffer
from worker.supervisor.cpus import available_cpus
from worker.supervisor.http import serving
from worker.supervisor.identity import claimed
from worker.supervisor.signals import Signals
from worker.supervisor.supervisor import Plan, Supervisor

if TYPE_CHECKING:
    from worker.kafka.facts import Target
    from worker.settings import Settings

TICK = 1.0
PREFLIGHT_MARGIN = 30.0  # seconds beyond its own limit until the preflight's process is taken to hang

_ERRORS: dict[int, type[WorkerError]] = {error.exit_code: error for error in (SettingsError, HandlerError, BrokerError)}

log = structlog.get_logger("supervisor")


def run(settings: Settings) -> ExitCode:
    """Run one replica to its end. Main thread.

    Raises WorkerError, with one line for the user, when it cannot start; what goes wrong later is told on stderr.
    """
    logs.configure(settings.log_level, settings.log_format)
    board = Board()
    with (
        Signals() as signals,
        claimed(settings.group, settings.replica) as replica,
        serving(board, settings.http_port),
    ):
        facts = _ask_broker(settings, signals, board)
        if facts is None:
            return ExitCode.DRAINED
        for reason in (*render.warnings(settings), *facts.warnings):
            log.warning("settings.warning", reason=reason)
        return Supervisor(_plan(settings, replica, facts), signals, board).run()


def _plan(settings: Settings, replica: str, facts: Facts) -> Plan:
    processes = available_cpus() if settings.processes == "auto" else settings.processes
    return Plan(
        configs=[render.process_config(settings, replica, slot, facts) for slot in range(processes)],
        partitions=facts.partitions,
        drain_timeout=settings.drain_timeout,
        limits=Limits(turn=settings.liveness_timeout),
    )


def _ask_broker(settings: Settings, signals: Signals, board: Board) -> Facts | None:
    """What the broker said, or None if a signal to stop came first. Raises WorkerError if we cannot work with it."""
    target = render.target(settings)
    deadline = Deadline.after(target.connect_timeout + PREFLIGHT_MARGIN, time.monotonic())
    answered = _preflight(settings, target, signals, board, deadline)
    if answered is not None and answered.status < 0 and not deadline.passed(time.monotonic()):
        # The client's library has crashed beside a broker that went away: seen once in hundreds of starts.
        log.warning(
            "preflight.waiting", reason=f"what looked at the broker {_ended_by(answered.status)}: looking again"
        )
        answered = _preflight(settings, target, signals, board, deadline)
    return None if answered is None else _facts(answered)


class _Answered(NamedTuple):
    """How the preflight's process ended, and what it has left."""

    status: int
    answer: dict[str, dict[str, Any]]


def _preflight(
    settings: Settings, target: Target, signals: Signals, board: Board, deadline: Deadline
) -> _Answered | None:
    """One look at the broker; None if a signal to stop came first."""
    buffer, logging = shared_buffer(SIZE), (settings.log_level, settings.log_format)
    child = Child("preflight", "worker.supervisor.preflight:answer", target, buffer, *logging)
    stopped = False
    while (status := child.ended()) is None:
        board.turned = time.monotonic()
        stopped = stopped or bool(signals.take())
        if stopped or deadline.passed(board.turned):
            child.signal(signal.SIGKILL)
        signals.wait(TICK)
    return None if stopped else _Answered(status, Cell(buffer).read() or {})


def _facts(answered: _Answered) -> Facts:
    status, answer = answered
    if "facts" in answer:
        return Facts(**answer["facts"])
    if "failure" in answer:
        raise _ERRORS.get(status, WorkerError)(answer["failure"]["message"])
    kind = BrokerError if status < 0 else WorkerError
    raise kind(f"looking at the broker did not come to an end: its process {_ended_by(status)}; see the log above")


def _ended_by(status: int) -> str:
    return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
