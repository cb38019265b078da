"""``worker run``, from the settings to the exit code."""

from __future__ import annotations

import os
import secrets
import sys
from typing import TYPE_CHECKING

import structlog

from worker import logs
from worker.core.liveness import Limits
from worker.errors import ExitCode
from worker.supervisor import render
from worker.supervisor.cpus import available_cpus
from worker.supervisor.http import serving
from worker.supervisor.identity import claimed
from worker.supervisor.replica_status import ReplicaStatus
from worker.supervisor.signals import Signals
from worker.supervisor.start_checks import StartChecks
from worker.supervisor.supervisor import Plan, Supervisor

if TYPE_CHECKING:
    from worker.kafka.facts import Facts
    from worker.settings import Settings

LEAVE_MARGIN = 5.0  # seconds beyond the grace period of cancelled tasks until a process has left the group and ended

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
        facts = StartChecks(settings, signals, status).run()
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
