"""``worker run``, from the settings to the exit code."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from worker import logs
from worker.core.deadline import Deadline
from worker.core.liveness import Limits
from worker.errors import BrokerError, ExitCode, HandlerError, SettingsError, WorkerError
from worker.kafka.facts import Facts
from worker.process.status_block import SIZE, StatusBlock
from worker.supervisor import render
from worker.supervisor.child import Child, shared_buffer
from worker.supervisor.cpus import available_cpus
from worker.supervisor.http import serving
from worker.supervisor.identity import claimed
from worker.supervisor.replica_status import ReplicaStatus
from worker.supervisor.signals import Signals
from worker.supervisor.supervisor import Plan, Supervisor

if TYPE_CHECKING:
    from worker.kafka.facts import Target
    from worker.settings import Settings

LEAVE_MARGIN = 5.0  # seconds beyond the grace period of cancelled tasks until a process has left the group and ended
TICK = 1.0
PREFLIGHT_MARGIN = 30.0  # seconds beyond its own limit after which the preflight process is killed

_ERRORS: dict[int, type[WorkerError]] = {error.exit_code: error for error in (SettingsError, HandlerError, BrokerError)}

log = structlog.get_logger("supervisor")


def run(settings: Settings) -> ExitCode:
    """Run one replica to its end, on the main thread.

    Raise WorkerError, with one line for the user, if the replica cannot start. Later errors are printed on stderr.
    """
    logs.configure(settings.log_level, settings.log_format)
    status = ReplicaStatus()
    with (
        Signals() as signals,
        claimed(settings.group, settings.replica) as replica,
        serving(status, settings.http_port),
    ):
        facts = _preflight(settings, signals, status)
        if facts is None:
            return ExitCode.DRAINED
        for reason in (*render.warnings(settings), *facts.warnings):
            log.warning("settings.warning", reason=reason)
        return Supervisor(_plan(settings, replica, facts), signals, status).run()


def _plan(settings: Settings, replica: str, facts: Facts) -> Plan:
    processes = available_cpus() if settings.processes == "auto" else settings.processes
    address = f"kafka-task-worker/{os.getpid()}/{secrets.token_hex(8)}"
    return Plan(
        configs=[render.process_config(settings, replica, slot, facts, address) for slot in range(processes)],
        state_reader=render.reader_config(settings, replica, facts, address),
        partitions=facts.partitions,
        drain_timeout=settings.drain_timeout,
        leave_grace=settings.cancel_grace + LEAVE_MARGIN,
        limits=Limits(turn=settings.liveness_timeout),
        interactive=sys.stderr.isatty(),
    )


def _preflight(settings: Settings, signals: Signals, status: ReplicaStatus) -> Facts | None:
    """Return the facts about the broker, or None if a stop signal came first. Raise WorkerError if it is not usable."""
    target = render.target(settings)
    deadline = Deadline.after(target.connect_timeout + PREFLIGHT_MARGIN, time.monotonic())
    result = _run_preflight(settings, target, signals, status, deadline)
    if result is not None and result.exit_status < 0 and not deadline.passed(time.monotonic()):
        # The client library crashed during a broker outage: seen once in hundreds of starts.
        log.warning("preflight.waiting", reason=f"the preflight process {_ended_by(result.exit_status)}: trying again")
        result = _run_preflight(settings, target, signals, status, deadline)
    return None if result is None else _facts(result)


class _Result(NamedTuple):
    """How the preflight process ended, and the snapshot it left."""

    exit_status: int
    snapshot: dict[str, dict[str, Any]]


def _run_preflight(
    settings: Settings, target: Target, signals: Signals, status: ReplicaStatus, deadline: Deadline
) -> _Result | None:
    """Run one preflight process. Return None if a stop signal came first."""
    buffer, logging = shared_buffer(SIZE), (settings.log_level, settings.log_format)
    child = Child("preflight", "worker.supervisor.preflight:answer", target, buffer, *logging)
    stopped = False
    while (exit_status := child.ended()) is None:
        status.turned = time.monotonic()
        stopped = stopped or bool(signals.take())
        if stopped or deadline.passed(status.turned):
            child.signal(signal.SIGKILL)
        signals.wait(TICK)
    return None if stopped else _Result(exit_status, StatusBlock(buffer).read() or {})


def _facts(result: _Result) -> Facts:
    status, snapshot = result
    if "facts" in snapshot:
        return Facts(**snapshot["facts"])
    if "failure" in snapshot:
        raise _ERRORS.get(status, WorkerError)(snapshot["failure"]["message"])
    kind = BrokerError if status < 0 else WorkerError
    raise kind(f"the preflight process {_ended_by(status)} before it had checked the broker; see the log above")


def _ended_by(status: int) -> str:
    return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
