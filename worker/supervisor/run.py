"""``worker run`` from the settings to the exit code."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any

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
from worker.supervisor.signals import Signals
from worker.supervisor.supervisor import Plan, Supervisor

if TYPE_CHECKING:
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
    with Signals() as signals, serving(board, settings.http_port):
        facts = _ask_broker(settings, signals, board)
        if facts is None:
            return ExitCode.DRAINED
        for reason in (*render.warnings(settings), *facts.warnings):
            log.warning("settings.warning", reason=reason)
        return Supervisor(_plan(settings, facts), signals, board).run()


def _plan(settings: Settings, facts: Facts) -> Plan:
    processes = available_cpus() if settings.processes == "auto" else settings.processes
    return Plan(
        configs=[render.process_config(settings, slot, facts) for slot in range(processes)],
        partitions=facts.partitions,
        drain_timeout=settings.drain_timeout,
        limits=Limits(turn=settings.liveness_timeout),
    )


def _ask_broker(settings: Settings, signals: Signals, board: Board) -> Facts | None:
    """What the broker said, or None if a signal to stop came first. Raises WorkerError if we cannot work with it."""
    target, buffer = render.target(settings), shared_buffer(SIZE)
    logging = (settings.log_level, settings.log_format)
    child = Child("preflight", "worker.supervisor.preflight:answer", target, buffer, *logging)
    deadline, stopped = Deadline.after(target.connect_timeout + PREFLIGHT_MARGIN, time.monotonic()), False
    while (status := child.ended()) is None:
        board.turned = time.monotonic()
        stopped = stopped or bool(signals.take())
        if stopped or deadline.passed(board.turned):
            child.signal(signal.SIGKILL)
        signals.wait(TICK)
    return None if stopped else _facts(status, Cell(buffer).read() or {})


def _facts(status: int, answer: dict[str, dict[str, Any]]) -> Facts:
    if "facts" in answer:
        return Facts(**answer["facts"])
    default = f"looking at the broker failed for no known reason (status {status})"
    message = answer.get("failure", {}).get("message", default)
    raise _ERRORS.get(status, WorkerError)(message)
